"""What the engine computes of the functions of torch that treat each edge by itself.

A handler has the arguments of the function that it stands for, with tensors that the engine computes, and returns the
tensor that extends the expression, or ``NotImplemented`` for arguments that the engine does not take.
"""

from __future__ import annotations

import functools
import numbers
from math import prod
from typing import Any, Callable, Dict, Optional, Union

import torch
from torch import Tensor

from sar._engine.storage import computed_in
from sar.autograd import expression
from sar.autograd.dtypes import FLOATS, joint
from sar.autograd.expression import Expr
from sar.distributed.agreement import agreed_seed

from .base import BaseEdgeTensor
from .calls import detached
from .rowwise import name_of
from .rowwise_rules import Arguments, dims_of


def by_element(func: Any, args: Any, kwargs: Any) -> Any:
    """What a function gives that works element by element, of tensors that the engine computes."""
    handler = BY_ELEMENT.get(name_of(func))
    if handler is None:
        return NotImplemented
    for x in (*args, *kwargs.values()):
        if isinstance(x, BaseEdgeTensor) and not x.in_engine:
            return NotImplemented
    with torch._C.DisableTorchFunctionSubclass():  # shapes and dtypes are asked for often
        return handler(*args, **kwargs)


def on_features(call: Arguments) -> Any:
    """What sums and changes of shape give that leave the dimension of edges alone."""
    with torch._C.DisableTorchFunctionSubclass():
        if call.name in RESHAPES and call.args:
            return _reshaped(call)
        handler = {"sum": _sum, "mean": _mean}.get(call.name)
        return NotImplemented if handler is None else handler(*call.args, **call.kwargs)


# ---- arithmetic ------------------------------------------------------------


def _operand(value: Any, like: BaseEdgeTensor) -> Union[None, float, Expr]:
    """A number, or an expression that broadcasts against ``like`` without touching its first dimension."""
    if isinstance(value, numbers.Real):
        return float(value)
    if not isinstance(value, Tensor) or value.device.type != "cpu":
        return None
    features = like.dim() - 1
    if isinstance(value, BaseEdgeTensor):
        fits = joint(value.dtype, like.dtype) is not None and value.dim() == like.dim()
        return value._computation if fits and value.relation is like.relation else None
    if value.dim() == 0 and not value.is_complex():
        # as torch does, a single number does not change the dtype
        return expression.param(value.to(computed_in(like.dtype)), like.dtype)
    if not value.is_floating_point() and not value.is_complex():
        value = value.to(like.dtype)
    if joint(value.dtype, like.dtype) is None or value.dtype not in FLOATS or value.dim() > features + 1:
        return None
    if value.dim() <= features:
        return expression.param(value)
    edges = like.shape[0]
    if value.shape[0] == 1 and (edges != 1 or isinstance(value, torch.nn.Parameter)):
        return expression.param(value[0])
    return expression.load("e", value) if value.shape[0] == edges else None


def _binary(op: str, a: Any, b: Any) -> Any:
    like = a if isinstance(a, BaseEdgeTensor) else b
    if not isinstance(like, BaseEdgeTensor):
        return NotImplemented
    x, y = _operand(a, like), _operand(b, like)
    if x is None or y is None:
        return NotImplemented
    if isinstance(y, float):
        assert isinstance(x, Expr)
        made = {"add": ("shift", y), "sub": ("shift", -y), "mul": ("scale", y)}.get(op)
        if made is not None:
            return like.extended(expression.unary(made[0], x, made[1]))
        # a quotient is not the product with the rounded reciprocal
        y = expression.param(torch.tensor(y, dtype=computed_in(like.dtype)), like.dtype)
    elif isinstance(x, float):
        if op != "div":
            return like.extended(expression.unary({"add": "shift", "mul": "scale", "sub": "rsub"}[op], y, x))
        x = expression.param(torch.tensor(x, dtype=computed_in(like.dtype)), like.dtype)
    try:
        return like.extended(expression.binary(op, x, y))
    except ValueError:
        return NotImplemented  # torch says what does not broadcast


def _arithmetic(op: str, swapped: bool = False) -> Callable[..., Any]:
    def handler(input: Any, other: Any, *, alpha: float = 1, rounding_mode: Optional[str] = None) -> Any:
        if alpha != 1 or rounding_mode is not None:
            return NotImplemented
        return _binary(op, other, input) if swapped else _binary(op, input, other)

    return handler


# ---- element by element ----------------------------------------------------


def _apply(input: Any, op: str, alpha: float = 0.0) -> Any:
    return input.extended(expression.unary(op, input._computation, alpha))


def _unary(op: str) -> Callable[..., Any]:
    return lambda input, inplace=False: _apply(input, op)


