"""Batches of edges and nodes that Python message and reduce functions get."""

from __future__ import annotations

import inspect
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    Mapping,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    Tuple,
    TypeVar,
    Union,
)

import torch
from torch import Tensor

from sar.data.partition_book import CanonicalEtype
from sar.data.records import ShardInfo
from sar.graph.edge_tensor.count import EdgeCount
from sar.graph.message_passing.builtin import called

Read = Callable[[str, str], Tensor]
"""Rows of a column for a batch, by side ("u", "v", "e", or "n" for the nodes of a reduce function) and name."""

SIDES = {"u": "edges.src", "v": "edges.dst", "e": "edges.data", "n": "nodes.data", "m": "nodes.mailbox"}
"""What functions call the sides."""

IDS = "\0ids"
"""Name of the column of ids that every side has."""


class Columns(Mapping[str, Tensor]):
    """The columns of one side for a batch: what ``edges.src`` and ``nodes.data`` are. Rows are picked when read."""

    def __init__(self, side: str, names: Sequence[str], read: Read) -> None:
        self._side, self._names, self._read = side, names, read
        self._found: Dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._found:
            if name not in self._names:
                there = ", ".join(sorted(self._names)) or "none"
                raise KeyError(f"no {SIDES[self._side]}[{name!r}]; there are: {there}")
            self._found[name] = self._read(self._side, name)
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"columns({', '.join(self._names)})"


class Batch(NamedTuple):
    """Some edges, or nodes with their in-edges, for a function to run on.

    ``size``: edges; ``names``: of the columns of each side; ``peers``: the worker that owns the sources, or makes one
    per edge, int64 ``[size]``; ``num_nodes``: of a reduce function.
    """

    size: int
    names: Mapping[str, Sequence[str]]
    read: Read
    peers: Union[int, Callable[[], Tensor]]
    num_nodes: int = 0

    def part(self, chosen: Tensor, peer: int) -> Batch:
        """The edges at positions ``chosen``."""

        def read(side: str, name: str) -> Tensor:
            return self.read(side, name).index_select(0, chosen)

        return self._replace(size=len(chosen), read=read, peers=peer)


class EdgeBatch:
    """A batch of edges, as message functions get it.

    :ivar src: columns of the source nodes, ``[edges, ...]`` each
    :ivar dst: columns of the destination nodes, ``[edges, ...]`` each
    :ivar data: columns of the edges, ``[edges, ...]`` each
    :ivar canonical_etype: ``(source type, relation, destination type)``
    """

    def __init__(self, batch: Batch, etype: CanonicalEtype, sides: str = "uve") -> None:
        self._batch, self._sides, self.canonical_etype = batch, sides, etype
        self.src, self.dst, self.data = (Columns(side, batch.names[side], batch.read) for side in sides)

    def edges(self) -> Tuple[Tensor, Tensor, Tensor]:
        """Ids of sources and destinations, counted per type over all workers, and positions in ``edata``: int64
        ``[edges]`` each."""
        src, dst, data = (self._batch.read(side, IDS) for side in self._sides)
        return src, dst, data

    def turned(self) -> EdgeBatch:
        """The same edges with sources and destinations exchanged."""
        return EdgeBatch(self._batch, self.canonical_etype[::-1], "vue")

    def batch_size(self) -> int:
        """How many edges there are, of this worker."""
        return EdgeCount(self._batch.size)

    def __len__(self) -> int:
        return self._batch.size


class NodeBatch:
    """A batch of nodes, as reduce functions and ``apply_node_func`` get it.

    :ivar data: columns of the nodes, ``[nodes, ...]`` each
    :ivar mailbox: messages by name, ``[nodes, messages of each, ...]``, in the order of edges; ``None`` without any
    :ivar ntype: type of the nodes
    """

    def __init__(
        self,
        size: int,
        ntype: str,
        data: Mapping[str, Tensor],
        ids: Callable[[], Tensor],
        mailbox: Optional[Mapping[str, Tensor]] = None,
    ) -> None:
        self._size, self._ids = size, ids
        self.ntype, self.data = ntype, data
        self.mailbox: Mapping[str, Tensor] = mailbox  # type: ignore[assignment]  # reduce functions always have one

    def nodes(self) -> Tensor:
        """Ids of the nodes, counted per type over all workers, int64 ``[nodes]``."""
        return self._ids()

    def batch_size(self) -> int:
        """How many nodes there are."""
        return self._size

    def __len__(self) -> int:
        return self._size


# ---- what scripts give -----------------------------------------------------


class BuiltIn(Protocol):
    """A function of :mod:`sar.function` or ``dgl.function``."""

    @property
    def name(self) -> str: ...
    @property
    def out_field(self) -> str: ...


