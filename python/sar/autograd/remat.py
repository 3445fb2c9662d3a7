"""Rematerialization of whole modules: activations are dropped in forward and recomputed in backward.

After T. Chen et al., "Training Deep Nets with Sublinear Memory Cost" (arXiv:1604.06174), on torch's
``torch.utils.checkpoint``. Here a module may hold collective operations; computing it again runs them again, in
backward, in the same order on every worker.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import Any, ContextManager, Dict, Iterator, List, Optional, Tuple, TypeVar

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from .types import class_of

M = TypeVar("M", bound=nn.Module)


def remat(module: M, enabled: bool = True, *, dtype: Optional[torch.dtype] = None) -> M:
    """Makes ``module`` save only its inputs for backward, and recompute everything else there.

    A stack of aggregation, linear map, batch norm, activation and dropout then saves one tensor per module: wrap each
    layer, or each block of layer, norm and activation. It costs a second forward pass, exchanges included. Gradients
    are the same numbers: random states are replayed, and running statistics of batch norms are not
    moved twice. Names of parameters stay. Call it on every worker alike, before the first forward.

    :param module: any module; changed in place. Its outputs may depend on its inputs, its parameters and on columns of
        graphs that are the same in backward as in forward (inside ``graph.local_scope()`` they are)
    :param enabled: ``False`` takes it back
    :param dtype: ``torch.bfloat16``: between the passes inputs lie in memory with 8 bits of precision, in half of the
        room. Results are the same; what backward computes again starts from inputs with a relative error of 2^-9 at
        most (an element each, rounded to nearest), and so gradients are off by about as much. Inputs that nothing
        computed, such as features, stay as they are. ``None``: inputs are kept as they are
    :returns: the module
    :raises TypeError: not a module, or another dtype
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"remat takes a torch.nn.Module, not {type(module).__name__}")
    if dtype not in (None, torch.bfloat16):
        raise TypeError(f"remat keeps inputs as they are (dtype=None) or as torch.bfloat16, not as {dtype}")
    if enabled and not isinstance(module, _Again):
        module.__class__ = _again(type(module))
    elif not enabled and isinstance(module, _Again):
        module.__class__ = class_of(module)
    if enabled:
        module.__dict__["_kept_as"] = dtype
    else:
        module.__dict__.pop("_kept_as", None)
    return module


class _Again:
    """Goes in front of a module's class. ``_forward`` of a module is what it computes in place of its class's."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        forward = self.__dict__.get("_forward") or super().forward  # type: ignore[misc]
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)

        def contexts() -> Tuple[ContextManager[Any], ContextManager[Any]]:
            return nullcontext(), _statistics_stay(self)  # type: ignore[arg-type]

        if self.__dict__.get("_kept_as") is not None:
            forward, args, kwargs = _rounded(forward, args, kwargs)

        # Stopping once every tensor of this worker is there again would skip collectives that another still runs.
        with set_checkpoint_early_stop(False):
            return checkpoint(forward, *args, use_reentrant=False, context_fn=contexts, **kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:  # the class is made here, so copies and pickles make it again
        return _copy, (class_of(self),), self.__dict__


def _rounded(forward: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Tuple[Any, Any, Any]:
    """A function that is called without tensors, and computes with them at first, then with what was kept of them."""
    boxes = [_Box(a) if _computed(a) else a for a in args]
    named = {name: _Box(a) if _computed(a) else a for name, a in kwargs.items()}

    def opened(*given: Any, **more: Any) -> Any:
        return forward(*map(_open, given), **{name: _open(a) for name, a in more.items()})

    return opened, boxes, named


def _computed(a: Any) -> bool:
    return isinstance(a, torch.Tensor) and a.dtype in (torch.float32, torch.float64) and not a.is_leaf


def _open(a: Any) -> Any:
    return a.take() if isinstance(a, _Box) else a


class _Box:
    """Returns a tensor the first time, and afterwards its values from the copy of half the size. Backward follows the
    operations of the first time, so what is returned later needs no history."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.first: Optional[torch.Tensor] = tensor
        self.kept = tensor.detach().to(torch.bfloat16)
        self.dtype, self.needs = tensor.dtype, tensor.requires_grad

    def take(self) -> torch.Tensor:
        tensor, self.first = self.first, None
        return self.kept.to(self.dtype).requires_grad_(self.needs) if tensor is None else tensor


_made: Dict[Any, Any] = {}


def _again(base: Any) -> Any:
    if base not in _made:
        same = {"__module__": base.__module__, "__doc__": base.__doc__, "_again_of": base}
        _made[base] = type(base.__name__, (_Again, base), same)
    return _made[base]


def _copy(base: Any) -> Any:
    return _again(base).__new__(_again(base))


@contextmanager
def _statistics_stay(module: nn.Module) -> Iterator[None]:
    """Batch norms inside compute as in training, but leave their running statistics where they are.

    They are given no weight, rather than not asked for: the operations, and what these save, must be those of forward.
    """
    tracking: List[Any] = [
        m for m in module.modules() if m.training and getattr(m, "track_running_stats", False) is True
    ]
    weights = [norm.momentum for norm in tracking]
    counts = [norm.num_batches_tracked.clone() for norm in tracking]
    try:
        for norm in tracking:
            norm.momentum = 0.0
        yield
    finally:
        for norm, weight, count in zip(tracking, weights, counts):
            norm.momentum = weight
            with torch.no_grad():
                norm.num_batches_tracked.copy_(count)  # which not every norm moves: InstanceNorm1d does not
