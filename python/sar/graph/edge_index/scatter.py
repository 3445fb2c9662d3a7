"""What is added, averaged or compared at the ends of edges by torch's own functions: ``scatter_add_``, ``index_add_``,
``scatter_reduce`` and their like, with a row of an edge index, or a view of it, for their index.

Sums, means and extrema of edges alone run in the engine. Others get the values of the worker's edges, which are all the
in-edges of its nodes. Those in place change the tensor that they are given, as torch does.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Optional, Tuple

import torch
from torch import Tensor

from sar._engine import session as _session
from sar.autograd.dtypes import FLOATS
from sar.distributed.agreement import anywhere
from sar.graph.edge_tensor.functions import changes
from sar.graph.edge_tensor.tensor import values
from sar.graph.edge_tensor.written_softmax import may_be_softmax, remember
from sar.graph.refused import refusal

from .reduce import reduced
from .refusals import name_of
from .rows import EdgeEnds, check_size

OPERATIONS = {"add": "sum", "multiply": "prod", **{op: op for op in ("sum", "mean", "amax", "amin", "prod")}}


def _put(
    func: Any, input: Any, dim: int, index: Any, src: Any, op: str, alpha: float = 1, include_self: bool = True
) -> Any:
    """``input`` with rows of edges added to it, or reduced with it, at the ends of edges.

    :param func: the function of torch, for what is not computed here
    :param include_self: numbers of ``input`` count too, where edges end; elsewhere they stay in any case
    """
    name = func.__name__
    if not isinstance(index, EdgeEnds) or isinstance(input, EdgeEnds) or not isinstance(src, Tensor):
        return NotImplemented
    dim = dim % max(input.dim(), 1)
    edges, side = index.edges, index.side
    shape = list(src.shape)
    fits = src.dim() == input.dim() and (Tensor.dim(index) == 1 or (index.place == dim and index.shape == src.shape))
    if fits:
        shape[dim] = edges.rows(side)
    check_size(index, input.shape[dim] if src.dim() == input.dim() else None)
    extremum = op in ("amax", "amin") and not include_self
    fits = fits and shape == list(input.shape) and torch.bool not in (src.dtype, input.dtype)
    fits = fits and (side == "u" and op != "mean" and alpha == 1 or {src.dtype, input.dtype} <= {*FLOATS})
    if not fits or not (op in ("sum", "mean") or extremum):
        if side == "u" and _session.current().world > 1:
            raise refusal(
                f"{name_of(func)} at the sources of edges, with {op} of {tuple(src.shape)} into {tuple(input.shape)},",
                "sums and means into a row for each own node are computed; or give the graph with its edges reversed",
            )
        return _natively(func, input, dim, index.numbers(), values(src), (op, alpha, include_self))
    if src.dtype != input.dtype:
        raise RuntimeError(f"{name}: {input.dtype} and {src.dtype} were given, and have to be the same")
    total = reduced(edges, side, src, dim, op[1:] if extremum else "sum")
    if op == "sum" and include_self:
        zeros = changes(func) and alpha == 1 and may_be_softmax("sum", src)
        zeros = zeros and not anywhere(input.detach().count_nonzero())[0]
        made = input.add_(total, alpha=alpha) if changes(func) else input.add(total, alpha=alpha)
        return remember(made, "sum", src) if zeros and side == "v" and dim == 0 else made
    count = edges.relation.degrees(out=side == "u").view(-1, *(1,) * (input.dim() - dim - 1))
    if include_self:
        made = (input + total) / (count + 1)
    else:
        made = torch.where(count > 0, total / count.clamp(min=1) if op == "mean" else total, input)
    made = input.copy_(made) if changes(func) else made
    return remember(made, "max", src) if op == "amax" and extremum and side == "v" and dim == 0 else made


def _natively(func: Any, input: Tensor, dim: int, index: Tensor, src: Tensor, how: Tuple[str, float, bool]) -> Any:
    op, alpha, include_self = how
    name, suffix = func.__name__.rstrip("_"), "_" * changes(func)
    more: Dict[str, Any] = {"alpha": alpha} if name == "index_add" else {}
    if name == "index_put":
        return getattr(input, name + suffix)((index,), src, accumulate=True)
    if not name.endswith("_add"):
        name = "scatter_reduce" if name == "scatter" else name
        more = {"reduce": op, "include_self": include_self}
    return getattr(input, name + suffix)(dim, index, src, **more)


def _set(func: Any, input: Any, dim: int, index: Any, value: Any) -> Any:
    """``input[index] = value``, with a value that is the same for all edges."""
    if isinstance(input, EdgeEnds) or not isinstance(index, EdgeEnds):
        return NotImplemented
    if isinstance(value, Tensor) and value.dim() > 0:
        raise refusal(
            f"{name_of(func)} at the ends of edges",
            "the value of one of the edges of a node would stay, and which one is not defined. index_add_, "
            "index_put_(accumulate=True), scatter_reduce_ or torch_geometric.utils.scatter reduce those of all",
        )
    dim = dim % max(input.dim(), 1)
    wide = Tensor.dim(index) > 1 and [n for n in range(input.dim()) if n != dim and index.shape[n] != input.shape[n]]
    if input.shape[dim] != index.edges.rows(index.side) or wide or (Tensor.dim(index) > 1 and index.place != dim):
        raise refusal(f"{name_of(func)} at the ends of edges", "give a tensor with a row for each own node")
    rows = torch.nonzero(index.edges.relation.degrees(out=index.side == "u")).view(-1)
    return getattr(input, "index_fill_" if changes(func) else "index_fill")(dim, rows, value)


# ---- functions of torch ------------------------------------------------------------


def _index_add(func: Any, input: Any, dim: int, index: Any, source: Any, *, alpha: float = 1) -> Any:
    return _put(func, input, dim, index, source, "sum", alpha)


def _reduce(func: Any, input: Any, dim: int, index: Any, src: Any = None, reduce: str = "", **named: Any) -> Any:
    src, include_self = named.get("source", src), named.get("include_self", True)
    return _put(func, input, dim, index, src, OPERATIONS[reduce], include_self=include_self)


def _scatter(
    func: Any, input: Any, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: Optional[str] = None
) -> Any:
    src = value if src is None else src
    if reduce is None or not isinstance(src, Tensor):
        return _set(func, input, dim, index, src)
    return _put(func, input, dim, index, src, OPERATIONS[reduce])


def _index_put(func: Any, input: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    (index,) = indices if len(indices) == 1 else (None,)
    if not accumulate:
        return _set(func, input, 0, index, values)
    if isinstance(index, EdgeEnds) and values.dim() < input.dim():
        values = values.expand(index.edges.num_edges, *input.shape[1:])
    return _put(func, input, 0, index, values, "sum")


def _index_copy(func: Any, input: Any, dim: int, index: Any, source: Any) -> Any:
    return _set(func, input, dim, index, source)


def _setitem(input: Any, index: Any, value: Any) -> Any:
    return _set(Tensor.__setitem__, input, 0, index, value)


HANDLERS: Dict[str, Callable[..., Any]] = {
    "scatter_add": partial(_put, op="sum"),
    "index_add": _index_add,
    "scatter_reduce": _reduce,
    "index_reduce": _reduce,
    "scatter": _scatter,
    "index_put": _index_put,
    "index_copy": _index_copy,
    "index_fill": _set,
}
"""By the name of the function that returns a new tensor; they are given the function and its arguments."""

for _name, _handler in HANDLERS.items():
    for _owner, _suffix in ((Tensor, "_"), (Tensor, ""), (torch, "")):
        _func = getattr(_owner, _name + _suffix)
        EdgeEnds.handlers[_func] = partial(_handler, _func)
EdgeEnds.handlers[Tensor.__setitem__] = _setitem
