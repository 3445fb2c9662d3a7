"""Which tensors are the same on all ranks, which have a row for every own node, and which are a rank's own."""

from __future__ import annotations

import hashlib
import math
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import torch
from torch import Tensor

from sar._engine import columns, session as _session
from sar.distributed.agreement import equal_on_all, said_by_all
from sar.graph.manager import GraphShardManager
from sar.results.rows import OwnRows, own_rows

PIECE_BYTES = 64 << 20
"""Bytes of a tensor that are written and read at once, about."""
_PREFIX_BYTES = 1 << 16
"""Bytes by which tensors are told apart before all of them is read."""
_HASHED_BYTES = 1 << 12
"""Bytes of a tensor that a cryptographic hash sees, which takes ten times as long as the engine's checksum."""
PLACES = SAME, RANK, ROWS = "same", "rank", "rows"


class Placed(NamedTuple):
    """A tensor of a checkpoint.

    ``place``: ``SAME``: equal on all ranks, stored once; ``RANK``: each rank's own; ``ROWS``: a row for each node of
    type ``ntype``. ``shapes``: of every rank's tensor.
    """

    name: str
    place: str
    dtype: torch.dtype
    shapes: List[List[int]]
    ntype: str = ""

    def counts(self) -> List[int]:
        """Rows of every rank."""
        return [shape[0] for shape in self.shapes]

    def stored_shape(self, rank: int) -> List[int]:
        """The shape of the tensor in the files, of which a rank's may be a part."""
        return [sum(self.counts()), *self.shapes[0][1:]] if self.place == ROWS else self.shapes[rank]

    def stored_name(self, rank: int) -> str:
        return f"rank-{rank:05d}/{self.name}" if self.place == RANK else self.name


class Piece(NamedTuple):
    """Rows of a stored tensor that one rank writes; of a tensor without dimensions ``first`` is None."""

    name: str
    first: Optional[int]
    shape: List[int]
    values: Tensor


def own_nodes(graph: Any) -> Dict[str, OwnRows]:
    """The original ids of own nodes by type, of those types of which the partition knows them.

    :raises TypeError: no graph of this package
    """
    found = {}
    if graph is not None:
        if not isinstance(graph, GraphShardManager):
            own_rows(graph)  # says what it should be
        for kind in graph.ntypes:
            if kind in graph._state.node_keys and graph._state.keep_seeds is None:
                found[kind] = own_rows(graph, kind)
    return found


def place(
    tensors: Mapping[str, Tensor],
    follows: Mapping[str, str],
    nodes: Mapping[str, OwnRows],
    per_node: Optional[Mapping[str, str]],
) -> List[Placed]:
    """Finds the places of all tensors, the same on every rank. Collective.

    :param follows: by the name of a tensor, that of a parameter of its shape, whose place it shares
    :param per_node: node types by the names of tensors, before what shapes say
    :raises ValueError: ranks have other tensors, or it is not clear of which type the rows are
    """
    given = per_node or {}
    mine = [
        [name, str(t.dtype), list(t.shape), [k for k, own in nodes.items() if t.dim() and len(t) == len(own.numbers)]]
        for name, t in tensors.items()
    ]
    said = said_by_all([mine, dict(given)])
    for rank, (other, other_given) in enumerate(said):
        if [row[:2] for row in other] != [row[:2] for row in said[0][0]] or other_given != said[0][1]:
            first, second = ({tuple(row[:2]) for row in part[0]} for part in (said[0], said[rank]))
            some = ", ".join(f"{name} ({dtype})" for name, dtype in sorted(first ^ second)[:5])
            raise ValueError(f"rank 0 and rank {rank} have other tensors to save: {some or 'their order, or per_node'}")
    shapes = {name: [part[i][2] for part, _ in said] for i, name in enumerate(tensors)}
    kinds = {name: [k for k in nodes if all(k in part[i][3] for part, _ in said)] for i, name in enumerate(tensors)}
    rows: Dict[str, str] = {}
    for name, kind in given.items():
        if kind not in kinds.get(name, []):
            raise ValueError(
                f"per_node: {name} has shapes {shapes.get(name)} on the ranks, not a row for each own node of type "
                f"{kind!r}"
            )
        rows[name] = kind
    # A weight may have as many rows as every rank has nodes, by chance, but then it is the same on all ranks.
    open_ = [name for name in tensors if name not in follows and name not in rows and kinds[name]]
    alike = {name for name in open_ if len(said) > 1 and all(shape == shapes[name][0] for shape in shapes[name])}
    alike = _equal({name: tensors[name] for name in tensors if name in alike}, _PREFIX_BYTES)
    alike = _equal({name: tensors[name] for name in tensors if name in alike})
    for name in open_:
        if name not in alike:
            if len(kinds[name]) > 1:
                raise ValueError(
                    f"{name} may have a row for each node of type {' or '.join(map(repr, kinds[name]))}: say which, "
                    f"with per_node={{{name!r}: {kinds[name][0]!r}}}"
                )
            rows[name] = kinds[name][0]
    rows.update({name: rows[leader] for name, leader in follows.items() if leader in rows})
    same = _equal({name: tensor for name, tensor in tensors.items() if name not in rows})
    return [
        Placed(
            name, ROWS if name in rows else SAME if name in same else RANK, t.dtype, shapes[name], rows.get(name, "")
        )
        for name, t in tensors.items()
    ]


