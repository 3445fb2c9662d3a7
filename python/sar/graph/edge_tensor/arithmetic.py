"""Torch functions of numbers that extend the expression of an :class:`~sar.graph.edge_tensor.tensor.EdgeTensor`:
arithmetic, functions element by element, dropout.

Each handler has the signature of the torch function that it stands for; ``inplace`` is seen to before. It returns
``NotImplemented`` for arguments that the engine does not take.
"""

from __future__ import annotations

import functools
import numbers
from typing import Any, Callable, Optional, Tuple, Union

import torch
from torch import Tensor

from sar.autograd import expression
from sar.autograd.expression import Expr
from sar.distributed.agreement import agreed_seed

from .functions import register, register_in_place
from .tensor import EdgeTensor

Operand = Union[float, Expr]


# ---- operands --------------------------------------------------------------


def _operand(value: Any, like: EdgeTensor) -> Optional[Operand]:
    """A number, or an expression that broadcasts against ``like`` without touching its first dimension."""
    if isinstance(value, numbers.Real):
        return float(value)
    if not isinstance(value, Tensor) or value.device.type != "cpu":
        return None
    features = like.dim() - 1
    if isinstance(value, EdgeTensor):
        same = value.relation is like.relation and value.dtype == like.dtype and value.dim() == like.dim()
        return value.expr if same else None
    if value.dim() == 0 and not value.is_complex():
        return expression.param(value.to(like.dtype))  # as torch does, a single number does not change the dtype
    if not value.is_floating_point() and not value.is_complex():
        value = value.to(like.dtype)
    if value.dtype != like.dtype or value.dim() > features + 1:
        return None
    if value.dim() <= features:
        return expression.param(value)
    edges = like.shape[0]
    if value.shape[0] == 1 and (edges != 1 or isinstance(value, torch.nn.Parameter)):
        return expression.param(value[0])
    return expression.load("e", value) if value.shape[0] == edges else None


def _both(a: Any, b: Any) -> Optional[Tuple[EdgeTensor, Operand, Operand]]:
    """Both operands of a function that was called because at least one of them is an edge tensor."""
    like = a if isinstance(a, EdgeTensor) else b
    if not isinstance(like, EdgeTensor):
        return None
    if isinstance(a, EdgeTensor) and isinstance(b, EdgeTensor) and b.dim() > a.dim():
        like = b
    x, y = _operand(a, like), _operand(b, like)
    return None if x is None or y is None else (like, x, y)


def _binary(op: str, a: Any, b: Any) -> Any:
    found = _both(a, b)
    if found is None:
        return NotImplemented
    like, x, y = found
    if isinstance(y, float):
        assert isinstance(x, Expr)
        made = {"add": ("shift", y), "sub": ("shift", -y), "mul": ("scale", y)}.get(op)
        if made is not None:
            return like.extended(expression.unary(made[0], x, made[1]))
        # a quotient is not the product with the rounded reciprocal
        y = expression.param(torch.tensor(y, dtype=like.dtype))
    elif isinstance(x, float):
        if op == "sub":
            return like.extended(expression.unary("rsub", y, x))
        if op == "div":
            x = expression.param(torch.tensor(x, dtype=like.dtype))
        else:
            return like.extended(expression.unary({"add": "shift", "mul": "scale"}[op], y, x))
    try:
        expr = expression.binary(op, x, y)
    except ValueError:
        return NotImplemented  # torch says what does not broadcast
    return like.extended(expr)


def _add(input: Any, other: Any, *, alpha: float = 1, out: Any = None) -> Any:
    if out is not None or alpha != 1:
        return NotImplemented
    return _binary("add", input, other)


def _sub(input: Any, other: Any, *, alpha: float = 1, out: Any = None) -> Any:
    if out is not None or alpha != 1:
        return NotImplemented
    return _binary("sub", input, other)


def _rsub(input: Any, other: Any, *, alpha: float = 1) -> Any:
    return _sub(other, input, alpha=alpha)


def _mul(input: Any, other: Any, *, out: Any = None) -> Any:
    return NotImplemented if out is not None else _binary("mul", input, other)


def div(input: Any, other: Any, *, rounding_mode: Optional[str] = None, out: Any = None) -> Any:
    if out is not None or rounding_mode is not None:
        return NotImplemented
    return _binary("div", input, other)


def _rdiv(input: Any, other: Any) -> Any:
    return div(other, input)


