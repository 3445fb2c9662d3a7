"""Reads checkpoints."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple, Union

import torch
from torch import Tensor

from sar._engine import session as _session
from sar._engine.log import logger
from sar.distributed.agreement import all_or_none, said_by_all
from sar.errors import FormatError
from sar.results.rows import OwnRows
from sar.units import some

from . import files
from .files import Reader
from .placement import RANK, ROWS, Placed, own_nodes
from .state import Models, Optimizers, misfit, models_of, optimizers_of, shapes_of
from .tree import decode

if TYPE_CHECKING:
    from sar.graph.manager import GraphShardManager

_NAME = "load_checkpoint"


class Checkpoint(NamedTuple):
    """A checkpoint that was loaded: ``step`` and ``extra`` as they were saved, and the directory it was read from."""

    step: int
    extra: Any
    path: str


def load_checkpoint(
    directory: Union[str, os.PathLike[str]],
    model: Models,
    optimizer: Optimizers = None,
    *,
    graph: Optional[GraphShardManager] = None,
    step: Optional[int] = None,
) -> Optional[Checkpoint]:
    """Fills a model and an optimizer from the last checkpoint of a directory, and sets random states. Collective.

    With as many workers and the same parts as when it was saved, training goes on to the same bits. With others, it
    follows the same curve where nothing random is drawn by node: rows go to the workers that own the nodes, ranks that
    were not there seed their generators by rank 0's state and their number.

    Nothing is changed on any rank unless all of them could read everything.

    :param directory: as given to :func:`sar.save_checkpoint`, or that of one checkpoint
    :param model: as saved: a module, or several by name
    :param optimizer: as saved, of the model given; None leaves its state out
    :param graph: of :func:`sar.construct_full_graph`; needed for tensors with a row for each own node
    :param step: the checkpoint of this step in place of the last one
    :returns: None, with nothing changed, where no checkpoint was completed yet
    :raises ValueError: it is of another model, optimizer or graph; the message names what differs
    :raises sar.FormatError: a file is damaged
    :raises FileNotFoundError: there is none of that step, or not all workers see the directory
    :raises sar.RemoteError: one of these on another worker, which the message names
    """
    name = os.fspath(directory)
    session = _session.current()
    said = said_by_all(all_or_none(_NAME, lambda: _found(name, step) if session.rank == 0 else ""))[0]
    if said is None:
        logger.info("%s has no checkpoint yet", name)
        return None
    path = os.path.normpath(os.path.join(name, said))
    reader = all_or_none(_NAME, lambda: _opened(path))
    if len(set(said_by_all(reader.crc))) > 1:
        raise ValueError(f"the workers see other checkpoints at {path}: give all hosts the same directory")
    loaded = all_or_none(_NAME, lambda: _Loaded(reader, session.rank, session.world, own_nodes(graph)))
    values = all_or_none(_NAME, lambda: loaded.values(model, optimizer))
    all_or_none(_NAME, lambda: _apply(values, model, optimizer, loaded))
    loaded.warn(graph)
    return Checkpoint(reader.description["step"], values["extra"], path)


def _found(directory: str, step: Optional[int]) -> Optional[str]:
    """The checkpoint's path below a directory."""
    path = files.find(directory, step)
    return path if path is None else os.path.relpath(path, directory)


def _opened(path: str) -> Reader:
    try:
        return Reader(path)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path}, which rank 0 has found, is not seen here: all workers read one directory, on a filesystem that "
            "their hosts share. Give every worker the same path"
        ) from None


