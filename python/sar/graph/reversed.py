"""Reversed graphs: what ``dgl.reverse`` returns for a graph manager.

Edges stay on the worker that owns their original destination, in the same order, so edge columns fit both graphs.
Messages are sent to the original sources, on whichever worker owns them, and reductions are sums there. Attention on a
reversed graph therefore materializes one row per edge, in forward and backward.
"""

from __future__ import annotations

from math import prod
from typing import Any, ContextManager, List, MutableMapping, Optional, Tuple

import torch
from torch import Tensor

from sar._engine.storage import computed_in
from sar.autograd.compile import uncompiled
from sar.autograd.message import check, per_head
from sar.autograd.transpose import sum_to_sources
from sar.data.partition_book import CanonicalEtype

from .columns import pick_degrees
from .degrees import for_caller
from .edge_tensor.tensor import values
from .frames import EdgeFrame, NodeFrame, kept_columns
from .message_passing import builtin
from .message_passing.edge_space import LABELS, EdgeSpace
from .message_passing.update import edge_function, edge_values, set_edges
from .refused import IsBlock, Refused, refusal, refuse_smallest
from .relation import Relation
from .state import GraphState
from .types import ALL
from .udf.batches import EdgeBatch

OTHER_SIDE = {"u": "v", "v": "u", "e": "e"}


class ReversedGraph(Refused):
    """One relation with sources and destinations exchanged.

    :param rows: the graph
    :param relation: the relation as it is
    :param square: sources and destinations are the same nodes
    """

    is_block = IsBlock()
    is_homogeneous = True
    is_reversed = True
    """Messages go to what the relation has as sources."""

    def __init__(self, state: GraphState, relation: Relation, square: bool) -> None:
        source, name, target = relation.canonical
        self._relation = relation
        self._relations = [relation]
        self.canonical_etypes: List[CanonicalEtype] = [(target, name, source)]
        self.etypes = [name]
        self.srctypes, self.dsttypes = [target], [source]
        self.ntypes = [target] if source == target else [target, source]
        self._frame = NodeFrame(source, relation.num_dst, relation.num_src, square)
        self._edges = EdgeFrame(name, relation.num_edges)
        self._space = _ReversedEdgeSpace(state, relation, self._frame, self._edges)

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
        refuse_smallest("graph.ndata")
        return self._frame.ndata

    @property
    def edata(self) -> MutableMapping[str, Any]:
        """Columns ``[num_edges, ...]`` of the worker's edges, in the order of the original."""
        refuse_smallest("graph.edata")
        return self._edges

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

    def in_degrees(self, v: Any = ALL) -> Any:
        """int64 ``[num_dst]``: edges of all workers; of the rows ``v`` where given. Collective for the sources of the
        edges of a graph."""
        degrees = for_caller(self, self._relation.degrees(out=True))
        return pick_degrees(degrees, v, self._relation.canonical[0])

    def out_degrees(self, u: Any = ALL) -> Any:
        """int64 ``[num_src]``; of the rows ``u`` where given, collectively as :meth:`in_degrees`."""
        square = self._frame.square
        return pick_degrees(self._relation.degrees(out=False), u, self._relation.canonical[2] if square else None)

    def local_var(self) -> ReversedGraph:
        """The same graph with columns of its own: what is set there does not appear here."""
        made = ReversedGraph(self._space.state, self._relation, self._frame.square)
        made._frame.restore(self._frame.snapshot())
        made._edges.restore(self._edges.snapshot())
        return made

    clone = local_var

    def local_scope(self) -> ContextManager[None]:
        """Columns set inside are gone afterwards."""
        return kept_columns([self._frame, self._edges])

    @uncompiled
    def update_all(self, message_func: Any, reduce_func: Any, apply_node_func: Any = None) -> None:
        """Sends messages along the reversed edges. Collective.

        :param message_func: a built-in message, or a Python function, as a graph manager takes them
        :param reduce_func: ``sum`` or ``mean``; the result ``[num_dst, ...]`` goes to ``dstdata``
        :raises NotImplementedError: another reducer, or ``apply_node_func``
        :raises KeyError, TypeError, ValueError: columns that are missing or do not fit
        """
        sent, received = builtin.message(message_func), builtin.reducer(reduce_func)
        if received is None or received.op not in ("sum", "mean") or apply_node_func is not None:
            raise refusal(
                f"update_all({builtin.called(reduce_func)}) of a reversed graph",
                "it reduces with sum and mean, without apply_node_func. For others reverse the graph before it is "
                "partitioned",
            )
        space, relation = self._space, self._relation
        e: Optional[Tensor]
        v: Optional[Tensor]
        if sent is None:
            sender = _reversed_function(message_func)
            field = received.msg_field
            e, v = edge_function(space, sender, None, field)[field], None
        else:
            builtin.check_pair(sent, received)
            e, v = self._factors(_reversed_message(sent))
        shape = torch.broadcast_shapes(*(t.shape[1:] for t in (e, v) if t is not None))
        if e is not None and v is not None:
            heads, e = per_head(e, tuple(shape))
            e = e.reshape(relation.num_edges, heads)
        else:
            e = _flat(e, shape)
        v = _flat(v, shape)
        if received.op == "mean":  # rounded once, after the division
            wide = [t if t is None else t.to(computed_in(t.dtype)) for t in (e, v)]
            total = sum_to_sources(relation, *wide)
            mean = total / relation.degrees(out=True).clamp(min=1).to(total.dtype).unsqueeze(1)
            both = [t.dtype for t in (e, v) if t is not None]
            out = mean.to(torch.promote_types(both[0], both[-1]))
        else:
            out = sum_to_sources(relation, e, v)
        self._frame.dstdata[reduce_func.out_field] = out.view(relation.num_src, *shape)

    @uncompiled
    def apply_edges(self, func: Any, edges: Any = ALL) -> None:
        """Computes columns of edges. Collective.

        :param func: a built-in message, whose result is an :class:`~sar.graph.edge_tensor.tensor.EdgeTensor`, or a
            Python function
        :param edges: positions of the edges to compute, or a mask, as a graph manager takes them
        :raises KeyError, TypeError, ValueError: as :meth:`update_all`
        """
        sent = builtin.message(func)
        set_edges(self._space, sent and _reversed_message(sent), _reversed_function(func), edges)

    def _factors(self, sent: builtin.Message) -> Tuple[Optional[Tensor], Optional[Tensor]]:
        """A message as a product of one value for each edge and one for each of its (reversed) sources."""
        space = self._space
        if sent.name in ("copy_u", "copy_e") or (sent.op == "mul" and {t.side for t in sent.terms} == {"v", "e"}):
            found = {side: space.column(side, field) for side, field in sent.terms}
            for side, field in sent.terms:
                check(found[side], *space.count(side), space.label(side, field))
            return found.get("e"), found.get("v")
        return values(edge_values(space, sent)), None


