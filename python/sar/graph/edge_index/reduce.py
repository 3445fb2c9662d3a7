"""Reduces tensors of edges at the nodes that edges end at, or begin at."""

from __future__ import annotations

from math import prod
from typing import Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from sar._engine.storage import computed_in
from sar.autograd import expression
from sar.autograd.compile import uncompiled
from sar.autograd.dtypes import FLOATS
from sar.autograd.expression import Expr, evaluate, load
from sar.autograd.transpose import sum_to_sources
from sar.graph.edge_tensor.calls import remade
from sar.graph.edge_tensor.over_sources import source_maximum
from sar.graph.edge_tensor.tensor import EdgeTensor, values
from sar.graph.relation import Relation
from sar.graph.udf.edge_function import run

from .edges import SplitEdges


@uncompiled
def reduced(edges: SplitEdges, side: str, src: Tensor, dim: int, op: str) -> Tensor:
    """Sum, mean, maximum or minimum over the edges of each own node. Collective for edge tensors, and for sources.

    :param side: "v": over in-edges; "u": over out-edges
    :param src: edges in dimension ``dim``
    :param op: "sum", "mean", "max" or "min"
    :returns: own nodes in that dimension; 0 in those without edges
    """
    edges.check_graph(src)
    if side == "u":
        return _at_sources(edges.relation, src, dim, op)
    moved = src if dim == 0 else values(src).movedim(dim, 0)
    if moved.dtype not in FLOATS:
        return _placed(_numbers(edges, values(moved), op), dim)
    messages = moved if isinstance(moved, EdgeTensor) else edges.tensor(load("e", moved))
    op = f"{op}_shared" if op in ("max", "min") else op
    relation = edges.relation
    x = messages.computation
    out = _expression(relation, x, op) if messages.in_engine else run(relation, x, op)
    return _placed(out, dim)


def _placed(out: Tensor, dim: int) -> Tensor:
    """Rows of nodes in dimension ``dim``, in memory as torch's sums by an index have them."""
    return out if dim == 0 else out.movedim(0, dim).contiguous()


def _numbers(edges: SplitEdges, src: Tensor, op: str) -> Tensor:
    """Integers and other dtypes, whose sums autograd knows. Local."""
    rows, n = edges.numbers()[1], edges.rows("v")
    out = src.new_zeros((n, *src.shape[1:]))
    if op in ("sum", "mean"):
        out = out.index_add(0, rows, src)
        degrees = edges.relation.degrees(out=False).clamp(min=1).view(-1, *(1,) * (src.dim() - 1))
        return out if op == "sum" else out / degrees
    index = rows.view(-1, *(1,) * (src.dim() - 1)).expand_as(src)
    return out.scatter_reduce(0, index, src, f"a{op}", include_self=False)


def _at_sources(relation: Relation, src: Tensor, dim: int, op: str) -> Tensor:
    rows = values(src).movedim(dim, 0)
    features = rows.shape[1:]
    if op in ("max", "min"):
        flat = rows.reshape(relation.num_edges, prod(features))
        flat = flat.to(computed_in(flat.dtype))  # equal values are counted
        most = source_maximum(relation, flat if op == "max" else -flat).view(relation.num_src, *features)
        return _placed((most if op == "max" else -most).to(rows.dtype), dim)
    wide = rows.to(computed_in(rows.dtype)) if rows.dtype in FLOATS else rows.double()
    out = sum_to_sources(relation, wide.reshape(relation.num_edges, prod(features)), None)
    out = out.view(relation.num_src, *features)
    out = out if rows.dtype in FLOATS else out.to(rows.dtype)
    if op == "mean":
        out = out / relation.degrees(out=True).clamp(min=1).view(-1, *(1,) * len(features))
    return _placed(out.to(rows.dtype) if rows.dtype in FLOATS else out, dim)


# ---- products ------------------------------------------------------------------


class Product(NamedTuple):
    """Factors of a message by where they come from. ``rest``: whatever is neither of sources nor of destinations."""

    u: List[Tensor]
    v: List[Tensor]
    rest: List[Expr]