register(_add, "add", "__add__", "__radd__")
register(_sub, "sub", "subtract", "__sub__")
register(_rsub, "rsub", "__rsub__")
register(_mul, "mul", "multiply", "__mul__", "__rmul__")
register(div, "div", "divide", "true_divide", "__truediv__", "__div__")
register(_rdiv, "__rtruediv__", "__rdiv__")
register_in_place(
    ("add_", "add"), ("__iadd__", "add"), ("sub_", "sub"), ("subtract_", "sub"), ("__isub__", "sub"), ("mul_", "mul")
)
register_in_place(("multiply_", "mul"), ("__imul__", "mul"), ("div_", "div"), ("divide_", "div"))
register_in_place(("true_divide_", "div"), ("__itruediv__", "div"), ("__idiv__", "div"))


# ---- element by element ----------------------------------------------------


def _apply(input: Any, op: str, alpha: float = 0.0) -> Any:
    if not isinstance(input, EdgeTensor):
        return NotImplemented
    return input.extended(expression.unary(op, input.expr, alpha))


def _plain(op: str) -> Callable[..., Any]:
    def handler(input: Any, inplace: bool = False, *, out: Any = None) -> Any:
        return NotImplemented if out is not None else _apply(input, op)

    return handler


for _name in ("neg", "relu", "exp", "log", "sqrt", "sigmoid", "tanh", "abs", "reciprocal"):
    register(_plain(_name), _name)
    register_in_place((_name + "_", _name))
register(_plain("neg"), "negative", "__neg__")
register(_plain("abs"), "absolute", "__abs__")


def _leaky_relu(input: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    return _apply(input, "leaky_relu", negative_slope)


def _elu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    return _apply(input, "elu", alpha)


def _softplus(input: Any, beta: float = 1, threshold: float = 20) -> Any:
    return _apply(input, "softplus") if beta == 1 and threshold == 20 else NotImplemented


def _square(input: Any, *, out: Any = None) -> Any:
    return NotImplemented if out is not None else _binary("mul", input, input)


def _rsqrt(input: Any, *, out: Any = None) -> Any:
    root = NotImplemented if out is not None else _apply(input, "sqrt")
    return root if root is NotImplemented else _apply(root, "reciprocal")


def _silu(input: Any, inplace: bool = False) -> Any:
    return _binary("mul", input, _apply(input, "sigmoid"))


def _pow(input: Any, exponent: Any, *, out: Any = None) -> Any:
    if out is not None or not isinstance(exponent, numbers.Real):
        return NotImplemented
    return _square(input) if exponent == 2 else _apply(input, "pow", float(exponent))


def _clamp(input: Any, min: Any = None, max: Any = None, *, out: Any = None) -> Any:
    limits = [limit for limit in (min, max) if limit is not None]
    if out is not None or not limits or not all(isinstance(limit, numbers.Real) for limit in limits):
        return NotImplemented
    bound = "_open" if _zero_at_bounds() else ""
    if min is not None:
        input = _apply(input, f"clamp_min{bound}", min)
    return input if max is None or input is NotImplemented else _apply(input, f"clamp_max{bound}", max)


@functools.lru_cache(None)
def _zero_at_bounds() -> bool:
    """Whether the gradient of torch's clamp is 0 at its bounds: that depends on the version."""
    with torch.inference_mode(False), torch.enable_grad():
        x = torch.zeros(1, requires_grad=True)
        return not torch.autograd.grad(x.clamp(min=0), x, torch.ones(1))[0]


register(_leaky_relu, "leaky_relu")
register_in_place(("leaky_relu_", "leaky_relu"), ("elu_", "elu"), ("square_", "square"), ("pow_", "pow"))
register_in_place(("clamp_", "clamp"), ("clip_", "clamp"), ("rsqrt_", "rsqrt"), ("__ipow__", "pow"))
register(_elu, "elu")
register(_softplus, "softplus")
register(_square, "square")
register(_rsqrt, "rsqrt")
register(_silu, "silu")
register(_pow, "pow", "__pow__")
register(_clamp, "clamp", "clip")


# ---- dropout ---------------------------------------------------------------


def _dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Dropout of an edge tensor. Collective in training: ranks agree on a seed."""
    if not isinstance(input, EdgeTensor):
        return NotImplemented
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return input
    return input.extended(expression.dropout(input.expr, p, agreed_seed()))


register(_dropout, "dropout")
