"""Writes checkpoints."""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import shutil
import threading
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Union

import torch
from torch import Tensor

from sar._engine import session as _session
from sar.data.directory import sync_directory, write_text
from sar.distributed.agreement import all_or_none, raise_everywhere, said_by_all
from sar.results.files import await_shared, want_room

from . import files
from .files import Stored
from .placement import SAME, Piece, Placed, own_nodes, pieces, place
from .state import Models, Optimizers, State, capture
from .tensor_files import write_tensors

if TYPE_CHECKING:
    from sar.graph.manager import GraphShardManager

_NAME = "save_checkpoint"


def save_checkpoint(
    directory: Union[str, os.PathLike[str]],
    model: Models,
    optimizer: Optimizers = None,
    *,
    step: int,
    extra: object = None,
    graph: Optional[GraphShardManager] = None,
    per_node: Optional[Mapping[str, str]] = None,
    keep: int = 2,
) -> None:
    """Writes a checkpoint, from which as many workers go on to the same bits, and others to the same curve. Collective.

    Holds parameters and buffers, the optimizer's state, ``extra``, and the random states of torch, numpy and Python on
    every rank; dropout of edges follows from torch's. What is the same on all ranks is written once. Tensors with a row
    for each own node, and what the optimizer holds for them, are keyed by the nodes' original ids. Other tensors that
    differ between ranks are written by each; other numbers of workers then load those of rank 0.

    The checkpoint is complete, and the file ``latest`` names it, when all ranks have written and synced their files.
    After an error on any worker all of them raise, and the checkpoint before stays the last one.

    :param directory: on a filesystem that all workers share; it is made if it does not exist
    :param model: a module, or several by name; parameters that are outside of a module go into a ``nn.ParameterDict``
    :param optimizer: an optimizer, or several by name; learning-rate schedulers too
    :param step: of training, such as the number of finished epochs
    :param extra: other values to keep: tensors, numbers, strings, None, in dictionaries, lists and tuples
    :param graph: of :func:`sar.construct_full_graph`; needed for tensors with a row for each own node
    :param per_node: node types of such tensors by name, as ``{"learned.author": "author"}``, where their shape leaves
        it open
    :param keep: how many checkpoints stay in the directory
    :raises TypeError: an argument, or a value that a checkpoint cannot hold
    :raises ValueError: ranks have other tensors, the optimizer trains a parameter that is not in the model, or it is
        not clear what a tensor's rows belong to
    :raises OSError: the disk is full, or not all workers see the directory
    :raises sar.RemoteError: one of these on another worker, which the message names
    """
    write = Write(os.fspath(directory), model, optimizer, step, extra, graph, per_node, keep)
    write.start()
    write.finish()


