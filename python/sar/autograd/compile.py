"""Keeps functions out of torch.compile's traces.

Exchanges between workers are not tensor operations, so a compiled function has a graph break around them and runs them
uncompiled. This module does not load torch's compiler. If a script has loaded it, as torch's optimizers do, a call
costs a few microseconds more.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, TypeVar, cast

import torch

F = TypeVar("F", bound=Callable[..., Any])


compiling: Callable[[], bool] = getattr(torch.compiler, "is_compiling", lambda: False)
"""Whether torch.compile traces the caller."""


def uncompiled(function: F) -> F:
    """Wraps a function so that torch.compile calls it, and all that it calls, without tracing."""
    untraced = torch._disable_dynamo(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        # called from what the compiler left as it is, its frames would be compiled one by one
        if compiling() or "torch._dynamo" in sys.modules:
            return untraced(*args, **kwargs)
        return function(*args, **kwargs)

    return cast(F, call)
