"""The lazy result of batch norm: computed when it is first read.

Batch norm returns a :class:`DeferredTensor`, which has no memory. It is the result of one autograd node, ``_Normalize``
of :mod:`sar.autograd.fused.batch_norm`. That node runs batch norm's collectives, so it exists whether or not a script
reads the tensor, and in whatever order. A reader adds a node of its own behind it (:class:`_Read`), which is local:

- ReLU is deferred too, and computed directly from batch norm's input. The normalized rows are never materialized, nor
  saved for backward.
- A layer that needs some rows at a time (:meth:`State.unread`) computes them, and again in backward.
- Dropout is deferred too, and drawn again in backward. Dropout that drops nothing (``p=0``, or evaluation) gives the
  same tensor.
- Any other reader computes the rows once and gets an ordinary tensor. A later ReLU reads these rows too.

Shape, dtype and the like are free. Hooks, ``retain_grad`` and ``torch.autograd.grad`` work as on any tensor.

Code that does not use torch's function overrides, such as an ``autograd.Function``, gets the values, and its gradient
goes directly to batch norm's node.
"""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Protocol, Tuple, Type

import torch
import torch.nn.functional as F
from torch import Tensor

from sar.autograd.compile import uncompiled
from sar.autograd.double_backward import differentiable_once
from sar.graph.edge_tensor.functions import METADATA, OF_AUTOGRAD, changes
from sar.graph.edge_tensor.nested import mapped

from .dropout import Drop
from .recompute import Recipe


class Rule(Protocol):
    """How to compute a tensor from its source."""

    def apply(self, source: Tensor) -> Tensor:
        """The values, in new memory."""


class DeferredTensor(Tensor):
    """A tensor of the shape and dtype of ``source``, computed from it when it is first read.

    :param source: without history; must not be changed in place before it is read. Layers that save it in place of the
        rows (:mod:`sar.autograd.fused.recompute`) refer to it weakly: batch norm's node saves this very object
    :param state: the class that holds the values. None: :class:`State`
    """

    _state: State
    """What is known of it."""

    @staticmethod
    def __new__(cls, source: Tensor, rule: Rule, state: Optional[Type[State]] = None) -> DeferredTensor:
        self: DeferredTensor = Tensor._make_wrapper_subclass(
            cls, source.shape, dtype=source.dtype, device=source.device
        )
        self._state = (state or State)(source, rule)
        return self

    @classmethod
    @uncompiled
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (Tensor.backward, torch.autograd.backward) and kwargs.get("inputs") is None:
            # what is recomputed on the way defers again, so function overrides stay on
            with torch.enable_grad():  # which torch's reentrant checkpoint has off here
                args, kwargs = computed(args), computed(kwargs)
            return func(*args, **kwargs)
        if func in METADATA or func in OF_AUTOGRAD:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        target = args[0] if args and isinstance(args[0], DeferredTensor) else None
        if target is not None and func in _DROPOUT:
            share = _share(*args[1:], **kwargs)
            found: Optional[Tensor] = target if share == 0 else None
            if share and not changes(func):
                found = target._state.dropout(target, share)
            if found is not None:
                return found
        if func in _RELU and target is not None:
            in_place = changes(func) or (args[1] if len(args) > 1 else kwargs.get("inplace", False))
            found = target._state.relu(target, bool(in_place))
            if found is not None:
                return found
        result = func(*(computed(a) for a in args), **{k: computed(v) for k, v in kwargs.items()})
        if target is not None and changes(func):
            target._state.changed(target)
        return result

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any = None) -> Any:  # type: ignore[override]
        # code that does not ask __torch_function__ arrives here, below autograd
        return func(*(_values(a) for a in args), **{k: _values(v) for k, v in (kwargs or {}).items()})


