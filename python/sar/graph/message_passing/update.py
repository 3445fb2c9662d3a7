"""Message passing: ``update_all`` and its relatives."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Union

import torch
from torch import Tensor

from sar.autograd import expression, message as messages
from sar.autograd.compile import uncompiled
from sar.autograd.dtypes import FLOATS
from sar.autograd.expression import Expr
from sar.data.partition_book import CanonicalEtype
from sar.graph.edge_tensor.tensor import EdgeTensor, as_expr
from sar.graph.frames import is_lazy
from sar.graph.queries import GraphQueries
from sar.graph.types import ALL, Edges, Etype, is_all
from sar.graph.udf.batches import EdgeFunction, NodeBatch, NodeFunction, ReduceFunction, checked

from . import builtin
from .cross_reduce import Part, check_cross_reducer, merged, without_messages
from .edge_space import EdgeSpace

Functions = Sequence[Union[EdgeFunction, ReduceFunction, None]]
"""Of a relation: a message function, a reduce function, and perhaps one of nodes."""


class MessagePassing(GraphQueries):
    """``update_all`` and its relatives, for graph managers to inherit."""

    @uncompiled
    def update_all(
        self,
        message_func: EdgeFunction,
        reduce_func: ReduceFunction,
        apply_node_func: Optional[NodeFunction] = None,
        etype: Optional[Etype] = None,
    ) -> None:
        """Sends messages along all edges and reduces them at their destinations. Collective.

        :param message_func: a built-in message of ``dgl.function`` or :mod:`sar.function`, or a Python function. A
            built-in reads ``srcdata``, ``dstdata`` and ``edata`` (float32 or float64, ``[rows, ...]``; what follows the
            rows broadcasts). A Python function gets an :class:`~sar.graph.udf.batches.EdgeBatch` and returns ``{name:
            tensor}`` with one row per edge. It runs once; what it computes for each edge runs on blocks of edges of
            ``Config.block_bytes``, in forward and, unless ``Config.disable_sr`` is set, again in backward. Where it
            looks at several edges it sees those of this worker. It must not call collectives
        :param reduce_func: ``sum``, ``mean``, ``max`` or ``min``, or a Python function of nodes with their ``mailbox``,
            which gets nodes of equal in-degree at a time, messages in the order of edges. Results, ``[num_dst, ...]``,
            go to ``dstdata``. Rows without edges give 0. Of equal messages, the gradient of max and min goes to the
            first, in the order of edges
        :param apply_node_func: gets all destination nodes with their columns and results; what it returns goes to
            ``dstdata`` in place of the results
        :param etype: the relation. ``None`` where there are several means all of them: built-in functions, and results
            of one node type are combined by the reducer, which must not be ``mean``
        :raises KeyError: a column or the relation is missing; the error lists those there are
        :raises TypeError: dtype or device of a column, or a function returned no tensors by name
        :raises ValueError: shape of a column or of what a function returned, the reducer reads another field than the
            message writes, or workers' columns or results differ
        """
        if etype is None and len(self._relations) > 1:
            received = _all_built_in(message_func, reduce_func)
            both: Functions = (message_func, reduce_func)
            self.multi_update_all({r.canonical: both for r in self._relations}, received.op, apply_node_func)
            return
        space = self._space(etype)
        space.results().update(passed(space, message_func, reduce_func, apply_node_func))

    @uncompiled
    def multi_update_all(
        self,
        etype_dict: Union[Mapping[str, Functions], Mapping[CanonicalEtype, Functions]],
        cross_reducer: Union[str, Callable[[List[Tensor]], Tensor]],
        apply_node_func: Optional[NodeFunction] = None,
    ) -> None:
        """Sends messages over several relations and combines what each node type gets from them. Collective.

        :param etype_dict: by relation, ``(message, reducer)`` or ``(message, reducer, apply_node_func)`` as
            :meth:`update_all` takes them; the same relations in the same order on every worker
        :param cross_reducer: ``"sum"``, ``"mean"``, ``"max"``, ``"min"``, ``"stack"`` (along a new dimension 1, in the
            order of :attr:`canonical_etypes`), or a function of a list of ``[num_dst, ...]``. A node without messages
            over a relation counts there with 0, for max and min reducers not at all
        :param apply_node_func: runs on each node type that got something, after its results were stored
        :raises ValueError: an unknown cross reducer, or an entry that is no tuple of 2 or 3
        :raises KeyError, TypeError: as :meth:`update_all`
        """
        check_cross_reducer(cross_reducer)
        parts: Dict[str, List[Part]] = {}
        infinite: Set[str] = set()
        spaces: Dict[str, EdgeSpace] = {}
        for etype, given in etype_dict.items():
            functions = list(given) if isinstance(given, (tuple, list)) else [given]
            if not 2 <= len(functions) <= 3:
                raise ValueError(f"relation {etype!r}: give (message, reducer) or (message, reducer, apply_node_func)")
            message_func, reduce_func, apply_func = [*functions, None][:3]
            space = self._space(etype)
            kind = space.etype[2]
            received = builtin.reducer(reduce_func)
            if received is not None and received.op in ("max", "min"):
                infinite.add(kind)
            results = passed(space, message_func, reduce_func, apply_func, raw=True)
            number = [r.canonical for r in self._relations].index(space.etype)
            parts.setdefault(kind, []).append(Part(number, results))
            spaces[kind] = space
        for kind, space in spaces.items():
            out = merged(parts[kind], cross_reducer)
            if kind in infinite:
                out = {name: t.masked_fill(t.isinf(), 0) for name, t in out.items()}
            space.results().update(out)
            if apply_node_func is not None:
                self.apply_nodes(apply_node_func, ntype=kind)

    @uncompiled
    def apply_edges(self, func: EdgeFunction, edges: Edges = ALL, etype: Optional[Etype] = None) -> None:
        """Computes columns of edges. Collective.

        :param func: a built-in message, whose result is an :class:`~sar.graph.edge_tensor.tensor.EdgeTensor`, or a
            Python function as :meth:`update_all` takes it. Results, ``[num_edges, ...]``, go to ``edata``
        :param edges: positions of the edges to compute, int64 ``[n]``, or a mask; other rows of the column stay, or are
            0 if it is new. Workers may name different numbers of edges, but all must take part
        :param etype: the relation. ``None`` where there are several means all of them, for built-in messages
        :raises KeyError, TypeError, ValueError: as :meth:`update_all`
        """
        if etype is None and len(self._relations) > 1:
            if builtin.message(func) is None or not is_all(edges):
                raise KeyError(f"this graph has several relations, name one of {self.canonical_etypes}")
            for relation in self._relations:
                self.apply_edges(func, etype=relation.canonical)
            return
        set_edges(self._space(etype), builtin.message(func), func, edges)

    @uncompiled
    def apply_nodes(self, func: NodeFunction, v: str = ALL, ntype: Optional[str] = None) -> None:
        """Sets columns of destination nodes to what a function returns for all of them.

        :param func: gets a :class:`~sar.graph.udf.batches.NodeBatch` and returns ``{name: [num_dst, ...]}``
        :param v: only all nodes are supported
        """
        if not (isinstance(v, str) and v == ALL):
            raise NotImplementedError("apply_nodes runs on all nodes of a type: leave v out")
        kind = self._ntype(ntype)
        frame, nodes = self._state.frames[kind], self._state.nodes[kind]
        batch = NodeBatch(nodes.num_dst, kind, frame.dstdata, lambda: nodes.rows(dst=True) + nodes.first)
        (frame.ndata if frame.square else frame.dstdata).update(checked(func, func(batch), nodes.num_dst, "nodes"))

    def _space(self, etype: Optional[Etype]) -> EdgeSpace:
        return EdgeSpace(self._state, self._relation(etype))


def passed(
    space: EdgeSpace, message_func: Any, reduce_func: Any, apply_node_func: Any, raw: bool = False
) -> Dict[str, Tensor]:
    """What one relation's messages come to: columns of the destinations by name.

    :param raw: leave maxima and minima infinite where there are no messages
    """
    sent, received = builtin.message(message_func), builtin.reducer(reduce_func)
    if received is None or sent is None:
        from .functions import recorded, reduced_by_function

        if received is None:
            results = reduced_by_function(space, message_func, sent, reduce_func)
        else:
            field = received.msg_field
            results = {received.out_field: recorded(space, message_func, field).results(received.op)[field]}
    else:
        builtin.check_pair(sent, received)
        results = {received.out_field: expression.evaluate(space.relation, _written(space, sent), received.op)}
    if raw and received is not None and received.op in ("max", "min"):
        degrees = space.relation.degrees(out=False)
        results = {k: without_messages(out, degrees, received.op == "max") for k, out in results.items()}
    if apply_node_func is None:
        return results
    data: Mapping[str, Tensor] = {**space.target.dstdata, **results}
    n = space.relation.num_dst
    batch = NodeBatch(n, space.etype[2], data, lambda: space.ids("v"))
    return checked(apply_node_func, apply_node_func(batch), n, "nodes")


def edge_function(
    space: EdgeSpace, function: Any, chosen: Optional[Tensor], wanted: Optional[str] = None
) -> Dict[str, Tensor]:
    """A Python function of edges: its results, or the one wanted, of those chosen. Collective."""
    from .functions import recorded  # few scripts use it

    return recorded(space, function, wanted, chosen).results(None)


# ---- built-in functions ----------------------------------------------------


def edge_values(space: EdgeSpace, sent: builtin.Message) -> Tensor:
    """A built-in message as a column of edges, not computed."""
    if sent.name == "copy_e":
        column: Tensor = space.edge[sent.terms[0].field]
        if is_lazy(column) or column.dtype not in FLOATS or column.device.type != "cpu":
            return column
    return EdgeTensor(space.relation, _written(space, sent))


def _written(space: EdgeSpace, sent: builtin.Message) -> Expr:
    """A built-in message as an expression.

    :raises KeyError, TypeError, ValueError: a column is missing or does not fit
    """
    loaded = [_operand(space, term) for term in sent.terms]
    if sent.op is None:
        return loaded[0]
    try:
        return expression.binary(sent.op, *loaded)
    except (TypeError, ValueError) as error:
        shapes = [(space.count(term.side)[0], *x.shape) for term, x in zip(sent.terms, loaded)]
        kinds = shapes if isinstance(error, ValueError) else [x.dtype for x in loaded]
        both = " and ".join(f"{space.label(*term)} is {kind}" for term, kind in zip(sent.terms, kinds))
        short, long = sorted(shapes, key=len)
        per_head = isinstance(error, ValueError) and short[1:] == long[1:-1]
        hint = f"; for one weight per head give it as {(*short, 1)}" if per_head else ""
        raise type(error)(f"{both}: {error}{hint}") from None


def _operand(space: EdgeSpace, term: builtin.Term) -> Expr:
    value = space.columns(term.side)[term.field]
    if not is_lazy(value):
        messages.check(value, *space.count(term.side), space.label(term.side, term.field))
    return as_expr(value, term.side)


def _all_built_in(message_func: Any, reduce_func: Any) -> builtin.Reducer:
    """The reducer, if both functions can run over all relations at once."""
    received = builtin.reducer(reduce_func)
    if builtin.message(message_func) is None or received is None:
        raise NotImplementedError(
            "Python functions run over one relation at a time: give etype, or use multi_update_all"
        )
    if received.op == "mean":
        raise NotImplementedError(
            "the mean over all messages of several relations is not defined: use multi_update_all, or give etype"
        )
    return received


def chosen_edges(edges: Any, num_edges: int) -> Optional[Tensor]:
    """Positions of edges, int64; ``None`` for all.

    :raises ValueError: a position that is not there
    :raises NotImplementedError: pairs of ends
    """
    if is_all(edges):
        return None
    if isinstance(edges, tuple):
        raise NotImplementedError(
            "edges are named by their positions among this worker's in-edges, or by a mask of them, not by pairs of "
            "nodes: graph.edges(form='all') gives the ends of each position"
        )
    given = torch.as_tensor(edges)
    if given.dtype == torch.bool:
        given = torch.nonzero(given).view(-1)
    given = given.to(torch.int64).view(-1)
    if len(given) and (int(given.min()) < 0 or int(given.max()) >= num_edges):
        raise ValueError(f"edges are positions 0 .. {num_edges - 1} of this worker's in-edges, or a mask of them")
    return given


def set_edges(space: EdgeSpace, sent: Optional[builtin.Message], function: Any, edges: Edges) -> None:
    """Sets columns of edges to what a message gives, or some rows: others stay, or are 0 in a new column. Collective.

    :param sent: the message, if it is built in
    :param function: the message, if it is in Python
    """
    chosen = chosen_edges(edges, space.relation.num_edges)
    results = {sent.out_field: edge_values(space, sent)} if sent else edge_function(space, function, chosen)
    if chosen is not None:
        picked = {name: value.index_select(0, chosen) if sent else value for name, value in results.items()}
        results = {name: with_rows(space, "e", name, value, chosen) for name, value in picked.items()}
    space.edge.update(results)


def with_rows(space: EdgeSpace, side: str, name: str, value: Tensor, chosen: Tensor) -> Tensor:
    """A column with some rows replaced; 0 in the others if it is new."""
    shape = (space.count(side)[0], *value.shape[1:])
    old = space.column(side, name) if name in space.columns(side) else value.new_zeros(shape)
    if old.shape != shape or old.dtype != value.dtype:
        raise ValueError(
            f"{space.label(side, name)} is {old.dtype} {tuple(old.shape)}; it cannot take rows that are {value.dtype} "
            f"{tuple(value.shape[1:])}"
        )
    return old.index_copy(0, chosen, value)