EdgeFunction = Union[
    BuiltIn,
    Callable[[EdgeBatch], Mapping[str, Tensor]],
    Callable[[EdgeBatch, ShardInfo], Mapping[str, Tensor]],
]
"""A message function; in Python it may ask for ``sar_shard_info``."""
NodeFunction = Callable[[NodeBatch], Mapping[str, Tensor]]
"""A function of nodes, in Python."""
ReduceFunction = Union[BuiltIn, NodeFunction]
"""A reduce function."""


# ---- parameters and shards -------------------------------------------------

Function = TypeVar("Function", bound=Callable[..., Any])


def message_has_parameters(param_fn: Callable[[Any], Sequence[Tensor]]) -> Callable[[Function], Function]:
    """Declares the parameters of a message function. They are found without it; scripts for the older package have
    it. ::

        class Layer(torch.nn.Module):
            @sar.message_has_parameters(lambda self: tuple(self.linear.parameters()))
            def message(self, edges):
                return {"m": self.linear(edges.src["h"])}

    :param param_fn: gets the object that the function is a method of (``None`` for a plain function) and returns its
        parameters
    :returns: a decorator, which returns the function itself
    """

    def decorate(function: Function) -> Function:
        function.param_foo = param_fn  # type: ignore[attr-defined]
        return function

    return decorate


def wants_shard_info(function: Any) -> bool:
    """Whether a function asks for ``sar_shard_info``."""
    try:
        return "sar_shard_info" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # something written in C
        return False


# ---- results ---------------------------------------------------------------


def checked(function: Any, result: Any, rows: int, what: str) -> Dict[str, Tensor]:
    """What a function returned, if it is one tensor of ``rows`` rows per name.

    :raises TypeError: it is something else
    :raises ValueError: another number of rows
    """
    if not isinstance(result, Mapping):
        kind = "tensor" if isinstance(result, Tensor) else type(result).__name__
        raise TypeError(f"{called(function)} returned a {kind}: functions of {what} return {{name: tensor}}")
    for name, value in result.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            kind = type(value).__name__
            raise TypeError(f"{called(function)} returned a {kind} as {name!r}: it must return tensors by name")
        if value.dim() == 0 or value.shape[0] != rows:
            raise ValueError(
                f"{called(function)} returned {name!r} of shape {tuple(value.shape)} for {rows} {what}: "
                f"it must have one row for each, ({rows}, ...)"
            )
    return dict(result)


class MessageFunction:
    """A Python message function that runs on batches.

    :param function: what the user wrote
    :param etype: the relation
    :param shards: makes what ``sar_shard_info`` is for edges from a worker
    """

    def __init__(self, function: Any, etype: CanonicalEtype, shards: Callable[[int], ShardInfo]) -> None:
        self.function, self.etype = function, etype
        self.shards = shards if wants_shard_info(function) else None

    def __call__(self, batch: Batch) -> Dict[str, Tensor]:
        if self.shards is None:
            return checked(self.function, self.function(EdgeBatch(batch, self.etype)), batch.size, "edges")
        if callable(batch.peers):
            return self._by_shard(batch, batch.peers())
        given = self.function(EdgeBatch(batch, self.etype), sar_shard_info=self.shards(batch.peers))
        return checked(self.function, given, batch.size, "edges")

    def _by_shard(self, batch: Batch, peers: Tensor) -> Dict[str, Tensor]:
        """Runs the function on the edges of each shard, and puts the results back into the order of the batch."""
        order = torch.argsort(peers, stable=True)
        kinds, counts = torch.unique_consecutive(peers[order], return_counts=True)
        parts = [
            self(batch.part(chosen, int(peer))) for peer, chosen in zip(kinds.tolist(), order.split(counts.tolist()))
        ]
        back = torch.argsort(order)
        return {name: torch.cat([part[name] for part in parts]).index_select(0, back) for name in parts[0]}


class MailboxFunction:
    """A message function and a Python reduce function that runs on what it sends. Nodes of a batch have equally many
    edges, which lie node by node.

    :param send: makes the messages of a batch
    :param function: what the user wrote
    :param ntype: type of the destinations
    """

    def __init__(self, send: Callable[[Batch], Dict[str, Tensor]], function: Any, ntype: str) -> None:
        self.send, self.function, self.ntype = send, function, ntype

    def __call__(self, batch: Batch) -> Dict[str, Tensor]:
        n = batch.num_nodes
        sent = self.send(batch)
        mailbox = Columns("m", list(sent), lambda _, k: sent[k].reshape(n, batch.size // n, *sent[k].shape[1:]))
        data = Columns("n", batch.names["v"], batch.read)
        given = self.function(NodeBatch(n, self.ntype, data, lambda: batch.read("n", IDS), mailbox))
        return checked(self.function, given, n, "nodes")
