"""Names the function of a library in which something is asked of a graph, for errors."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Optional, Tuple

__all__ = ["called_by"]

_THROUGH = ("sar", "torch", "functools", "contextlib", "copy", "importlib")
"""Packages whose calls are passed over on the way to a library's function."""


def called_by(libraries: Tuple[str, ...], otherwise: str = "") -> str:
    """The outermost function of one of the libraries that runs, of those that the user's code called last.

    :param libraries: names of packages
    :param otherwise: what is said where there is none
    :returns: ``package.module.function`` or ``package.module.Class.method``
    """
    frame: Optional[FrameType] = sys._getframe(1)
    found = otherwise
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        package = module.partition(".")[0]
        if package in libraries:
            found = f"{module}.{_name(frame)}"
        elif package not in _THROUGH:
            break
        frame = frame.f_back
    return found


def _name(frame: FrameType) -> str:
    local: Any = frame.f_locals
    name = frame.f_code.co_name
    if "self" in local:
        return f"{type(local['self']).__name__}.{name}"
    return f"{local['cls'].__name__}.{name}" if isinstance(local.get("cls"), type) else name
