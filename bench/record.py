"""Records which collective functions of the engine a worker calls, so that :mod:`replay` can make the same calls.

A record is a JSON file: the rows and edges that the recorded worker owns, and its calls in order. Of a tensor it has
type and shape, and the bytes where they are few: what workers agree on is small. Tensors of collectives may grow with
the number of workers; records of two numbers tell which.
"""

from __future__ import annotations

import base64
import ctypes as ct
import json
import math
from typing import Any

from sar._engine import abi, library
from sar._engine.signatures import TYPES, DLTensor

# What has to be called again. The rest of sar.h sends nothing.
REPLAYED = {
    *("sar_session_set_window", "sar_session_set_exchange", "sar_session_set_place", "sar_session_name_layer"),
    *("sar_comm_create", "sar_all_reduce", "sar_broadcast"),
    *("sar_barrier", "sar_all_to_all", "sar_program_create"),
    *("sar_program_forward", "sar_program_backward"),
}
# Collective as well, with arguments that depend on the graph.
REFUSED = {
    *("sar_exchange_pair", "sar_stream_run", "sar_fetch_forward", "sar_fetch_backward", "sar_graph_block"),
    *("sar_sampler_create", "sar_graph_from_edges", "sar_graph_from_relations", "sar_graph_columns"),
}
OF_GRAPH = "sar_program_"
"""Functions whose tensors have a row for each of the worker's nodes or edges."""
FEW = 4096
"""Bytes of a tensor that are recorded."""


class Recorder:
    """Wraps the way into the engine, from now on, for the life of the process."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.content: dict[str, Any] = {"calls": []}
        self._call, library.call = library.call, self._recording

    def _recording(self, name: str, *args: Any) -> Any:
        if name in REFUSED:
            raise ValueError(f"{name} cannot be recorded: replay knows aggregations, edge expressions and collectives")
        sent = [library.argument(a) for a in args]  # tensors, strings and structs as C gets them
        entry = {"name": name, "args": [encode(a) for a in sent]} if name in REPLAYED else None
        found = self._call(name, *args)
        if name == "sar_graph_build":
            info = abi.graph_relation_info(found, 0)
            self.content.update(rows=info.num_dst, edges=info.num_edges)
        elif name == "sar_session_open":
            self.content["world"] = args[0].world
        if name == "sar_program_create":
            entry["handle"] = found
        elif name == "sar_session_set_place":
            entry["operation"] = found
        if entry is not None:
            self.content["calls"].append(entry)
        return found

    def save(self) -> None:
        """Writes the file."""
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump(self.content, file)


def joined(path: str, other: str) -> None:
    """Adds to a record by how much its tensors of collectives grow with each worker, as another one tells, of the same
    script among more workers."""
    with open(path, encoding="utf-8") as file, open(other, encoding="utf-8") as file_of_other:
        first, second = json.load(file), json.load(file_of_other)
    if [c["name"] for c in first["calls"]] != [c["name"] for c in second["calls"]]:
        raise ValueError(f"{path} and {other} have different calls: the script depends on the number of workers")
    more = second["world"] - first["world"]
    for mine, theirs in zip(first["calls"], second["calls"]):
        if not mine["name"].startswith(OF_GRAPH):
            for a, b in zip(mine["args"], theirs["args"]):
                for t, u in zip(tensors(a), tensors(b)):
                    if t["shape"] != u["shape"]:
                        t["grows"] = [(n - m) // more for m, n in zip(t["shape"], u["shape"])]
                        t.pop("data", None)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(first, file)


def tensors(arg: Any) -> list[dict[str, Any]]:
    """Those of a recorded argument."""
    return [] if arg is None else arg.get("tensors") or ([arg["tensor"]] if "tensor" in arg else [])


def encode(arg: Any) -> Any:
    """An argument of a C function as JSON."""
    if arg is None:
        return None
    if isinstance(arg, bytes):
        return {"text": arg.decode()}
    if isinstance(arg, ct.Array):
        return {"tensors": [_tensor(t) for t in arg]}
    target = arg if isinstance(arg, ct.Structure) else getattr(arg, "_obj", None)
    if target is None:
        return {"number": arg if isinstance(arg, (int, float)) else arg.value}
    if isinstance(target, DLTensor):
        return {"tensor": _tensor(target)}
    if isinstance(target, TYPES["sar_program_call"]):
        if target.keys:
            raise ValueError("edge expressions with keys of edges cannot be recorded")
        seeds = [target.seeds[i] for i in range(target.num_seeds)]
        return {"program_call": [target.relation, target.need_grad, target.agreed, seeds]}
    raise TypeError(f"{type(target).__name__} cannot be recorded")


def _tensor(t: DLTensor) -> dict[str, Any]:
    shape = [t.shape[i] for i in range(t.ndim)]
    size = math.prod(shape) * t.dtype.bits // 8
    out: dict[str, Any] = {"dtype": [t.dtype.code, t.dtype.bits], "shape": shape}
    if t.data and size <= FEW:
        out["data"] = base64.b64encode(ct.string_at(t.data, size)).decode()
    return out
