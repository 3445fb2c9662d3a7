"""Declares functions of users that treat each edge by itself."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, TypeVar

import torch
from torch import nn

from sar.autograd.compile import uncompiled

F = TypeVar("F", bound=Callable[..., Any])


def rowwise(function: F) -> F:
    """Declares that a function, or a module, treats each edge by itself: a row of its result depends on the same row of
    its arguments alone.

    SAR knows that of most functions of torch, so that what a message computes runs on blocks of edges. A function that
    it does not know gets the values of all edges of a worker, for which a tensor is made. Declared, it runs on blocks,
    and again in backward, where its results are not kept. ::

        class Layer(MessagePassing):
            def __init__(self):
                super().__init__()
                self.lstm = sar.rowwise(torch.nn.LSTM(16, 16, batch_first=True))

            def message(self, x_j):
                return self.lstm(x_j.view(-1, 4, 16))[0].flatten(1)

    :param function: takes tensors ``[num_edges, ...]``, in any arguments, and returns one, or several in a tuple or
        list. What all edges share it has in its closure, in ``functools.partial``, or as parameters of the module. It
        has to do nothing but compute: it runs once for each block, and once more on tensors without data
        (torch's fake tensors) which say what it returns. A module must not write its buffers
    :returns: the module itself, changed so that its ``forward`` does this; or a function that does it. Called without
        tensors of edges, both do what they did before
    :raises ValueError: when it is called: a tensor that has not a row for each edge
    :raises RuntimeError: when it is called: buffers of the module were written
    """
    if isinstance(function, nn.Module):
        function.forward = _Forward(function)
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _called(function, function, args, kwargs)

    return call  # type: ignore[return-value]


class _Forward:
    """The ``forward`` of a module that was declared; can be copied and pickled with it."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _called(self._run, self.module, args, kwargs)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        module = self.module
        before = [(name, b, b.clone()) for name, b in module.named_buffers()]
        found = type(module).forward(module, *args, **kwargs)
        for name, buffer, old in before:
            if not hasattr(old, "fake_mode") and not torch.equal(buffer, old):
                raise RuntimeError(
                    f"sar.rowwise: {type(module).__name__} wrote its buffer {name!r}, once for each block of edges. A "
                    "module that does so, as batch norm in training does, cannot be declared"
                )
        return found


@uncompiled
def _called(run: Callable[..., Any], owner: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
    from .declared import called  # few scripts declare functions

    return called(run, owner, args, kwargs)
