"""Linear maps of rows at the ends of edges, computed once for each node instead of once for each edge.

A linear map of tensors side by side, ``linear(cat([x_i, x_j - x_i], -1))``, is a sum of linear maps of nodes:
``x W_i' + b`` at destinations and ``x W_j'`` at sources. That is an expression of the engine, and no row is made for
an edge. Weights of one tensor are added up first. What lies between the concatenation and the linear map may pick from
other dimensions than the last, as ``h[:, tower]`` does.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch
import torch.nn.functional as F
from torch import Tensor

from sar.autograd import expression
from sar.autograd.autocast import product_dtype
from sar.autograd.dtypes import FLOATS
from sar.autograd.expression import Expr, load

from .base import BaseEdgeTensor

Parts = Tuple[Expr, ...]
"""Expressions side by side in the last dimension."""

Found = Union[None, Expr, Parts]
"""None where a function has to run edge by edge."""


def on_nodes(func: Any, args: Any, kwargs: Any) -> Found:
    """What a function of tensors of edges gives, as an expression of functions of nodes."""
    handler = HANDLERS.get(func)
    return None if handler is None else handler(*args, **kwargs)


# ---- side by side ------------------------------------------------------------------


def _cat(tensors: Any, dim: int = 0, *, axis: Optional[int] = None, out: Any = None) -> Found:
    dim = dim if axis is None else axis
    parts: List[Expr] = []
    edges = next(t.relation.num_edges for t in tensors if isinstance(t, BaseEdgeTensor))
    for t in tensors:
        found = t.parts() if isinstance(t, BaseEdgeTensor) else _of_edges(t, edges)
        if out is not None or found is None or not 2 <= t.dim() == tensors[0].dim() or dim not in (-1, t.dim() - 1):
            return None
        parts += found
    same = len({(p.shape[:-1], p.dtype) for p in parts}) == 1
    return tuple(parts) if same else None


def _of_edges(tensor: Tensor, edges: int) -> Optional[Parts]:
    fits = tensor.dim() > 1 and tensor.shape[0] == edges and tensor.dtype in FLOATS
    return (load("e", tensor),) if fits else None


def _stack(tensors: Any, dim: int = 0, *, out: Any = None) -> Found:
    """Sums and the like, all of one form, with tensors of one end in the same places."""
    all_parts = [t.parts() if isinstance(t, BaseEdgeTensor) else None for t in tensors]
    if out is not None or not all(p is not None and len(p) == 1 for p in all_parts):
        return None
    dims = tensors[0].dim() + 1
    if not -dims <= dim < dims or dim % dims == 0 or any(t.shape != tensors[0].shape for t in tensors):
        return None
    exprs = [p[0] for p in all_parts if p is not None]
    if len(exprs) == 1:
        shape = list(exprs[0].shape)
        shape.insert(dim % dims - 1, 1)
        return expression.reshape(exprs[0], shape)
    return _each(exprs, lambda found: torch.stack(found, dim % dims))


SAME_FORM = frozenset(["add", "sub", "mul", "div", *expression.UNARY])


def _each(exprs: Sequence[Expr], function: Callable[[List[Tensor]], Tensor]) -> Optional[Expr]:
    """Expressions of one form as one, with a function of the tensors in each place; None where forms differ, or sizes
    are 1 in some of the places and not in others."""
    x = exprs[0]
    if any((o.op, o.side, o.shape, o.dtype, o.alpha) != (x.op, x.side, x.shape, x.dtype, x.alpha) for o in exprs):
        return None
    if x.op == "load":
        return load(x.side, function([o.tensor for o in exprs if o.tensor is not None]))
    if x.op not in SAME_FORM or any(a.shape != x.shape for o in exprs for a in o.args):
        return None
    args = [_each(places, function) for places in zip(*(o.args for o in exprs))]
    made = [a for a in args if a is not None]
    return Expr(x.op, made[0].shape, x.dtype, tuple(made), x.alpha) if len(made) == len(args) else None


# ---- picked from other dimensions than the last -----------------------------------------


def _getitem(input: Any, index: Any) -> Found:
    parts = input.parts() if isinstance(input, BaseEdgeTensor) else None
    index = index if isinstance(index, tuple) else (index,)
    plain = all(isinstance(i, (int, slice)) for i in index) and index[0] == slice(None)
    if parts is None or not plain or len(index) >= input.dim():
        return None
    return _picked(parts, lambda t: t[index])


def _select(input: Any, dim: int, index: int) -> Found:
    parts = input.parts() if isinstance(input, BaseEdgeTensor) else None
    if parts is None or not -input.dim() <= dim < input.dim() or dim % input.dim() in (0, input.dim() - 1):
        return None
    return _picked(parts, lambda t: t.select(dim % t.dim(), index))


def _picked(parts: Parts, function: Callable[[Tensor], Tensor]) -> Found:
    made = [_each([part], lambda found: function(found[0])) for part in parts]
    if any(m is None for m in made):
        return None
    found = tuple(m for m in made if m is not None)
    return found[0] if len(found) == 1 else found


# ---- linear maps ---------------------------------------------------------------------


class Term(NamedTuple):
    """A tensor and what its rows are multiplied by."""

    side: str
    tensor: Tensor
    weight: Tensor


def _linear(input: Any, weight: Any, bias: Any = None) -> Found:
    parts = input.parts() if isinstance(input, BaseEdgeTensor) else None
    if parts is None or isinstance(weight, BaseEdgeTensor) or weight.dim() != 2:
        return None
    if product_dtype(input, weight) is None:
        return None
    if weight.shape[1] != input.shape[-1]:
        return None  # torch says what does not fit
    terms: Dict[Tuple[str, int], Term] = {}
    begin = 0
    for part in parts:
        width = part.shape[-1]
        if not _add_terms(terms, part, weight[:, begin : begin + width], width):
            return None
        begin += width
    # what nodes of one end give is added up before it is sent; the bias once, where it is not sent
    ends: Dict[str, Tensor] = {}
    for side in sorted({t.side for t in terms.values()}, reverse=True):
        for term in (t for t in terms.values() if t.side == side):
            product = F.linear(term.tensor, term.weight, bias)
            bias = None
            ends[side] = product if side not in ends else ends[side] + product
    made: Optional[Expr] = None
    for side in (s for s in "uve" if s in ends):
        made = load(side, ends[side]) if made is None else expression.binary("add", made, load(side, ends[side]))
    return made


def _add_terms(terms: Dict[Tuple[str, int], Term], x: Expr, weight: Tensor, width: int) -> bool:
    """Collects a linear map of an expression; False where the expression is none of linear maps of nodes, or where the
    product for each edge would be larger than the tensor of edges that it is made of."""
    if not x.shape or x.shape[-1] != width:
        return False
    if x.op == "load":
        assert x.tensor is not None
        if x.side == "e" and weight.shape[0] > width:
            return False
        known = terms.get((x.side, id(x.tensor)))
        weight = weight if known is None else known.weight + weight
        terms[x.side, id(x.tensor)] = Term(x.side, x.tensor, weight)
        return True
    if x.op in ("add", "sub"):
        a, b = x.args
        return _add_terms(terms, a, weight, width) and _add_terms(terms, b, -weight if x.op == "sub" else weight, width)
    if x.op in ("neg", "scale"):
        return _add_terms(terms, x.args[0], weight * (x.alpha if x.op == "scale" else -1), width)
    return False


HANDLERS: Dict[Any, Callable[..., Found]] = {
    **dict.fromkeys((torch.cat, torch.concat, torch.concatenate), _cat),
    torch.stack: _stack,
    Tensor.__getitem__: _getitem,
    **dict.fromkeys((torch.select, Tensor.select), _select),
    F.linear: _linear,
}
