"""Plays the peers of rank 0: the ranks FIRST to LAST of a job, in one process, each a session of the real engine over
the real transport. They meet, construct their part of the graph and make every call that :mod:`record` wrote down, so
rank 0 gets what it would of real workers: the same operations, with as many rows of the same width from and to each.

A replayed rank owns what rank 0 sees of it and nothing else: of its nodes those with an edge from rank 0, and of its
edges those that begin at rank 0. Both follow from rank 0's own partition where for each edge its reverse is there too.
All rows are zeros, read from one mapping that takes no memory; what operations make goes to one buffer, which all ranks
overwrite.

    python bench/replay.py PARTS/NAME.json RECORD.json FIRST LAST     WORLD_SIZE, MASTER_* and SAR_JOB_TOKEN as workers
"""

from __future__ import annotations

import base64
import ctypes as ct
import json
import math
import mmap
import os
import sys
import threading
from typing import Any

import numpy as np
import torch

from record import tensors
from sar._engine import abi, library
from sar._engine.signatures import TYPES, DLTensor
from sar.distributed import tokens

# Of the functions that work on the graph: which arguments are written. What backward of an expression finds of
# forward's state is read alone.
WRITTEN = {
    "sar_program_forward": (5, 7),
    "sar_program_backward": (9,),
}
LINE = 64