def _expression(relation: Relation, expr: Expr, op: str) -> Tensor:
    """A reduced expression. In sums of products, factors of destinations are taken out, and those of sources are
    multiplied before they travel; what is left has kernels of its own. Terms of destinations are taken out of means."""
    expr = flat_shapes(expr)
    if op == "mean" and expr.op == "add" and expr.dtype != torch.bfloat16:  # whose sums are rounded once
        for rest, end in (expr.args, expr.args[::-1]):
            if end.op == "load" and end.side == "v" and end.shape == expr.shape == rest.shape:
                assert end.tensor is not None
                return _expression(relation, rest, op) + _where_edges_end(relation, end.tensor)
    product = Product([], [], [])
    if op not in ("sum", "mean") or expr.op != "mul" or not _factors(expr, product):
        return evaluate(relation, expr, op)
    if any(t.dtype == torch.bfloat16 for t in product.u):  # rows that travel stay bfloat16, and products unrounded
        return evaluate(relation, expr, op)
    width = len(expr.shape)
    u = _multiplied(product.u, width)
    if len(product.rest) > 1 or tuple(u.shape[1:]) != expr.shape:
        return evaluate(relation, expr, op)
    inner = load("u", u)
    if product.rest:
        inner = Expr("mul", expr.shape, expr.dtype, (inner, product.rest[0]))
    out = evaluate(relation, inner, op)
    return out * _multiplied(product.v, width) if product.v else out


def _where_edges_end(relation: Relation, tensor: Tensor) -> Tensor:
    """Rows of destinations, 0 where no edge ends."""
    none = relation.degrees(out=False) == 0
    return tensor.masked_fill(none.view(-1, *(1,) * (tensor.dim() - 1)), 0) if bool(none.any()) else tensor


def _factors(expr: Expr, product: Product) -> bool:
    """Sorts the factors of a product; False where there is none of sources."""
    open_ = [expr]
    while open_:
        x = open_.pop()
        if x.op == "mul":
            open_.extend(reversed(x.args))
        elif x.op == "load" and x.side in "uv":
            assert x.tensor is not None
            (product.u if x.side == "u" else product.v).append(x.tensor)
        else:
            product.rest.append(x)
    # one factor of sources beside one thing else is a message that the engine has already
    return bool(product.u) and (len(product.u) > 1 or bool(product.v))


def _multiplied(tensors: List[Tensor], width: int) -> Tensor:
    """The product, narrow factors first, with ``width`` dimensions of features."""
    out: Optional[Tensor] = None
    for t in sorted(tensors, key=lambda t: prod(t.shape[1:])):
        t = t.reshape(t.shape[0], *(1,) * (width - t.dim() + 1), *t.shape[1:])
        out = t if out is None else out * t
    assert out is not None
    return out


SHAPE_FREE = frozenset(["softmax", "dropout", *expression.UNARY])
"""Operations that work number by number, or by columns of edges, so that shapes may change before them."""


def flat_shapes(expr: Expr) -> Expr:
    """The same expression with changes of shape moved to the tensors that are read, where that is possible.

    ``alpha.unsqueeze(-1)`` after a softmax then is the softmax of logits that have that shape, which is the form of
    attention that the engine has loops for.
    """
    return expression.as_type(_shaped(expr, expr.shape, {}), expr.dtype)


def _shaped(x: Expr, shape: Tuple[int, ...], done: Dict[Tuple[int, Tuple[int, ...]], Expr]) -> Expr:
    # in the module, since a nested function that calls itself would keep the tensors until cycles are collected
    key = (id(x), shape)
    if key not in done:
        done[key] = _shaped_anew(x, shape, done)
    return done[key]


def _shaped_anew(x: Expr, shape: Tuple[int, ...], done: Dict[Tuple[int, Tuple[int, ...]], Expr]) -> Expr:
    if x.op == "reshape":
        return _shaped(x.args[0], shape, done)
    if shape == x.shape:
        return remade(x, [_shaped(a, a.shape, done) for a in x.args], shape) if x.args else x
    if x.op == "load" and x.tensor is not None:
        return load(x.side, x.tensor.reshape(x.tensor.shape[0], *shape))
    alike = [a for a in x.args if a.shape == x.shape]
    single = [a for a in x.args if a.shape == () and a.op == "param"]
    binary = x.op in ("add", "sub", "mul", "div") and len({*map(id, alike), *map(id, single)}) == len(x.args)
    if x.op in SHAPE_FREE or (binary and alike):
        return remade(x, [a if a in single else _shaped(a, shape, done) for a in x.args], shape)
    return Expr("reshape", shape, x.dtype, (_shaped(x, x.shape, done),))