def _equal(tensors: Mapping[str, Tensor], limit: Optional[int] = None) -> Set[str]:
    """The names of tensors that have the same values and shapes on all ranks. Collective.

    :param limit: bytes of each tensor to compare; all by default
    """
    if _session.current().world == 1 or not tensors:
        return set(tensors)
    alike, _ = equal_on_all([_digest(t, limit) for t in tensors.values()])
    return {name for name, equal in zip(tensors, alike) if equal}


def _digest(tensor: Tensor, limit: Optional[int]) -> int:
    """56 bits by which tensors are compared: of the first bytes, and of a quicker checksum of all."""
    found = hashlib.blake2b(f"{tuple(tensor.shape)}".encode(), digest_size=7)
    if tensor.numel():
        values = tensor.cpu().contiguous().view(-1).view(torch.uint8)[:limit]
        found.update(values[:_HASHED_BYTES].numpy().data)
        if len(values) > _HASHED_BYTES:
            found.update(columns.checksum(values).to_bytes(8, "little"))
    return int.from_bytes(found.digest(), "little")


def pieces(placed: Sequence[Placed], tensors: Mapping[str, Tensor], rank: int) -> List[Piece]:
    """What a rank writes. Of tensors that are the same on all ranks, each piece is written by the rank that has the
    fewest bytes of them so far."""
    found = []
    world = len(placed[0].shapes) if placed else 1
    load = [0] * world
    for one in placed:
        size = torch.empty(0, dtype=one.dtype).element_size()
        for first, end in _cuts(one.shapes[rank], size):
            if one.place == SAME:
                row = size * math.prod(one.shapes[rank][1:])
                writer = load.index(min(load))
                load[writer] += row * (end - first)
                if writer != rank:
                    continue
            values = tensors[one.name]
            at = sum(one.counts()[:rank]) + first if one.place == ROWS else first
            whole = not one.shapes[rank]
            found.append(
                Piece(
                    one.stored_name(rank),
                    None if whole else at,
                    one.stored_shape(rank),
                    values if whole else values[first:end],
                )
            )
    return found


def _cuts(shape: Sequence[int], size: int) -> List[Tuple[int, int]]:
    """Runs of rows of about ``PIECE_BYTES``; one of a tensor without dimensions, none of one without elements."""
    if not shape:
        return [(0, 1)]
    if 0 in shape:
        return []
    step = max(1, PIECE_BYTES // (size * math.prod(shape[1:])))
    return [(first, min(shape[0], first + step)) for first in range(0, shape[0], step)]