class Cut:
    """The edges between rank 0 and the others, both ways, from the partition of rank 0."""

    def __init__(self, path: str) -> None:
        with open(path, encoding="utf-8") as file:
            description = json.load(file)
        if list(description["edge_map"]) != ["_N:_E:_N"]:
            raise ValueError(f"{path} has the edge types {list(description['edge_map'])}: replay knows one type")
        starts = np.array([span[0] for span in description["node_map"]["_N"]])
        self.own = int(description["node_map"]["_N"][0][1])
        part = abi.partition_open(path, 0)
        try:
            count = abi.partition_count_edges(part, 0)
            src, dst = np.empty(count, np.int64), np.empty(count, np.int64)
            abi.partition_edges(part, 0, torch.from_numpy(src), torch.from_numpy(dst), None)
        finally:
            abi.partition_close(part)
        cut = src >= self.own
        src, dst = src[cut], dst[cut].astype(np.int32)
        owner = (np.searchsorted(starts, src, side="right") - 1).astype(np.int16)
        self._theirs, self._mine = (src - starts[owner]).astype(np.int32), dst
        order = np.argsort(owner, kind="stable")
        self._theirs, self._mine = self._theirs[order], self._mine[order]
        ends = np.searchsorted(owner[order], np.arange(len(starts) + 1))
        self._spans = [slice(a, b) for a, b in zip(ends, ends[1:])]
        # Rows that rank 0 does not read are left out, as far as they come last.
        self.rows = [self.own] + [int(self._theirs[s].max(initial=-1)) + 1 for s in self._spans[1:]]
        self.starts = torch.from_numpy(np.concatenate([[0], np.cumsum(self.rows)]))

    def edges(self, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Ends of the edges from rank 0 to ``rank``, in the numbers of the replayed graph."""
        span = self._spans[rank]
        mine, theirs = (torch.from_numpy(ends[span].astype(np.int64)) for ends in (self._mine, self._theirs))
        return mine, theirs + self.starts[rank]

    def count(self, rank: int) -> int:
        """How many they are."""
        span = self._spans[rank]
        return int(span.stop - span.start)

    def free(self) -> None:
        """Lets go of the edges, once all graphs are there."""
        del self._theirs, self._mine


class Script:
    """A record, and the memory that its calls work on."""

    def __init__(self, path: str, cut: Cut, ranks: range) -> None:
        with open(path, encoding="utf-8") as file:
            self.record = json.load(file)
        self.calls = self.record["calls"]
        rows, edges = max(cut.rows[r] for r in ranks), max(cut.count(r) for r in ranks)
        read = written = LINE
        for call in self.calls:
            outputs = 0
            for i, arg in enumerate(call["args"]):
                sizes = [_bytes(t, *self.shape(t, rows, edges)) for t in tensors(arg)]
                read = max([read, *sizes])
                outputs += sum(sizes) if i in WRITTEN.get(call["name"], ()) else 0
            written = max(written, outputs)
        self._zeros = mmap.mmap(-1, read, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
        self._scratch = mmap.mmap(-1, written, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.zeros, self.scratch = (np.frombuffer(m, np.uint8).ctypes.data for m in (self._zeros, self._scratch))
        self.programs = {}
        for call in self.calls:
            if call["name"] == "sar_program_create":
                self.programs[call["handle"]] = library.call("sar_program_create", call["args"][0]["text"])

    def shape(self, tensor: dict[str, Any], rows: int, edges: int) -> tuple[int, ...]:
        """That of a recorded tensor on a worker with so many rows and edges."""
        first, *rest = tensor["shape"] or [1]
        return ({self.record["rows"]: rows, self.record["edges"]: edges}.get(first, first), *rest)


def _bytes(tensor: dict[str, Any], *shape: int) -> int:
    return math.prod(shape) * tensor["dtype"][1] // 8 + LINE


class Rank:
    """One replayed rank."""

    def __init__(self, rank: int, world: int, script: Script, cut: Cut) -> None:
        self.rank, self.world, self.script = rank, world, script
        self.rows, self.edges = cut.rows[rank], cut.count(rank)
        self.operations: dict[int, int] = {}  # own numbers by recorded ones: a cover that is made takes some, too
        self.session = abi.session_open(
            *(rank, world, os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])),
            *(None, os.environ.get("SAR_TRANSPORT"), None, 0.0, 60.0, 0.0, int(os.environ.get("BENCH_WINDOW", 0))),
            job_token=os.environ.get(tokens.VARIABLE, ""),
        )
        src, dst = cut.edges(rank)
        self.graph = abi.graph_from_edges(self.session, cut.starts, src, dst)

    def play(self) -> None:
        """Makes all calls, and leaves."""
        for call in self.script.calls:
            if call["name"] != "sar_program_create":
                found = library.call(call["name"], *self._arguments(call))
                if "operation" in call:
                    self.operations[call["operation"]] = found
        abi.session_close(self.session)

    def _arguments(self, call: dict[str, Any]) -> list[Any]:
        written, at = WRITTEN.get(call["name"], ()), self.script.scratch
        self._alive: list[Any] = []  # until the next call
        out: list[Any] = []
        for i, arg in enumerate(call["args"]):
            if call["name"] in WRITTEN and i == 0:
                out.append(ct.c_uint64(self.graph))
            elif i == 0:
                out.append(ct.c_uint64(self.session))
            elif call["name"].startswith("sar_program") and i == 1:
                out.append(ct.c_uint64(self.script.programs[arg["number"]]))
            elif call["name"] == "sar_session_set_place" and i == 2:
                out.append(self.operations.get(arg["number"], 0))
            elif call["name"] == "sar_all_to_all" and i in (2, 3):
                out.append(self._per_rank(arg["tensors"]))
            elif call["name"] == "sar_all_to_all" and i == 4:
                out.append(ct.c_int32(self.world))
            elif found := tensors(arg):
                made = []
                for tensor in found:
                    made.append(self._tensor(tensor, at if i in written else None, call["name"] in WRITTEN))
                    at += (self._size(tensor) + LINE - 1) // LINE * LINE if i in written else 0
                out.append((DLTensor * len(made))(*made) if "tensors" in arg else ct.byref(made[0]))
            else:
                out.append(self._plain(arg))
        return out

    def _plain(self, arg: Any) -> Any:
        """An argument that is no tensor."""
        if arg is None:
            return None
        if "text" in arg:
            return arg["text"].encode()
        if "number" in arg:
            return arg["number"]
        relation, need, agreed, seeds = arg["program_call"]
        array = (ct.c_uint64 * max(1, len(seeds)))(*seeds)
        self._alive.append(array)
        return TYPES["sar_program_call"](relation, need, agreed, len(seeds), array, None, 0)

    def _size(self, tensor: dict[str, Any]) -> int:
        return _bytes(tensor, *self.script.shape(tensor, self.rows, self.edges))

    def _tensor(self, tensor: dict[str, Any], address: int | None, of_graph: bool) -> DLTensor:
        """One of the recorded type: at ``address``, zeros, or, of collectives, a buffer with what was recorded."""
        code, bits = tensor["dtype"]
        shape = self.script.shape(tensor, self.rows, self.edges)
        if not of_graph:
            more = self.world - self.script.record["world"]
            shape = tuple(n + more * grows for n, grows in zip(tensor["shape"], tensor.get("grows", [0] * 9)))
            buffer = bytearray(_bytes(tensor, *shape))
            if "data" in tensor:
                data = base64.b64decode(tensor["data"])
                buffer[: len(data)] = data
            self._alive.append(buffer)
            address = ct.addressof((ct.c_char * len(buffer)).from_buffer(buffer))
        sizes = (ct.c_int64 * max(1, len(shape)))(*shape)
        self._alive.append(sizes)
        ndim = len(tensor["shape"])
        pointer = ct.cast(sizes, ct.POINTER(ct.c_int64))
        where = self.script.zeros if address is None else address
        device, dtype = TYPES["DLDevice"](1, 0), TYPES["DLDataType"](code, bits, 1)
        return DLTensor(where, device, ndim, dtype, pointer, None, 0)

    def _per_rank(self, recorded: list[dict[str, Any]]) -> Any:
        """As many tensors as there are ranks, all like the first: what is agreed on is told to all alike."""
        return (DLTensor * self.world)(*(self._tensor(recorded[0], None, False) for _ in range(self.world)))


def main() -> None:
    path, record, first, last = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    world, ranks = int(os.environ["WORLD_SIZE"]), range(first, last + 1)
    library.call("sar_set_num_threads", ct.c_int32(int(os.environ["SAR_NUM_THREADS"])))
    cut = Cut(path)
    script = Script(record, cut, ranks)
    failed: list[BaseException] = []
    built = threading.Barrier(len(ranks), action=cut.free)

    def run(rank: int) -> None:
        try:
            played = Rank(rank, world, script, cut)
            built.wait()
            played.play()
        except BaseException as error:
            built.abort()
            failed.append(error)
            print(f"replayed rank {rank}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        os._exit(1)  # other ranks may still hold the engine


if __name__ == "__main__":
    main()
