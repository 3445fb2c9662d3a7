"""A graph with its edges turned round: what ``dgl.reverse`` gives for a graph manager.

Edges stay with the worker that owns their original destination, in the same order, so columns of edges fit both graphs.
Messages arrive at the original sources, on whatever worker those are.
"""

from __future__ import annotations

from contextlib import contextmanager
from math import prod
from typing import Any, Iterator, List, MutableMapping, Optional, Tuple

import torch
from torch import Tensor

from ..ops.message import check
from ..ops.transpose import sum_to_sources
from .frame import EdgeFrame, NodeFrame
from .lazy import EdgeTensor
from .relation import Relation

__all__ = ["ReversedGraph"]

SUPPORTED = "a reversed graph runs the messages copy_u, copy_e and u_mul_e with the reducers sum and mean"


class ReversedGraph:
    """One relation with sources and destinations exchanged.

    :param relation: the relation as it is
    :param square: sources and destinations are the same nodes
    """

    is_block = True
    is_homogeneous = True

    def __init__(self, relation: Relation, square: bool) -> None:
        source, name, target = relation.canonical
        self._relation = relation
        self.canonical_etypes: List[Tuple[str, str, str]] = [(target, name, source)]
        self._frame = NodeFrame(source, relation.num_dst, relation.num_src, square)
        self._edges = EdgeFrame(name, relation.num_edges)

    @property
    def srcdata(self) -> MutableMapping[str, Any]:
        """Columns ``[num_src, ...]`` of sources: the destinations of the original."""
        return self._frame.srcdata

    @property
    def dstdata(self) -> MutableMapping[str, Any]:
        """Columns ``[num_dst, ...]`` of destinations: the sources of the original."""
        return self._frame.dstdata

    @property
    def ndata(self) -> MutableMapping[str, Any]:
        """Columns of nodes."""
        return self._frame.ndata

    @property
    def edata(self) -> MutableMapping[str, Any]:
        """Columns ``[num_edges, ...]`` of the worker's edges, in the order of the original."""
        return self._edges

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def num_edges(self) -> int:
        """Edges of this worker."""
        return self._relation.num_edges

    def num_src_nodes(self) -> int:
        """Own sources."""
        return self._relation.num_dst

    def num_dst_nodes(self) -> int:
        """Own destinations."""
        return self._relation.num_src

    number_of_edges = num_edges
    num_nodes = number_of_nodes = number_of_dst_nodes = num_dst_nodes
    number_of_src_nodes = num_src_nodes

    def in_degrees(self) -> Tensor:
        """int64 ``[num_dst]``: edges of all workers."""
        return self._relation.degrees(out=True)

    def out_degrees(self) -> Tensor:
        """int64 ``[num_src]``."""
        return self._relation.degrees(out=False)

    @contextmanager
    def local_scope(self) -> Iterator[None]:
        """Columns set inside are gone afterwards."""
        nodes, edges = self._frame.snapshot(), self._edges.snapshot()
        try:
            yield
        finally:
            self._frame.restore(nodes)
            self._edges.restore(edges)

    def update_all(self, message_func: Any, reduce_func: Any, apply_node_func: Any = None) -> None:
        """Sends messages along the reversed edges. Collective.

        :param message_func: ``copy_e``, ``copy_u`` or ``u_mul_e`` with one weight per edge or as many as columns
        :param reduce_func: ``sum`` or ``mean``; the result ``[num_dst, ...]`` goes to ``dstdata``
        :raises NotImplementedError: anything else
        :raises KeyError, TypeError, ValueError: columns that are missing or do not fit
        """
        name, reducer = getattr(message_func, "name", None), getattr(reduce_func, "name", None)
        known = name in ("copy_u", "copy_e", "u_mul_e", "e_mul_u") and reducer in ("sum", "mean")
        if not known or apply_node_func is not None:
            raise NotImplementedError(f"{SUPPORTED}, not {name or message_func!r} with {reducer or reduce_func!r}")
        relation, e, v = self._relation, None, None
        if name == "copy_e":
            e = self._edge_column(message_func.in_field)
        elif name == "copy_u":
            v = self._source_column(message_func.in_field)
        else:
            fields = message_func.lhs_field, message_func.rhs_field
            u_field, e_field = fields if name == "u_mul_e" else fields[::-1]
            e, v = self._edge_column(e_field), self._source_column(u_field)
        shape = torch.broadcast_shapes(*(t.shape[1:] for t in (e, v) if t is not None))
        one_weight = e is not None and v is not None and prod(e.shape[1:]) == 1
        e = e.reshape(-1, 1) if e is not None and one_weight else _flat(e, shape)
        out = sum_to_sources(relation, e, _flat(v, shape))
        if reducer == "mean":
            out = out / relation.degrees(out=True).clamp(min=1).to(out.dtype).unsqueeze(1)
        self._frame.dstdata[reduce_func.out_field] = out.view(relation.num_src, *shape)

    def _edge_column(self, field: str) -> Tensor:
        value = self._edges[field]
        value = value.materialize() if isinstance(value, EdgeTensor) else value
        check(value, self._relation.num_edges, "edges", f"edata[{field!r}]")
        return value

    def _source_column(self, field: str) -> Tensor:
        value = self._frame.srcdata[field]
        check(value, self._relation.num_dst, "source nodes", f"srcdata[{field!r}]")
        return value


def _flat(value: Optional[Tensor], shape: torch.Size) -> Optional[Tensor]:
    """Rows of the broadcast feature shape, each in one dimension."""
    if value is None:
        return None
    rows, features = len(value), value.shape[1:]
    padded = value.reshape(rows, *(1,) * (len(shape) - len(features)), *features)
    return padded.expand(rows, *shape).reshape(rows, prod(shape))
