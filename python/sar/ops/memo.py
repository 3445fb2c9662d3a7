"""Aggregates of tensors that do not change, computed once.

The first layer of most models aggregates the input features, which are the same in every epoch. A script that says so
(:func:`memoize`) has the sum or mean computed and exchanged once, at the price of keeping it.

A worker may not leave out an exchange that another one waits for. So as long as anything is memoized, every
aggregation begins with one small all-reduce, in which the workers find out whether all of them have the same result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, NamedTuple, Optional, Tuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from .. import _abi, _session

if TYPE_CHECKING:
    from .aggregate import Relation

# What a worker says of its operands: the number of a result it has, or that there is none yet, or that the operands are
# not memoized. One without source rows has nothing to say, and goes along.
_NONE_YET, _NOT_MEMOIZED = 0.0, -1.0
_KEPT_PER_RELATION = 8


class _Given(NamedTuple):
    """A tensor as it was given, and how often it had been changed by then."""

    tensor: Tensor
    version: int

    def unchanged(self) -> bool:
        return self.tensor._version == self.version


class _Result(NamedTuple):
    number: float
    what: Tuple[int, str, str]
    operands: Tuple[Any, ...]
    out: Tensor


class _Memo:
    def __init__(self) -> None:
        self.tensors: List[_Given] = []
        self.results: WeakKeyDictionary[Any, List[_Result]] = WeakKeyDictionary()
        self.made = 0

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]


_memo = _Memo()


def memoize(tensor: Tensor) -> None:
    """Says that a tensor is constant: sums and means of it over in-edges are computed and exchanged once, and kept.

    All workers call it, each with its own rows, in the same order; a tensor without rows too. It is meant for input
    features, ``float32`` or ``float64`` of any shape, that need no gradient. What is kept for each graph and reducer is
    a tensor of the size of the result. Only aggregations that read the tensor itself, as it is or reshaped, are
    memoized: SAGEConv's mean and GINConv's sum are, GraphConv's of features that it scales before is not.

    A change in place of the tensor (``features[0] = 1``, ``features.mul_(2)``), on any worker, is noticed, and the
    aggregate computed again, from then on each time, or until all workers call this again. Changes that torch does not
    count, through ``tensor.data`` or an array of numpy that shares its memory, are not.

    :param tensor: ``[num_src_nodes, ...]``
    :raises ValueError: the tensor needs a gradient, or was made in ``torch.inference_mode``
    """
    _session.current()
    if tensor.is_inference():
        raise ValueError(
            "sar.memoize: torch does not count the changes of tensors made in inference_mode; memoize a clone of it "
            "made outside"
        )
    if tensor.requires_grad:
        raise ValueError(
            "sar.memoize: this tensor needs a gradient, so its aggregate takes part in backward and cannot be kept; "
            "memoize input features, or call it with features.detach()"
        )
    _memo.tensors.append(_Given(tensor.detach(), tensor._version))


def forget() -> None:
    """Forgets all tensors of :func:`memoize`, and gives back what was kept. All workers call it."""
    _memo.clear()


def forward(
    relation: Relation, what: Tuple[int, str, str], need: int, u: Tensor, e: Optional[Tensor], out: Tensor
) -> int:
    """:func:`sar._abi.aggregate_forward`, with a result that was kept where every worker has it."""
    if not _memo.tensors:
        return _abi.aggregate_forward(relation.handle, what, need, u, e, out)
    kept = _memo.results.setdefault(relation, [])
    operands = tuple(None if t is None else _layout(t) for t in (u, e))
    says: Optional[float] = None
    if need or not all(t is None or t.numel() == 0 or _is_given(t) for t in (u, e)):
        says = _NOT_MEMOIZED
    elif u.numel():
        # the newest: a worker whose own rows stayed as they were has others' changes in it
        says = next((r.number for r in reversed(kept) if r.what == what and r.operands == operands), _NONE_YET)
    least, most = _range(says)
    if least == most and least > _NONE_YET:
        out.copy_(next(r.out for r in kept if r.number == least))
        return 0
    agreed = _abi.aggregate_forward(relation.handle, what, need, u, e, out)
    if not agreed and least >= _NONE_YET:
        _memo.made += 1
        kept.append(_Result(float(_memo.made), what, operands, out.clone()))
        del kept[:-_KEPT_PER_RELATION]
    return agreed


def _layout(t: Tensor) -> Tuple[Any, ...]:
    """What makes an operand the same as before: its memory is held by the list of given tensors, and how often it was
    changed tells what it holds from what it held when it was given before."""
    return t.data_ptr(), tuple(t.shape), t.stride(), t.dtype, 0 if t.is_inference() else t._version


def _is_given(t: Tensor) -> bool:
    first, end = t.data_ptr(), t.data_ptr() + t.numel() * t.element_size()
    for given in _memo.tensors:
        at = given.tensor.data_ptr()
        if given.unchanged() and at <= first and end <= at + given.tensor.numel() * given.tensor.element_size():
            return True
    return False


def _range(says: Optional[float]) -> Tuple[float, float]:
    """The least and the greatest of what workers say. Where none says anything, nothing is memoized."""
    most = float("inf")
    pair = torch.tensor([-most, -most] if says is None else [-says, says], dtype=torch.float64)
    _session.all_reduce(pair, "max", _abi.TRAIN)
    least, greatest = -float(pair[0]), float(pair[1])
    return (_NOT_MEMOIZED, _NOT_MEMOIZED) if least > greatest else (least, greatest)
