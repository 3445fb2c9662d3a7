"""Tensors that are not computed until somebody reads them.

Batch norm gives one. ReLU of it is computed from the input of batch norm at once, so that the normalized rows are
never made, nor kept for ReLU's backward. Whatever else reads it computes it, and sees an ordinary tensor. Shape, dtype
and the like are free.

Code that does not ask torch's function overrides, such as an ``autograd.Function``, gets the values, and gradients of
it arrive: for this the tensor is a result of batch norm to autograd as well, though without memory.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .lazy import METADATA, changes

__all__ = ["DeferredTensor", "computed"]

Make = Callable[[bool, Optional[Tensor]], Tensor]
"""The tensor under autograd: with ReLU or without, and of which values, where they were computed before."""


class DeferredTensor(Tensor):
    """A tensor of the shape and dtype of ``source``, computed of it where it is needed.

    :param source: must not be changed in place before
    :param make: computes it
    """

    _state: _State

    @staticmethod
    def __new__(cls, source: Tensor, make: Make) -> DeferredTensor:
        self: DeferredTensor = Tensor._make_wrapper_subclass(
            cls, source.shape, dtype=source.dtype, device=source.device
        )
        self._state = _State(source, make)
        return self

    def __init__(self, source: Tensor, make: Make) -> None:
        pass

    def follow(self, result: Tensor) -> Tensor:
        """``result``, which is this tensor as autograd gives it back, watched for gradients that would be wrong."""
        assert isinstance(result, DeferredTensor)
        result._state = self._state
        with torch._C.DisableTorchFunctionSubclass():
            if result.requires_grad:
                result.register_hook(self._state.check)
        return result

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if func in _RELU and args and isinstance(args[0], DeferredTensor):
            in_place = changes(func) or (args[1] if len(args) > 1 else kwargs.get("inplace", False))
            found = args[0]._state.relu(bool(in_place))
            if found is not None:
                return found
        return func(*(computed(a) for a in args), **{k: computed(v) for k, v in kwargs.items()})

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        # code that does not ask __torch_function__ arrives here, below autograd
        return func(*(_values(a) for a in args), **{k: _values(v) for k, v in (kwargs or {}).items()})


class _State:
    """What is known of a deferred tensor."""

    def __init__(self, source: Tensor, make: Make) -> None:
        self._source, self._version, self._make = source.detach(), source._version, make
        self._values: Optional[Tensor] = None  # without history; the memory of all others
        self._plain: Optional[Tensor] = None
        self._replaced = False

    def plain(self) -> Tensor:
        """As an ordinary tensor, differentiable where gradients are enabled."""
        if self._plain is None or (torch.is_grad_enabled() and not self._plain.requires_grad):
            self._plain = self._made(False, self.values() if self._values is not None else None)
            self._values = self._plain.detach()
        return self._plain

    def values(self) -> Tensor:
        """As an ordinary tensor without history."""
        if self._values is None:
            with torch.no_grad():
                self._values = self._made(False, None)
        return self._values

    def relu(self, in_place: bool) -> Optional[Tensor]:
        """ReLU of it, where nobody has seen it before."""
        if self._values is not None or not torch.is_grad_enabled():
            return None
        made = self._made(True, None)
        if in_place:
            self._plain, self._values, self._replaced = made, made.detach(), True
        return made

    def check(self, grad: Tensor) -> None:
        """Gradients of operations that follow torch's function overrides do not come this way."""
        if self._replaced or (self._values is not None and self._values._version):
            raise RuntimeError(
                "the result of batch norm was changed in place, and then went through an operation that does not "
                "follow torch's function overrides (often an autograd.Function), so its gradient would be wrong: give "
                "that operation a copy, batch_norm(x).clone(), or do not change it in place"
            )

    def _made(self, relu: bool, values: Optional[Tensor]) -> Tensor:
        if values is None and self._source._version != self._version:
            raise RuntimeError(
                "the input of batch norm was changed in place before the result was read: batch norm keeps its input "
                "for backward, so change a copy, or change it after"
            )
        with torch._C.DisableTorchFunctionSubclass():
            return self._make(relu, None if values is None else values.detach())


_RELU = frozenset([torch.relu, torch.relu_, Tensor.relu, Tensor.relu_, F.relu])


def computed(tree: Any) -> Any:
    """The same structure with every :class:`DeferredTensor` as an ordinary tensor."""
    return _mapped(tree, lambda t: t._state.plain())


def _values(tree: Any) -> Any:
    return _mapped(tree, lambda t: t._state.values())


def _mapped(tree: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(tree, DeferredTensor):
        return function(tree)
    if isinstance(tree, (list, tuple)):
        made = [_mapped(item, function) for item in tree]
        return type(tree)(*made) if hasattr(tree, "_fields") else type(tree)(made)
    if isinstance(tree, dict):
        return {key: _mapped(item, function) for key, item in tree.items()}
    return tree
