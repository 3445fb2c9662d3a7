"""Backward passes that are not recorded themselves, so that they cannot be differentiated again.

A backward pass of the engine is no operation that autograd knows. With ``create_graph=True`` torch records what
backward does; here it records a node that raises as soon as somebody differentiates it, and names the operation.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Optional, Tuple, Union

import torch
from torch import Tensor

__all__ = ["calling_layer", "differentiable_once"]

Backward = Callable[..., Any]


def differentiable_once(name: Union[str, Callable[[Any], str]]) -> Callable[[Backward], Backward]:
    """Decorates the ``backward`` of an autograd function, in place of torch's ``once_differentiable``.

    :param name: what errors call the operation, as "SAGEConv (fused)", or what makes that of ``ctx``
    :returns: the decorator. Backward runs without being recorded; a gradient that it gave raises RuntimeError where it
        is differentiated, also where the gradient that came in needs none, since the result may depend on inputs too
    """

    def decorate(backward: Backward) -> Backward:
        @functools.wraps(backward)
        def once(ctx: Any, *grads: Any) -> Any:
            if not torch.is_grad_enabled():
                return backward(ctx, *grads)
            with torch.no_grad():
                given = backward(ctx, *grads)
            found = given if isinstance(given, tuple) else (given,)
            tensors = [t for t in found if isinstance(t, Tensor) and t.is_floating_point()]
            if not tensors:
                return given
            anchor = torch.empty(0, dtype=tensors[0].dtype, requires_grad=True)
            refusing = iter(_Refuse.apply(anchor, name if isinstance(name, str) else name(ctx), *tensors))
            made = tuple(next(refusing) if isinstance(t, Tensor) and t.is_floating_point() else t for t in found)
            return made if isinstance(given, tuple) else made[0]

        return once

    return decorate


class _Refuse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, name: str, *tensors: Tensor) -> Tuple[Tensor, ...]:
        ctx.name = name
        return tuple(t.view_as(t) for t in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Optional[Tensor]) -> Any:
        raise RuntimeError(
            f"{ctx.name} cannot be differentiated twice: its backward pass runs in SAR's engine, where autograd does "
            "not record it. Leave out create_graph=True, or keep this operation out of what is differentiated again "
            "(detach its result, or its gradient)"
        )


def calling_layer(operation: str) -> str:
    """How errors call an operation: with the layer whose ``forward`` runs it, where there is one."""
    frame = sys._getframe(1)
    for _ in range(_DEPTH):
        frame = frame.f_back  # type: ignore[assignment]
        if frame is None:
            break
        code = frame.f_code
        if code.co_name == "forward":
            # before Python 3.11 code does not know its class; locals are not looked at, since that would keep them
            layer = getattr(code, "co_qualname", "").rpartition(".")[0].rpartition(".")[2]
            if layer and not layer.startswith("_"):
                return f"{layer}: {operation}"
    return operation


_DEPTH = 24