def _leaky_relu(input: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    return _apply(input, "leaky_relu", negative_slope)


def _elu(input: Any, alpha: float = 1.0, *others: Any, **named: Any) -> Any:
    scaled = {k: v for k, v in named.items() if k != "inplace"} or any(type(v) is not bool for v in others)
    return NotImplemented if scaled else _apply(input, "elu", alpha)


def _softplus(input: Any, beta: float = 1, threshold: float = 20) -> Any:
    return _apply(input, "softplus") if beta == 1 and threshold == 20 else NotImplemented


def _pow(input: Any, exponent: Any) -> Any:
    if not isinstance(input, BaseEdgeTensor) or not isinstance(exponent, numbers.Real):
        return NotImplemented
    return _binary("mul", input, input) if exponent == 2 else _apply(input, "pow", float(exponent))


def _clamp(input: Any, min: Any = None, max: Any = None) -> Any:
    limits = [limit for limit in (min, max) if limit is not None]
    if not limits or not all(isinstance(limit, numbers.Real) for limit in limits):
        return NotImplemented
    bound = "_open" if _zero_at_bounds() else ""
    if min is not None:
        input = _apply(input, f"clamp_min{bound}", min)
    return input if max is None else _apply(input, f"clamp_max{bound}", max)


@functools.lru_cache(None)
def _zero_at_bounds() -> bool:
    """Whether the gradient of torch's clamp is 0 at its bounds: that depends on the version."""
    with torch.inference_mode(False), torch.enable_grad():
        x = torch.zeros(1, requires_grad=True)
        return not torch.autograd.grad(x.clamp(min=0), x, torch.ones(1))[0]


def _dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False, train: bool = True) -> Any:
    """Collective in training: ranks agree on a seed."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or not train or p == 0.0:
        return input
    return input.extended(expression.dropout(input._computation, p, agreed_seed()))


def _clone(input: Any, **kwargs: Any) -> Any:
    expr = input._computation
    if expr.op == "load" and expr.side == "e" and expr.tensor is not None:
        return input.extended(expression.load("e", expr.tensor.clone()))  # what it loads may be changed
    made = input.extended(expr)
    made._copied = True
    return made


# ---- shapes of features ----------------------------------------------------


def _sum(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, axis: Any = None) -> Any:
    if dtype not in (None, input.dtype):
        return NotImplemented
    dims = [d - 1 for d in dims_of(axis if dim is None else dim, input.dim())]
    return input.extended(expression.total(input._computation, dims, keepdim))


def _mean(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, axis: Any = None) -> Any:
    total = _sum(input, dim, keepdim, dtype=dtype, axis=axis)
    count = prod(input.shape[d] for d in dims_of(axis if dim is None else dim, input.dim()))
    return total if total is NotImplemented else _binary("div", total, count)


def _reshaped(call: Arguments) -> Any:
    """Other feature dimensions, which torch itself knows."""
    input, *sizes = call.args
    x = input._computation
    try:
        made = call.func(torch.empty((1, *x.shape), device="meta"), *sizes, **call.kwargs)
    except (RuntimeError, IndexError, TypeError):
        return NotImplemented  # torch says what is wrong
    return input.extended(expression.reshape(x, made.shape[1:]))


RESHAPES = frozenset(["view", "reshape", "unsqueeze", "squeeze", "flatten", "unflatten"])

BY_ELEMENT: Dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("add", "__add__", "__radd__", "__iadd__"), _arithmetic("add")),
    **dict.fromkeys(("sub", "subtract", "__sub__", "__isub__"), _arithmetic("sub")),
    **dict.fromkeys(("rsub", "__rsub__"), _arithmetic("sub", swapped=True)),
    **dict.fromkeys(("mul", "multiply", "__mul__", "__rmul__", "__imul__"), _arithmetic("mul")),
    **dict.fromkeys(
        ("div", "divide", "true_divide", "__truediv__", "__div__", "__itruediv__", "__idiv__"), _arithmetic("div")
    ),
    **dict.fromkeys(("__rtruediv__", "__rdiv__"), _arithmetic("div", swapped=True)),
    **{op: _unary(op) for op in ("neg", "relu", "exp", "log", "sqrt", "sigmoid", "tanh", "abs", "reciprocal")},
    **dict.fromkeys(("negative", "__neg__"), _unary("neg")),
    **dict.fromkeys(("absolute", "__abs__"), _unary("abs")),
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "softplus": _softplus,
    "square": lambda input: _binary("mul", input, input),
    "rsqrt": lambda input: _apply(_apply(input, "sqrt"), "reciprocal"),
    "silu": lambda input, inplace=False: _binary("mul", input, _apply(input, "sigmoid")),
    **dict.fromkeys(("pow", "__pow__", "__ipow__"), _pow),
    **dict.fromkeys(("clamp", "clip"), _clamp),
    "dropout": _dropout,
    "clone": _clone,
    **dict.fromkeys(("detach", "Tensor.data"), lambda input: input.extended(detached(input._computation))),
}
"""By the names of the table."""