class State:
    """What is known of a deferred tensor.

    :ivar gradients: by which backward of the node that makes the tensor checks its gradient
    """

    def __init__(self, source: Tensor, rule: Rule) -> None:
        self.source, self._version, self.rule = source, source._version, rule
        self._values: Optional[Tensor] = None  # without history; the memory of all others
        self._plain: Optional[Tensor] = None  # the same under autograd
        self.gradients = Gradients()

    def plain(self, tensor: DeferredTensor) -> Tensor:
        """As an ordinary tensor, differentiable where gradients are enabled."""
        differentiable = torch.is_grad_enabled() and tensor.requires_grad
        if self._plain is None or (differentiable and not self._plain.requires_grad):
            given = None if self._values is None else self._values.detach()
            self._plain = self._read(tensor, None, given)
            if given is None and self._plain.requires_grad and isinstance(self.rule, Recipe):
                self.rule.note(self._plain, self.source)
            self._values = self._plain.detach()
        return self._plain

    def values(self) -> Tensor:
        """As an ordinary tensor without history, for code below autograd."""
        if self._values is None:
            with torch.no_grad():
                self._values = self.compute()
        return self._values

    def relu(self, tensor: DeferredTensor, in_place: bool) -> Optional[Tensor]:
        """ReLU of it, where batch norm alone makes it and nobody has read it before."""
        rule = self._unread_rule()
        if rule is None or rule.activation != "none" or rule.drop is not None:
            return None
        self._check()
        rule = rule._replace(activation="relu")
        if not in_place:
            return self._read(tensor, rule, DeferredTensor(self.source, rule))
        made = self._read(tensor, rule, None)
        if made.requires_grad:
            rule.note(made, self.source)
        self._plain, self._values = made, made.detach()
        self.changed(tensor)
        return made

    def dropout(self, tensor: DeferredTensor, share: float, seed: Optional[int] = None) -> Optional[Tensor]:
        """Dropout of it, where a batch norm makes it and nobody has read it before.

        :param seed: None: what was agreed on with the statistics, or a number of this worker's torch generator
        """
        rule = self._unread_rule()
        if rule is None or rule.drop is not None or not rule.in_engine or rule.draws is None:
            return None
        self._check()
        drop = rule.draws.next(share) if seed is None else Drop(share, seed, rule.draws.keys)
        made = DeferredTensor(self.source, rule._replace(drop=drop))
        return self._read(tensor, Recipe(rule.columns, drop=drop), made)

    def _unread_rule(self) -> Optional[Recipe]:
        """How batch norm makes it, where gradients are recorded and nobody has read it before."""
        unread = self._values is None and torch.is_grad_enabled()
        return self.rule if unread and isinstance(self.rule, Recipe) else None

    def changed(self, tensor: DeferredTensor) -> None:
        """Notes a change in place."""
        if torch.is_grad_enabled():
            self.gradients.changed = True
        with torch._C.DisableTorchFunctionSubclass():
            torch.autograd.graph.increment_version(tensor)

    def unread(self) -> Optional[Tuple[Tensor, Callable[[Tensor, int], Tensor]]]:
        """What it is computed from, and what computes any run of its rows from the same of that and the number of the
        first; None if its values are there already, since they may have been changed in place."""
        if self._values is not None or not isinstance(self.rule, Recipe) or not self.rule.in_engine:
            return None
        self._check()
        return self.source, self.rule.apply

    def compute(self) -> Tensor:
        """The values anew."""
        self._check()
        return self.rule.apply(self.source)

    def _check(self) -> None:
        if self.source._version != self._version:
            raise RuntimeError(
                "the input of batch norm was changed in place before the result was read: batch norm keeps its input "
                "for backward, so change a copy, or change it after"
            )

    def _read(self, tensor: DeferredTensor, step: Optional[Recipe], given: Optional[Tensor]) -> Tensor:
        with torch._C.DisableTorchFunctionSubclass():
            made: Tensor = _Read.apply(tensor, self, step, (given,))
        return made


class Gradients:
    """Tells where the gradient of a deferred tensor comes from, if the tensor was changed in place.

    Autograd records such a change behind :class:`_Read` only, so a gradient from anywhere else is wrong.
    """

    def __init__(self) -> None:
        self.changed = False  # in place, in a way that autograd differentiates
        self._read: List[Tensor] = []

    def read(self, grad: Tensor) -> Tensor:
        """Notes the gradient that a reader gives back."""
        if self.changed:
            self._read.append(grad)
        return grad

    def check(self, grad: Tensor) -> None:
        """Refuses a gradient that is not the sum of what readers gave back."""
        read, self._read = self._read, []
        if not self.changed or (len(read) == 1 and grad is read[0]):
            return
        if not read or not torch.allclose(grad, torch.stack(read).sum(0), equal_nan=True):
            raise RuntimeError(
                "the result of batch norm was changed in place, and also went through an operation that does not "
                "follow torch's function overrides (often an autograd.Function), so its gradient would be wrong: give "
                "that operation a copy, batch_norm(x).clone(), or do not change it in place"
            )


class _Read(torch.autograd.Function):
    """A tensor with the values of a deferred one, or with ReLU or dropout of them, which may be deferred. Local in both
    passes. ``step``: what is done to the values, or how ReLU is computed from the source; None: they are read as they
    are."""

    @staticmethod
    def forward(
        ctx: Any, tensor: Tensor, state: State, step: Optional[Recipe], given: Tuple[Optional[Tensor]]
    ) -> Tensor:
        ctx.step, ctx.gradients = step, state.gradients
        if step:  # else nothing: a block of torch.utils.checkpoint reads in its first pass alone what came from another
            ctx.save_for_backward(state.source)
        (values,) = given  # in a tuple, as it is no input to autograd
        ctx.own = values._state.gradients if isinstance(values, DeferredTensor) else None
        if values is not None:
            return values
        return state.compute() if step is None else step.apply(state.source)

    @staticmethod
    @differentiable_once("batch norm")
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        if ctx.own is not None:
            ctx.own.check(grad)
        if ctx.step is not None:
            (source,) = ctx.saved_tensors
            grad = ctx.step.back(grad, source)
        return ctx.gradients.read(grad), None, None, None


_RELU = frozenset([torch.relu, torch.relu_, Tensor.relu, Tensor.relu_, F.relu])
_DROPOUT = frozenset([F.dropout, torch.dropout, torch.dropout_])


def _share(
    p: float = 0.5, training: bool = True, inplace: bool = False, *, train: Optional[bool] = None
) -> Optional[float]:
    """What dropout with these arguments behind the first one drops: 0 where it gives its input as it is, None where
    torch should see to it."""
    on = training if train is None else train
    if p == 0 or (not on and 0 < p <= 1):
        return 0
    return float(p) if on and not inplace and 0 < p <= 1 else None


def computed(tree: Any) -> Any:
    """The same structure with every :class:`DeferredTensor` as an ordinary tensor."""
    return mapped(tree, lambda t: t._state.plain(t) if isinstance(t, DeferredTensor) else t)


def _values(tree: Any) -> Any:
    return mapped(tree, lambda t: t._state.values() if isinstance(t, DeferredTensor) else t)