class Write:
    """A checkpoint while it is written. Made collectively.

    :param copy: whether the model may change before :meth:`finish`
    """

    def __init__(
        self,
        directory: str,
        model: Models,
        optimizer: Optimizers,
        step: int,
        extra: Any,
        graph: Any,
        per_node: Optional[Mapping[str, str]],
        keep: int,
        copy: bool = False,
    ) -> None:
        session = _session.current()
        self.rank, self.world = session.rank, session.world
        self.directory, self.step, self.keep = directory, step, keep
        self.error: Optional[Exception] = None
        self._not_published: Optional[Exception] = None
        self._written, self._ended, self._cancelled = threading.Event(), threading.Event(), threading.Event()
        state, nodes = all_or_none(_NAME, lambda: self._checked(model, optimizer, extra, graph))
        tensors = {**state.tensors, **{f"ids.{kind}": own.numbers for kind, own in nodes.items()}}
        follows = dict(state.follows)
        known = {**{f"ids.{kind}": kind for kind in nodes}, **(per_node or {})}
        self._placed = place(tensors, follows, nodes, known)
        kinds = {one.ntype for one in self._placed if not one.name.startswith("ids.")}
        self._placed = [one for one in self._placed if not one.name.startswith("ids.") or one.ntype in kinds]
        self._totals = {kind: own.total for kind, own in nodes.items()}
        self._trees = self._agreed(state)
        self._keyed = graph is not None and all(r.edge_keys is not None for r in graph._state.relations)
        nonce = said_by_all(secrets.token_hex(4) if self.rank == 0 else "")[0]
        self.name = f"step-{step:012d}-{nonce}"
        self._scratch = os.path.join(directory, f".{self.name}.partial")
        self._pieces = all_or_none(_NAME, lambda: self._staged(tensors, copy))
        all_or_none(_NAME, lambda: self._make() if self.rank == 0 else None)
        all_or_none(_NAME, lambda: self._see() if self.rank else None)

    def _checked(self, model: Models, optimizer: Optimizers, extra: Any, graph: Any) -> Any:
        if isinstance(self.step, bool) or not isinstance(self.step, int) or self.step < 0:
            raise ValueError(f"step={self.step!r}: give a number, 0 or more")
        if self.keep < 1:
            raise ValueError(f"keep={self.keep}: at least one checkpoint stays")
        return capture(model, optimizer, extra), own_nodes(graph)

    def _agreed(self, state: State) -> Dict[str, List[Any]]:
        """Every section's tree, or that of each rank where they differ. Collective."""
        said = said_by_all(state.trees)
        alike = {key: all(other[key] == said[0][key] for other in said) for key in said[0]}
        return {key: [said[0][key]] if alike[key] else [other[key] for other in said] for key in said[0]}

    def _staged(self, tensors: Mapping[str, Tensor], copy: bool) -> List[Piece]:
        owners: Dict[int, str] = {}
        found = pieces(self._placed, tensors, self.rank)
        for i, p in enumerate(found):  # safetensors takes no two tensors that share memory
            shared = owners.setdefault(p.values.untyped_storage().data_ptr(), p.name) != p.name
            found[i] = p._replace(values=p.values.to("cpu", copy=copy or shared).contiguous())
        return found

    def _make(self) -> None:
        os.makedirs(self.directory, exist_ok=True)
        for name in os.listdir(self.directory):  # of a job that was killed
            if name.startswith(".step-") and name.endswith(".partial"):
                shutil.rmtree(os.path.join(self.directory, name), ignore_errors=True)
        want_room(self.directory, self._bytes())
        os.mkdir(self._scratch)

    def _bytes(self) -> int:
        """Of the tensors of all ranks."""
        sizes = [torch.empty(0, dtype=one.dtype).element_size() for one in self._placed]
        shapes = [one.shapes[: 1 if one.place == SAME else None] for one in self._placed]
        return sum(size * math.prod(shape) for size, own in zip(sizes, shapes) for shape in own)

    def _see(self) -> None:
        await_shared(
            self._scratch,
            lambda: os.path.isdir(self._scratch),
            "all workers write into one directory, on a filesystem that their hosts share. Give every worker the same "
            "path",
        )

    def start(self) -> None:
        """Writes this rank's files in a thread. That of rank 0 completes the checkpoint when all ranks have written."""
        threading.Thread(target=self._run, name="sar-checkpoint", daemon=True).start()

    def _run(self) -> None:
        try:
            try:
                # rank 0 waits for this file, then syncs the directory and renames it
                write_text(self._mark(self.rank), json.dumps(self._write_pieces()), sync=False)
            except Exception as error:
                self.error = error
            finally:
                self._pieces = []
                self._written.set()
            if self.rank == 0 and self.error is None:
                self._publish()
        except Exception as error:
            self._not_published = error
        finally:
            self._ended.set()

    def _write_pieces(self) -> List[Stored]:
        rows = [len(p.values) if p.first is not None else 1 for p in self._pieces]
        found = [Stored(p.name, p.first, n, self.rank, 0) for p, n in zip(self._pieces, rows)]
        names = [one.stored(piece.shape)[0] for one, piece in zip(found, self._pieces)]
        tensors = {name: piece.values for name, piece in zip(names, self._pieces)}
        if len(tensors) < len(names):
            raise ValueError(f"two tensors get one name in a file: {max(names, key=names.count)}. Rename one of them")
        sums = write_tensors(files.tensors_file(self._scratch, self.rank), tensors)
        return [one._replace(crc=sums[name]) for one, name in zip(found, names)]

    def _mark(self, rank: int) -> str:
        return os.path.join(self._scratch, f"rank-{rank:05d}.json")

    def _publish(self) -> None:
        """Waits for the files of all ranks, and gives the checkpoint its name."""
        stored: List[Stored] = []
        for rank in range(self.world):
            while not os.path.exists(self._mark(rank)):
                if self._cancelled.wait(0.02):
                    return
            with open(self._mark(rank), encoding="utf-8") as file:
                stored += [Stored(*item) for item in json.load(file)]
        stored.sort(key=lambda piece: (piece.name, piece.first or 0))
        files.write_description(
            self._scratch,
            {
                "step": self.step,
                "world": self.world,
                "torch": torch.__version__,
                "edges_by_original_ids": self._keyed,
                "trees": self._trees,
                "tensors": {one.name: described(one) for one in self._placed},
                "nodes": self._totals,
                "pieces": stored,
            },
        )
        for rank in range(self.world):
            os.unlink(self._mark(rank))
        sync_directory(self._scratch)
        os.rename(self._scratch, os.path.join(self.directory, self.name))
        sync_directory(self.directory)
        write_text(os.path.join(self.directory, files.LATEST), self.name + "\n")
        names = [name for name in files.checkpoints_in(self.directory) if name != self.name]
        for name in names[: max(0, len(names) + 1 - self.keep)]:
            # Renamed, so that it is no checkpoint any more, and the next one removes what a kill leaves of it.
            scratch = os.path.join(self.directory, f".{name}.partial")
            with contextlib.suppress(OSError):
                os.rename(os.path.join(self.directory, name), scratch)
                shutil.rmtree(scratch, ignore_errors=True)

    def failed(self) -> bool:
        """Whether it is known by now that this rank has failed."""
        return self.error is not None or self._not_published is not None

    def wait(self, seconds: float) -> None:
        """Waits for this rank's part. Not collective."""
        self._ended.wait(seconds)

    def finish(self, seconds: float = 1800.0) -> None:
        """Waits until the checkpoint is complete. Collective.

        :raises Exception: what writing raised, on this rank
        :raises sar.RemoteError: the same on another
        """
        name = f"the checkpoint of step {self.step}"
        if not self._written.wait(seconds):
            self.error = TimeoutError(f"{self._scratch} was not written within {seconds:g} s")
        try:
            raise_everywhere(name, self.error)
            if not self._ended.wait(seconds):
                self._not_published = TimeoutError(f"{name} was not completed within {seconds:g} s")
            raise_everywhere(name, self._not_published)
        except BaseException:
            self._cancelled.set()
            if self.rank == 0:
                self._ended.wait(10.0)
                with contextlib.suppress(OSError):
                    shutil.rmtree(self._scratch)
            raise


def described(one: Placed) -> Dict[str, Any]:
    """A tensor, as the description has it."""
    shapes = one.shapes[:1] if one.place == SAME else one.shapes
    return {"place": one.place, "dtype": str(one.dtype).replace("torch.", ""), "shapes": shapes, "ntype": one.ntype}
