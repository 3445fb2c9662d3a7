"""Caches aggregates of constant tensors.

The first layer of most models aggregates the input features, which are the same in every epoch. If a script declares
them constant (:func:`memoize`), their sum or mean is computed and exchanged once, and kept in memory.

A worker must not skip an exchange that another one waits for. So while anything is memoized, every aggregation begins
with one small all-reduce, by which the workers find out whether all of them have the result.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from sar._engine import abi, session as _session

from .types import Relation

# What a worker says of its operands: the number of a result it has, or that there is none yet, or that the operands are
# not memoized. One without rows has nothing to say, and goes along.
_NONE_YET, _NOT_MEMOIZED = 0.0, -1.0
_KEPT_PER_RELATION = 8


class _Given(NamedTuple):
    """A tensor as it was given, and how often it had been changed by then."""

    tensor: Tensor
    version: int

    def unchanged(self) -> bool:
        return self.tensor._version == self.version


class _Result(NamedTuple):
    """``givens``: the tensors that its operands lie in."""

    spec: abi.AggregateSpec
    operands: Tuple[Any, ...]
    givens: Tuple[_Given, ...]
    out: Tensor


class _Kept:
    """The results of one relation by number. All workers have the same numbers after they agreed (:meth:`agree`); in
    between a worker may drop some, which the others hear of when they agree the next time."""

    def __init__(self) -> None:
        self.results: Dict[float, _Result] = {}
        self._numbers: List[float] = []  # as agreed on

    def find(self, spec: abi.AggregateSpec, operands: Tuple[Any, ...]) -> float:
        """The number of the result of some operands."""
        return next((n for n, r in self.results.items() if (r.spec, r.operands) == (spec, operands)), _NONE_YET)

    def drop_changed(self) -> None:
        """Drops what was computed of tensors that changed since."""
        for number in [n for n, r in self.results.items() if not all(given.unchanged() for given in r.givens)]:
            del self.results[number]

    def agree(self, says: Optional[float]) -> Tuple[float, float]:
        """The least and the greatest of what workers say. Where none says anything, nothing is memoized. Results that
        one worker has dropped are dropped by all. Collective."""
        most = float("inf")
        pair = [-most, -most] if says is None else [-says, says]
        gone = [float(number not in self.results) for number in self._numbers]
        told = torch.tensor(pair + gone, dtype=torch.float64)
        _session.all_reduce(told, "max", abi.TRAIN)
        least, greatest, *dropped = told.tolist()
        self._numbers = [number for number, anywhere in zip(self._numbers, dropped) if not anywhere]
        self.results = {number: self.results[number] for number in self._numbers}
        return (_NOT_MEMOIZED, _NOT_MEMOIZED) if -least > greatest else (-least, greatest)

    def add(self, number: float, result: _Result) -> None:
        """Keeps a result: on all workers at once. What this one would have said of the operands so far goes."""
        if result.operands:
            self.results.pop(self.find(result.spec, result.operands), None)
        self._numbers.append(number)
        self.results[number] = result
        if len(self._numbers) > _KEPT_PER_RELATION:
            self.results.pop(self._numbers.pop(0), None)


class _Memo:
    def __init__(self) -> None:
        self.tensors: List[_Given] = []
        self.results: WeakKeyDictionary[Any, _Kept] = WeakKeyDictionary()
        self.made = 0

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]


_memo = _Memo()


def memoize(tensor: Tensor) -> None:
    """Declares a tensor constant: its sums and means over in-edges are computed and exchanged once, and kept.

    All workers call it, each with its own rows, in the same order; a tensor without rows too. It is meant for input
    features, ``float32`` or ``float64`` of any shape, that need no gradient. What is kept for each graph and reducer is
    a tensor of the size of the result. Only aggregations that read the tensor itself, as it is or reshaped, are
    memoized: SAGEConv's mean and GINConv's sum are, GraphConv's of features that it scales before is not.

    If the tensor is changed in place (``features[0] = 1``, ``features.mul_(2)``) on any worker, the kept results are
    dropped, and the aggregate is computed every time from then on, until all workers call this function again. Changes
    that torch does not track, through ``tensor.data`` or a numpy array that shares its memory, are not noticed.

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
    for kept in _memo.results.values():
        kept.drop_changed()
    _memo.tensors = [given for given in _memo.tensors if given.unchanged() or not _within(given.tensor, tensor)]
    _memo.tensors.append(_Given(tensor.detach(), tensor._version))


def clear_memoized() -> None:
    """Forgets all tensors of :func:`memoize`, and gives back what was kept. All workers call it."""
    _memo.clear()


def forward(relation: Relation, spec: abi.AggregateSpec, need: int, u: Tensor, e: Optional[Tensor], out: Tensor) -> int:
    """:func:`sar._engine.abi.aggregate_forward`, with a result that was kept where every worker has it."""
    if not _memo.tensors:
        return abi.aggregate_forward(relation.handle, spec, need, u, e, out)
    kept = _memo.results.setdefault(relation, _Kept())
    kept.drop_changed()
    operands = [t for t in (u, e) if t is not None and t.numel()]
    layouts = tuple(map(_layout, operands))
    givens = [given for given in map(_given, operands) if given is not None]
    says: Optional[float] = None
    if need & ~abi.FUSED or len(givens) < len(operands):
        says = _NOT_MEMOIZED
    elif operands:
        says = kept.find(spec, layouts)
    least, most = kept.agree(says)
    if least == most and least in kept.results:
        out.copy_(kept.results[least].out)
        return 0
    agreed = abi.aggregate_forward(relation.handle, spec, need, u, e, out)
    if not agreed & ~abi.FUSED and least >= _NONE_YET:
        _memo.made += 1
        kept.add(float(_memo.made), _Result(spec, layouts, tuple(givens), out.clone()))
    return agreed


def _layout(t: Tensor) -> Tuple[Any, ...]:
    """What makes an operand the same as before: its memory is held by the list of given tensors, and how often it was
    changed tells what it holds from what it held when it was given before."""
    return t.data_ptr(), tuple(t.shape), t.stride(), t.dtype, 0 if t.is_inference() else t._version


def _given(t: Tensor) -> Optional[_Given]:
    """The given tensor that t lies in and that did not change."""
    return next((given for given in _memo.tensors if given.unchanged() and _within(t, given.tensor)), None)


def _within(part: Tensor, whole: Tensor) -> bool:
    """Whether the memory of one tensor lies in that of another."""
    first, at = part.data_ptr(), whole.data_ptr()
    return at <= first and first + part.numel() * part.element_size() <= at + whole.numel() * whole.element_size()
