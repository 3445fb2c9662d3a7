"""The torch functions that extend the expression of an :class:`sar.core.lazy.EdgeTensor`.

Each handler has the signature of the torch function that it stands for. It returns ``NotImplemented`` for arguments
that need the values of edges, as a sum over edges does.
"""

from __future__ import annotations

import numbers
from typing import Any, Callable, Optional, Sequence, Tuple, Union

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import _abi, _session
from ..ops import expression
from ..ops.expression import Expr
from .lazy import IN_PLACE, LAZY, EdgeTensor, detached

Operand = Union[float, Expr]


def _register(handler: Callable[..., Any], *names: str) -> None:
    """Has the handler stand for functions of these names in ``torch``, ``Tensor`` and ``torch.nn.functional``."""
    for name in names:
        for home in (torch, Tensor, F):
            function = getattr(home, name, None)
            if function is not None:
                LAZY[function] = handler


def _register_in_place(*pairs: Tuple[str, str]) -> None:
    for name, of in pairs:
        for home in (torch, Tensor, F):
            function = getattr(home, name, None)
            if function is not None:
                IN_PLACE[function] = getattr(Tensor, of, None) or getattr(F, of)


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


def _made(like: EdgeTensor, expr: Expr) -> EdgeTensor:
    return EdgeTensor(like.relation, expr)


def _binary(op: str, a: Any, b: Any) -> Any:
    found = _both(a, b)
    if found is None:
        return NotImplemented
    like, x, y = found
    if isinstance(y, float):
        assert isinstance(x, Expr)
        made = {"add": ("shift", y), "sub": ("shift", -y), "mul": ("scale", y)}.get(op)
        if made is not None:
            return _made(like, expression.unary(made[0], x, made[1]))
        # a quotient is not the product with the rounded reciprocal
        y = expression.param(torch.tensor(y, dtype=like.dtype))
    elif isinstance(x, float):
        if op == "sub":
            return _made(like, expression.unary("rsub", y, x))
        if op == "div":
            x = expression.param(torch.tensor(x, dtype=like.dtype))
        else:
            return _made(like, expression.unary({"add": "shift", "mul": "scale"}[op], y, x))
    try:
        expr = expression.binary(op, x, y)
    except ValueError:
        return NotImplemented  # torch says what does not broadcast
    return _made(like, expr)


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


def _div(input: Any, other: Any, *, rounding_mode: Optional[str] = None, out: Any = None) -> Any:
    if out is not None or rounding_mode is not None:
        return NotImplemented
    return _binary("div", input, other)


def _rdiv(input: Any, other: Any) -> Any:
    return _div(other, input)


_register(_add, "add", "__add__", "__radd__")
_register(_sub, "sub", "subtract", "__sub__")
_register(_rsub, "rsub", "__rsub__")
_register(_mul, "mul", "multiply", "__mul__", "__rmul__")
_register(_div, "div", "divide", "true_divide", "__truediv__", "__div__")
_register(_rdiv, "__rtruediv__", "__rdiv__")
_register_in_place(
    ("add_", "add"), ("__iadd__", "add"), ("sub_", "sub"), ("subtract_", "sub"), ("__isub__", "sub"), ("mul_", "mul")
)
_register_in_place(("multiply_", "mul"), ("__imul__", "mul"), ("div_", "div"), ("divide_", "div"))
_register_in_place(("true_divide_", "div"), ("__itruediv__", "div"), ("__idiv__", "div"))


# ---- element by element ----------------------------------------------------


def _apply(input: Any, op: str, alpha: float = 0.0, inplace: bool = False) -> Any:
    if not isinstance(input, EdgeTensor):
        return NotImplemented
    out = _made(input, expression.unary(op, input.expr, alpha))
    return input.become(out) if inplace else out


def _plain(op: str) -> Callable[..., Any]:
    def handler(input: Any, inplace: bool = False, *, out: Any = None) -> Any:
        return NotImplemented if out is not None else _apply(input, op, inplace=inplace)

    return handler


for _name in ("neg", "relu", "exp", "log", "sqrt", "sigmoid", "tanh", "abs", "reciprocal"):
    _register(_plain(_name), _name)
    _register_in_place((_name + "_", _name))
