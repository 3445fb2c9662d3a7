"""Backward passes that raise a clear error if they are differentiated again.

Autograd cannot record the engine's backward passes. With ``create_graph=True`` torch records what backward does; here
it records a node that raises an error with the operation's name when it is differentiated.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, List, Optional, Tuple, Union

import torch
from torch import Tensor

from sar._engine import library

from .autocast import OFF, under

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
            recorded = torch.is_grad_enabled()
            with torch.no_grad(), under(OFF):
                given = backward(ctx, *grads)
            found = given if isinstance(given, tuple) else (given,)
            places = [n for n, t in enumerate(found) if isinstance(t, Tensor) and t.is_floating_point()]
            if not recorded or not places:
                return given
            # what the result depends on, so that a second pass towards any of it comes through here, and a tensor of
            # nobody's, so that a pass towards all leaves does
            behind = [t for t in (*grads, *_saved(ctx)) if isinstance(t, Tensor) and t.requires_grad]
            anchor = torch.empty(0, requires_grad=True)
            called = name if isinstance(name, str) else name(ctx)
            refusing = _Refuse.apply(called, [found[n] for n in places], anchor, *behind)
            made = list(found)
            for place, tensor in zip(places, refusing):
                made[place] = tensor
            return tuple(made) if isinstance(given, tuple) else made[0]

        return once

    return decorate


def _saved(ctx: Any) -> Tuple[Any, ...]:
    try:
        saved: Tuple[Any, ...] = ctx.saved_tensors
    except RuntimeError:  # torch's checkpoints give them once, and backward has had them
        return ()
    return saved


class _Refuse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str, results: List[Tensor], *behind: Tensor) -> Tuple[Tensor, ...]:
        ctx.name = name
        return tuple(t.detach() for t in results)

    @staticmethod
    def backward(ctx: Any, *grads: Optional[Tensor]) -> Any:
        raise RuntimeError(
            f"{ctx.name} cannot be differentiated twice: its backward pass runs in SAR's engine, where autograd does "
            "not record it. Leave out create_graph=True, or keep this operation out of what is differentiated again "
            "(detach its result, or its gradient)"
        )


def transformed() -> bool:
    """Whether one of torch.func's transforms (vmap, grad, jvp, ...) runs."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def refuse_transforms() -> None:
    """:raises RuntimeError: one of torch.func's transforms runs"""
    if transformed():
        raise RuntimeError(library.VECTORIZED)


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
