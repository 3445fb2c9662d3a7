"""How edge expressions are computed. For now every step makes a tensor of edge size."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .. import _abi, _session
from .aggregate import Relation
from .message import check

if TYPE_CHECKING:
    from .expression import Expr

ROWS = {"u": "source nodes", "v": "destination nodes", "e": "in-edges"}


def run(relation: Relation, expr: Expr, reduce: Optional[str]) -> Tensor:
    _session.current().follow_window()
    value = _value(relation, expr, {})
    if reduce is None:
        return value
    dst = _targets(relation)
    flat = value.reshape(relation.num_edges, prod(expr.shape))
    zero = flat.new_zeros(relation.num_dst, flat.shape[1])
    if reduce in ("sum", "mean"):
        out = zero.index_add(0, dst, flat)
        if reduce == "mean":
            out = out / torch.bincount(dst, minlength=relation.num_dst).clamp(min=1).to(out.dtype).unsqueeze(1)
        return out.view(relation.num_dst, *expr.shape)
    return _extremum(flat, dst, relation.num_dst, reduce).view(relation.num_dst, *expr.shape)


def _extremum(flat: Tensor, dst: Tensor, rows: int, reduce: str) -> Tensor:
    value = flat.detach()
    index = dst.unsqueeze(1).expand_as(value)
    worst = float("-inf" if reduce == "max" else "inf")
    best = value.new_full((rows, value.shape[1]), worst)
    best = best.scatter_reduce(0, index, value.where(~value.isnan(), worst), f"a{reduce}")
    edges = torch.arange(len(dst)).unsqueeze(1).expand_as(value)
    equal = value == best[dst]
    last = flat.dtype == torch.float32
    none = -1 if last else len(dst)
    winner = torch.full(best.shape, none, dtype=torch.int64)
    winner = winner.scatter_reduce(0, index, torch.where(equal, edges, none), "amax" if last else "amin")
    found = (winner != none) & torch.isfinite(best)
    padded = torch.cat([flat, flat.new_zeros(1, flat.shape[1])])
    return torch.gather(padded, 0, torch.where(found, winner, len(dst)))


def _value(relation: Relation, x: Expr, seen: Dict[int, Tensor]) -> Tensor:
    if id(x) not in seen:
        seen[id(x)] = _compute(relation, x, seen)
    return seen[id(x)]


def _compute(relation: Relation, x: Expr, seen: Dict[int, Tensor]) -> Tensor:
    if x.tensor is not None:
        return _loaded(relation, x, x.tensor)
    args = [_value(relation, a, seen) for a in x.args]
    a = args[0]
    if x.op in ("add", "sub", "mul", "div", "dot"):
        dims = max(len(y.shape) for y in x.args)
        a, b = (v.reshape(-1, *(1,) * (dims - v.dim() + 1), *v.shape[1:]) for v in args)
        if x.op == "dot":
            return (a * b).sum(-1, keepdim=True)
        return cast(Tensor, getattr(torch, x.op)(a, b))
    if x.op == "total":
        return a.sum([d + 1 for d in x.dims], keepdim=True)
    if x.op == "reshape":
        return a.reshape(relation.num_edges, *x.shape)
    if x.op == "softmax":
        dst = _targets(relation)
        flat = a.reshape(relation.num_edges, prod(x.shape))
        index = dst.unsqueeze(1).expand_as(flat)
        most = flat.new_full((relation.num_dst, flat.shape[1]), float("-inf"))
        most = most.scatter_reduce(0, index, flat.detach(), "amax")
        power = (flat - most[dst]).exp()
        return (power / power.new_zeros(most.shape).index_add(0, dst, power)[dst]).view_as(a)
    if x.op == "dropout":
        with torch.random.fork_rng():
            torch.manual_seed(x.seed)
            keep = torch.rand_like(a) >= x.alpha
        return a * keep / (1 - x.alpha) if x.alpha < 1 else a * 0
    f = torch.nn.functional
    simple: Dict[str, Any] = {
        "leaky_relu": lambda: f.leaky_relu(a, x.alpha),
        "elu": lambda: f.elu(a, x.alpha),
        "softplus": lambda: f.softplus(a),
        "scale": lambda: a * x.alpha,
        "shift": lambda: a + x.alpha,
        "rsub": lambda: x.alpha - a,
        "pow": lambda: a**x.alpha,
        "clamp_min": lambda: a.clamp(min=x.alpha),
        "clamp_max": lambda: a.clamp(max=x.alpha),
    }
    if x.op in simple:
        return cast(Tensor, simple[x.op]())
    function: Any = getattr(torch, x.op)
    return cast(Tensor, function(a))


def _loaded(relation: Relation, x: Expr, tensor: Tensor) -> Tensor:
    if x.side == "p":
        return tensor.unsqueeze(0)
    rows = {"u": relation.num_src, "v": relation.num_dst, "e": relation.num_edges}[x.side]
    check(tensor, rows, ROWS[x.side], f"the tensor of side {x.side!r}")
    if x.side == "e":
        return tensor
    if x.side == "v":
        return tensor[_targets(relation)]
    anchor = torch.empty(0, requires_grad=torch.is_grad_enabled())
    flat: Tensor = _Sources.apply(anchor, tensor.reshape(rows, prod(x.shape)), relation)
    return flat.view(relation.num_edges, *x.shape)


def _targets(relation: Relation) -> Tensor:
    found: Optional[Tensor] = getattr(relation, "_targets", None)
    if found is None:
        rows = torch.arange(relation.num_dst, dtype=torch.float64).unsqueeze(1)
        found = _gather(relation, rows.new_ones(relation.num_src, 1), rows)[:, 0].long()
        relation._targets = found  # type: ignore[attr-defined]
    return found


def _gather(relation: Relation, u: Tensor, v: Tensor) -> Tensor:
    """``u[src] * v[dst]`` for every edge."""
    out = u.new_empty(relation.num_edges, u.shape[1])
    what = (relation.index, "u_mul_e", "sum")
    _abi.aggregate_backward(relation.handle, what, _abi.GRAD_E, u.contiguous(), torch.zeros_like(out), v, None, out)
    return out


class _Sources(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, u: Tensor, relation: Relation) -> Tensor:
        ctx.relation, ctx.shape = relation, u.shape
        return _gather(relation, u.detach(), u.new_ones(relation.num_dst, u.shape[1]))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        relation, out = ctx.relation, grad.new_empty(ctx.shape)
        ones = grad.new_ones(relation.num_dst, grad.shape[1])
        what = (relation.index, "u_mul_e", "sum")
        _abi.aggregate_backward(relation.handle, what, _abi.GRAD_U, None, grad.contiguous(), ones, out, None)
        return None, out, None