_register(_plain("neg"), "negative", "__neg__")
_register(_plain("abs"), "absolute", "__abs__")


def _leaky_relu(input: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    return _apply(input, "leaky_relu", negative_slope, inplace)


def _elu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    return _apply(input, "elu", alpha, inplace)


def _softplus(input: Any, beta: float = 1, threshold: float = 20) -> Any:
    return _apply(input, "softplus") if beta == 1 and threshold == 20 else NotImplemented


def _square(input: Any, *, out: Any = None) -> Any:
    return NotImplemented if out is not None else _binary("mul", input, input)


def _rsqrt(input: Any, *, out: Any = None) -> Any:
    root = NotImplemented if out is not None else _apply(input, "sqrt")
    return root if root is NotImplemented else _apply(root, "reciprocal")


def _silu(input: Any, inplace: bool = False) -> Any:
    out = _binary("mul", input, _apply(input, "sigmoid"))
    return input.become(out) if inplace and out is not NotImplemented else out


def _pow(input: Any, exponent: Any, *, out: Any = None) -> Any:
    if out is not None or not isinstance(exponent, numbers.Real):
        return NotImplemented
    return _square(input) if exponent == 2 else _apply(input, "pow", float(exponent))


def _clamp(input: Any, min: Any = None, max: Any = None, *, out: Any = None) -> Any:
    limits = [limit for limit in (min, max) if limit is not None]
    if out is not None or not limits or not all(isinstance(limit, numbers.Real) for limit in limits):
        return NotImplemented
    if min is not None:
        input = _apply(input, "clamp_min", min)
    return input if max is None or input is NotImplemented else _apply(input, "clamp_max", max)


_register(_leaky_relu, "leaky_relu")
_register_in_place(("leaky_relu_", "leaky_relu"), ("elu_", "elu"), ("square_", "square"), ("pow_", "pow"))
_register_in_place(("clamp_", "clamp"), ("clip_", "clamp"), ("rsqrt_", "rsqrt"), ("__ipow__", "pow"))
_register(_elu, "elu")
_register(_softplus, "softplus")
_register(_square, "square")
_register(_rsqrt, "rsqrt")
_register(_silu, "silu")
_register(_pow, "pow", "__pow__")
_register(_clamp, "clamp", "clip")


# ---- dropout ---------------------------------------------------------------


def agreed_seed() -> int:
    """A seed that is the same on all ranks: what rank 0 draws from torch's default generator.

    All ranks draw, so generators that were equal stay equal; the number of rank 0 counts. So ``torch.manual_seed`` on
    rank 0 fixes the masks. Collective.
    """
    drawn = torch.randint(0, 2**63 - 1, (1,), dtype=torch.int64)
    session = _session.peek()
    if session is not None and session.world > 1:
        _session.broadcast(drawn, 0, _abi.TRAIN)
    return int(drawn)


def _dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Dropout of an edge tensor. Collective in training: ranks agree on a seed (see :func:`agreed_seed`)."""
    if not isinstance(input, EdgeTensor):
        return NotImplemented
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return input
    out = _made(input, expression.dropout(input.expr, p, agreed_seed()))
    return input.become(out) if inplace else out


_register(_dropout, "dropout")


# ---- shapes of features ----------------------------------------------------


def _dims(dim: Any, n: int) -> Optional[Sequence[int]]:
    """Feature dimensions, counted without that of edges; None where edges are among them."""
    if dim is None:
        return None
    wanted = [dim] if isinstance(dim, int) else list(dim)
    if not wanted or not all(isinstance(d, int) and -n <= d < n for d in wanted) or any(d % n == 0 for d in wanted):
        return None
    return [d % n - 1 for d in wanted]


def _sum(
    input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None, axis: Any = None
) -> Any:
    dim = axis if dim is None else dim
    if not isinstance(input, EdgeTensor) or out is not None or dtype not in (None, input.dtype):
        return NotImplemented
    dims = _dims(dim, input.dim())
    return NotImplemented if dims is None else _made(input, expression.total(input.expr, dims, keepdim))


def _mean(
    input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None, axis: Any = None
) -> Any:
    dim = axis if dim is None else dim
    total = _sum(input, dim, keepdim, dtype=dtype, out=out)
    if total is NotImplemented:
        return total
    count = 1
    for d in _dims(dim, input.dim()) or ():
        count *= input.shape[d + 1]
    return _div(total, count)


def _reshape(input: Any, *shape: Any, **kwargs: Any) -> Any:
    if not isinstance(input, EdgeTensor):
        return NotImplemented
    if "shape" in kwargs and not shape:
        shape = (kwargs.pop("shape"),)
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = tuple(shape[0])
    if kwargs or not shape or not all(isinstance(s, int) for s in shape):
        return NotImplemented
    edges, wanted, count = input.shape[0], list(shape[1:]), 1
    for size in input.expr.shape:
        count *= size
    known = 1
    for size in wanted:
        known *= 1 if size == -1 else size
    if shape[0] == -1:
        keeps = -1 not in wanted and known == count
    elif shape[0] == edges:
        # without edges torch could not tell what -1 stands for; the other ranks can
        keeps = wanted.count(-1) <= 1 and (known == count if -1 not in wanted else known > 0 and count % known == 0)
    else:
        keeps = False
    if not keeps:
        return NotImplemented
    return _made(input, expression.reshape(input.expr, [count // known if s == -1 else s for s in wanted]))


def _unsqueeze(input: Any, dim: int) -> Any:
    if not isinstance(input, EdgeTensor):
        return NotImplemented
    n = input.dim() + 1
    if not -n <= dim < n or dim % n == 0:
        return NotImplemented
    shape = list(input.expr.shape)
    shape.insert(dim % n - 1, 1)
    return _made(input, expression.reshape(input.expr, shape))


def _squeeze(input: Any, dim: Any = None) -> Any:
    # without a dimension torch also drops that of edges where a worker has one edge: ranks would differ
    dims = _dims(dim, input.dim()) if isinstance(input, EdgeTensor) else None
    if dims is None:
        return NotImplemented
    shape = [size for d, size in enumerate(input.expr.shape) if d not in dims or size != 1]
    return _made(input, expression.reshape(input.expr, shape))


def _flatten(input: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    n = input.dim() if isinstance(input, EdgeTensor) else 0
    if n < 2 or not -n <= start_dim < n or not -n <= end_dim < n or not 0 < start_dim % n <= end_dim % n:
        return NotImplemented
    start, end = start_dim % n - 1, end_dim % n
    shape, middle = list(input.expr.shape), 1
    for size in shape[start:end]:
        middle *= size
    return _made(input, expression.reshape(input.expr, [*shape[:start], middle, *shape[end:]]))


_register(_sum, "sum")
_register(_mean, "mean")
_register(_reshape, "reshape", "view")
_register(_unsqueeze, "unsqueeze")
_register(_squeeze, "squeeze")
_register(_flatten, "flatten")


# ---- nothing changes -------------------------------------------------------


def _same(input: Any, *args: Any, **kwargs: Any) -> Any:
    """A conversion, where there is nothing to convert."""
    if not isinstance(input, EdgeTensor):
        return NotImplemented
    wanted = [*args, *(v for k, v in kwargs.items() if k in ("dtype", "device", "other"))]
    if kwargs.get("copy"):
        return NotImplemented
    for value in wanted:
        if isinstance(value, Tensor):
            same = value.dtype == input.dtype and value.device.type == "cpu"
        elif isinstance(value, torch.dtype):
            same = value == input.dtype
        elif isinstance(value, (str, torch.device)):
            same = torch.device(value).type == "cpu"
        else:
            same = value is None or isinstance(value, bool)
        if not same:
            return NotImplemented
    return input


def _cast(dtype: torch.dtype) -> Callable[..., Any]:
    return lambda input, **kwargs: _same(input, dtype)


def _clone(input: Any, **kwargs: Any) -> Any:
    return _made(input, input.expr) if isinstance(input, EdgeTensor) else NotImplemented


def _detach(input: Any) -> Any:
    return _made(input, detached(input.expr)) if isinstance(input, EdgeTensor) else NotImplemented


_register(_same, "to", "type_as", "cpu", "contiguous")
_register(_cast(torch.float32), "float")
_register(_cast(torch.float64), "double")
_register(_clone, "clone")
_register(_detach, "detach")
