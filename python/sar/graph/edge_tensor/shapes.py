"""Torch functions that give the features of an :class:`~sar.graph.edge_tensor.tensor.EdgeTensor` another shape, sums
over features, and those that change nothing. Handlers are written as those of :mod:`sar.graph.edge_tensor.arithmetic`.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import torch
from torch import Tensor

from sar.autograd import expression

from .arithmetic import div
from .calls import detached
from .functions import LAZY, register
from .memory import DATA
from .tensor import EdgeTensor

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
    return NotImplemented if dims is None else input.extended(expression.total(input.expr, dims, keepdim))


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
    return div(total, count)


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
    return input.extended(expression.reshape(input.expr, [count // known if s == -1 else s for s in wanted]))


def _unsqueeze(input: Any, dim: int) -> Any:
    if not isinstance(input, EdgeTensor):
        return NotImplemented
    n = input.dim() + 1
    if not -n <= dim < n or dim % n == 0:
        return NotImplemented
    shape = list(input.expr.shape)
    shape.insert(dim % n - 1, 1)
    return input.extended(expression.reshape(input.expr, shape))


def _squeeze(input: Any, dim: Any = None) -> Any:
    # without a dimension torch also drops that of edges where a worker has one edge: ranks would differ
    dims = _dims(dim, input.dim()) if isinstance(input, EdgeTensor) else None
    if dims is None:
        return NotImplemented
    shape = [size for d, size in enumerate(input.expr.shape) if d not in dims or size != 1]
    return input.extended(expression.reshape(input.expr, shape))


def _flatten(input: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    n = input.dim() if isinstance(input, EdgeTensor) else 0
    if n < 2 or not -n <= start_dim < n or not -n <= end_dim < n or not 0 < start_dim % n <= end_dim % n:
        return NotImplemented
    start, end = start_dim % n - 1, end_dim % n
    shape, middle = list(input.expr.shape), 1
    for size in shape[start:end]:
        middle *= size
    return input.extended(expression.reshape(input.expr, [*shape[:start], middle, *shape[end:]]))


register(_sum, "sum")
register(_mean, "mean")
register(_reshape, "reshape", "view")
register(_unsqueeze, "unsqueeze")
register(_squeeze, "squeeze")
register(_flatten, "flatten")


# ---- new tensors ---------------------------------------------------------------


def _new(name: str) -> Callable[..., Any]:
    """A tensor of the same dtype, which needs no values."""
    return lambda input, *args, **kwargs: getattr(torch.empty(0, dtype=input.dtype), name)(*args, **kwargs)


for _name in ("new_zeros", "new_ones", "new_empty", "new_full", "new_tensor"):
    register(_new(_name), _name)


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
    if not isinstance(input, EdgeTensor):
        return NotImplemented
    expr = input.expr
    if expr.op == "load" and expr.side == "e" and expr.tensor is not None:
        return input.extended(expression.load("e", expr.tensor.clone()))  # what it loads may be changed
    made = input.extended(expr)
    made._copied = True
    return made


def _detach(input: Any) -> Any:
    return input.extended(detached(input.expr)) if isinstance(input, EdgeTensor) else NotImplemented


register(_same, "to", "type_as", "cpu", "contiguous")
register(_cast(torch.float32), "float")
register(_cast(torch.float64), "double")
register(_clone, "clone")
register(_detach, "detach")
LAZY[DATA] = _detach
