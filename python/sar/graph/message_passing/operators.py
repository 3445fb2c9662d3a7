"""The functions of ``dgl.ops`` on graphs split over workers: messages and sums of tensors that are no columns."""

from __future__ import annotations

from typing import Any, Optional

from torch import Tensor

from sar.autograd import expression, message
from sar.autograd.compile import uncompiled
from sar.autograd.expression import Expr
from sar.errors import WholeGraphError
from sar.graph.edge_tensor.tensor import EdgeTensor, as_expr
from sar.graph.frames import is_lazy

from .cross_reduce import without_messages


@uncompiled
def reduced_messages(graph: Any, op: str, reduce: str, lhs: Optional[Tensor], rhs: Optional[Tensor]) -> Tensor:
    """``dgl.ops.gspmm``: messages of sources and edges, reduced at their destinations. Collective.

    :param graph: a graph manager of one relation
    :param op: "add", "sub", "mul", "div", "copy_lhs" or "copy_rhs"
    :param reduce: "sum", "max" or "min"
    :param lhs: ``[num_src, ...]``; None for "copy_rhs"
    :param rhs: ``[num_edges, ...]``; None for "copy_lhs"
    :returns: ``[num_dst, ...]``; in rows without messages 0 for sums, and infinite for extrema as in DGL
    :raises sar.WholeGraphError: a reversed graph
    """
    if getattr(graph, "is_reversed", False):
        raise WholeGraphError(
            "dgl.ops on a reversed graph", "reverse.update_all, with sum and mean, takes the same messages"
        )
    out = expression.evaluate(graph._relation(None), _written(graph, op, lhs, rhs, "u", "e"), reduce)
    return without_messages(out, graph.in_degrees(), reduce == "max") if reduce in ("max", "min") else out


@uncompiled
def values_of_edges(
    graph: Any, op: str, lhs: Optional[Tensor], rhs: Optional[Tensor], lhs_target: str = "u", rhs_target: str = "v"
) -> Tensor:
    """``dgl.ops.gsddmm``: a value of each edge from rows of its ends and its own, not computed before it is read.

    :param graph: a graph manager of one relation, or what ``dgl.reverse`` made of one
    :param op: "add", "sub", "mul", "div", "dot", "copy_lhs" or "copy_rhs"
    :param lhs: rows of ``lhs_target``: "u" sources, "v" destinations, "e" edges; None for "copy_rhs"
    :param rhs: likewise
    :returns: an edge tensor ``[num_edges, ...]``
    """
    return EdgeTensor(graph._relations[0], _written(graph, op, lhs, rhs, lhs_target, rhs_target))


def _written(
    graph: Any, op: str, lhs: Optional[Tensor], rhs: Optional[Tensor], lhs_target: str, rhs_target: str
) -> Expr:
    """A value of each edge as an expression of the relation as it is, which a reversed graph has turned."""
    counts = {"u": graph.num_src_nodes(), "v": graph.num_dst_nodes(), "e": graph.num_edges()}
    loaded = []
    for name, rows, side in (("lhs_data", lhs, lhs_target), ("rhs_data", rhs, rhs_target)):
        if rows is not None and op != {"lhs_data": "copy_rhs", "rhs_data": "copy_lhs"}[name]:
            if not is_lazy(rows):
                message.check(rows, counts[side], expression.SIDES[side], name)
            if getattr(graph, "is_reversed", False):
                side = {"u": "v", "v": "u", "e": "e"}[side]
            loaded.append(as_expr(rows, side))
    return loaded[0] if op.startswith("copy") else expression.binary(op, *loaded)