class _ReversedEdgeSpace(EdgeSpace):
    """The relation as it is: "u" are its sources, which the reversed graph has as destinations."""

    def __init__(self, state: GraphState, relation: Relation, frame: NodeFrame, edges: EdgeFrame) -> None:
        super().__init__(state, relation)
        self.target = self.source = frame
        self.edge = edges

    def columns(self, side: str) -> MutableMapping[str, Any]:
        return {"u": self.target.dstdata, "v": self.source.srcdata, "e": self.edge}[side]

    def label(self, side: str, name: str) -> str:
        return f"{LABELS[OTHER_SIDE[side]]}[{name!r}]"


def _reversed_message(sent: builtin.Message) -> builtin.Message:
    """The same message seen from the relation as it is."""
    terms = tuple(term._replace(side=OTHER_SIDE[term.side]) for term in sent.terms)
    return sent._replace(terms=terms)


def _reversed_function(function: Any) -> Any:
    """A Python function of edges, called with the ends exchanged."""

    def turned(edges: EdgeBatch) -> Any:
        return function(edges.turned())

    turned.__qualname__ = builtin.called(function)
    return turned


def _flat(value: Optional[Tensor], shape: torch.Size) -> Optional[Tensor]:
    """Rows of the broadcast feature shape, each in one dimension."""
    if value is None:
        return None
    rows, features = len(value), value.shape[1:]
    padded = value.reshape(rows, *(1,) * (len(shape) - len(features)), *features)
    return padded.expand(rows, *shape).reshape(rows, prod(shape))