def model_state(path: str) -> Dict[str, Tensor]:
    """The state dict of the model in a checkpoint's directory, or in the last one of a directory of them. Not
    collective.

    :raises FileNotFoundError: there is none
    :raises ValueError: it holds several models, or rows of nodes, which a model alone cannot take
    :raises sar.FormatError: a file is damaged
    """
    found = files.find(path)
    if found is None:
        raise FileNotFoundError(f"the directory {path} holds no checkpoint")
    loaded = _Loaded(Reader(found), 0, 1, {})
    trees = loaded.reader.description["trees"]["model"][0]
    if len(trees) != 1 and "model" not in trees:
        raise ValueError(f"the checkpoint {found} holds the models {', '.join(trees)}, and none of the name 'model'")
    return decode(trees["model"] if "model" in trees else next(iter(trees.values())), loaded.tensor)


class _Loaded:
    """What a rank reads of a checkpoint."""

    def __init__(self, reader: Reader, rank: int, world: int, nodes: Mapping[str, OwnRows]) -> None:
        self.reader, self.rank, self.world, self.nodes = reader, rank, world, nodes
        self.origin = rank if world == reader.world else 0
        self.tensors = reader.tensors
        self._wanted: Dict[str, List[Tuple[int, Tensor, Tensor]]] = {}
        self._foreign: List[str] = []

    def values(self, model: Models, optimizer: Optimizers) -> Dict[str, Any]:
        """The values of all sections.

        :raises ValueError: they do not fit
        """
        trees = self.reader.description["trees"]
        found: Dict[str, Any] = {}
        for section, objects in (("model", models_of(model)), ("optimizer", optimizers_of(optimizer))):
            stored = self._tree(trees[section])
            missing = [name for name in objects if name not in stored]
            if missing or (section == "model" and set(stored) != set(objects)):
                raise ValueError(
                    f"the checkpoint {self.reader.folder} holds the {section}s {', '.join(stored) or '(none)'}, and "
                    f"not {', '.join(missing) or 'only ' + ', '.join(objects)}"
                )
            found[section] = {}
            for name, one in objects.items():
                if section == "model":
                    self._check(name, one, stored[name])
                found[section][name] = decode(stored[name], self.tensor)
        found["extra"] = decode(self._tree(trees["extra"]), self.tensor)
        found["random"] = self._random(trees["random"])
        return found

    def _tree(self, trees: List[Any]) -> Any:
        return trees[self.origin if len(trees) > 1 else 0]

    def _check(self, name: str, model: torch.nn.Module, tree: Any) -> None:
        """Compares names and shapes, before anything large is read."""
        stored = {key: self._shape(value) for key, value in tree["dict"]}
        problem = misfit(shapes_of(model.state_dict()), stored)
        if problem:
            raise ValueError(
                f"the checkpoint {self.reader.folder} does not fit {name} ({type(model).__name__}): {problem}"
            )

    def _shape(self, value: Any) -> Optional[List[int]]:
        if not isinstance(value, dict) or "tensor" not in value:
            return None
        one = self.tensors[value["tensor"]]
        if one.place != ROWS:
            return one.shapes[min(self.origin, len(one.shapes) - 1)]
        if one.ntype not in self.nodes:
            raise ValueError(
                f"the checkpoint {self.reader.folder} holds a row of {one.name} for each node of type {one.ntype!r}: "
                "give graph=, of a partition that holds original ids"
            )
        return [len(self.nodes[one.ntype].numbers), *one.shapes[0][1:]]

    def _random(self, trees: List[Any]) -> Callable[[], None]:
        """What sets the random states."""
        from . import random_state  # in few scripts

        origin = self.rank % self.reader.world
        state = decode(trees[origin if len(trees) > 1 else 0], lambda name: self.tensor(name, origin))
        try:
            random_state.check(state)
        except Exception as error:  # of any kind
            path = self.reader.path
            raise FormatError(f"{path} is damaged: expected states of random generators: {error}", path) from None
        same = len(trees) == 1 and all(
            one.place != RANK for name, one in self.tensors.items() if name.startswith("random.")
        )
        if self.rank < self.reader.world or same:
            return lambda: random_state.restore(state)
        return lambda: random_state.derive(state, self.rank)

    def tensor(self, name: str, rank: Optional[int] = None) -> Tensor:
        """A tensor, as this rank has it, or as ``rank`` had it.

        :raises sar.FormatError: its bytes are damaged
        :raises ValueError: it has rows of nodes of another graph
        """
        one = self.tensors[name]
        if one.place == ROWS:
            return self._rows(one)
        origin = self.origin if rank is None else rank
        if one.place == RANK and self.world != self.reader.world and rank is None:
            self._foreign.append(name)
        return self.reader.tensor(one, origin)

    def _rows(self, one: Placed) -> Tensor:
        if one.ntype not in self.nodes:
            self._shape({"tensor": one.name})
        own = self.nodes[one.ntype]
        found = torch.empty([0, *one.shapes[0][1:]], dtype=one.dtype)
        for first, places, rows in self._places(one.ntype, own):
            end = first + int(rows[-1]) + 1
            for begin, values in self.reader.rows(one, first + int(rows[0]), end):
                if not len(found):  # now that the size of a row is known to be right
                    found = values.new_empty([len(own.numbers), *values.shape[1:]])
                at = begin - first
                low, high = torch.searchsorted(rows, torch.tensor([at, at + len(values)])).tolist()
                found[places[low:high]] = values[rows[low:high] - at]
        return found

    def _places(self, kind: str, own: OwnRows) -> List[Tuple[int, Tensor, Tensor]]:
        """Where own rows are among those that each rank has written: its first row, own rows, and which of its rows
        they are, ascending. Ranks that wrote none are left out."""
        if kind in self._wanted:
            return self._wanted[kind]
        total = self.reader.nodes[kind]
        if total != own.total:
            raise ValueError(
                f"the checkpoint {self.reader.folder} is of a graph with {total} nodes of type {kind!r}, and this one "
                f"has {own.total}"
            )
        ids = self.tensors[f"ids.{kind}"]
        counts = ids.counts()
        starts = [sum(counts[:q]) for q in range(len(counts))]
        numbers, order = own.numbers.sort()
        found, left, missing = [], len(numbers), torch.ones(len(numbers), dtype=torch.bool)
        # the parts may be the same: then all rows are in this rank's own
        for q in sorted(range(len(counts)), key=lambda q: q != self.rank):
            if not left:
                break
            if not counts[q]:
                continue
            theirs = torch.cat(
                [
                    values[max(0, starts[q] - begin) : starts[q] + counts[q] - begin]
                    for begin, values in self.reader.rows(ids, starts[q], starts[q] + counts[q])
                ]
            )
            at = torch.searchsorted(numbers, theirs).clamp(max=len(numbers) - 1)
            rows = (numbers[at] == theirs).nonzero().view(-1)
            if len(rows):
                found.append((starts[q], order[at[rows]], rows))
                left -= len(rows)
                missing[at[rows]] = False
        if left or missing.any():
            raise FormatError(
                f"the checkpoint {self.reader.folder} does not have each node of type {kind!r} once", self.reader.folder
            )
        self._wanted[kind] = found
        return found

    def warn(self, graph: Any) -> None:
        """Says what goes on otherwise than with the workers that saved it."""
        if self.world == self.reader.world or self.rank:
            return
        if self._foreign:
            told = "differed between the ranks that saved the checkpoint, all take rank 0's now: %s"
            logger.warning(told, some(self._foreign))
        if graph is not None and not self.reader.description["edges_by_original_ids"]:
            logger.warning("the partition does not hold original ids of edges: dropout of edges draws other masks now")


def _apply(values: Dict[str, Any], model: Models, optimizer: Optimizers, loaded: _Loaded) -> None:
    for name, one in optimizers_of(optimizer).items():
        try:
            one.load_state_dict(values["optimizer"][name])
        except Exception as error:  # of any kind
            raise ValueError(f"the checkpoint {loaded.reader.folder} does not fit {name}: {error}") from None
    for name, one in models_of(model).items():
        one.load_state_dict(values["model"][name])
    values["random"]()
