"""Functions of other libraries that would take the edges of one worker for all edges of a graph.

Nothing is put in their place, since modules that hold a function hold it under any name. It is the tensors that refuse:
they look for the function among the callers of torch's functions.
"""

from __future__ import annotations

import inspect
import sys
from types import FrameType
from typing import Any, Callable, Dict, Optional, Set, Tuple

from sar.errors import WholeGraphError

__all__ = ["check_readers", "refuse_in", "refuse_nowhere"]

_refused: Dict[Tuple[str, str], Tuple[str, str]] = {}
"""Name of the file and of the code, which torch.compile leaves as they are: what is refused, and what to do instead."""
_names: Set[str] = set()


def refuse_in(function: Callable[..., Any], name: str, instead: str) -> None:
    """Has tensors of edge indices raise :class:`sar.WholeGraphError` in a function, and in all that it calls.

    :param name: what users call it
    :param instead: what to do in place of it
    """
    code = inspect.unwrap(function).__code__
    _refused[code.co_filename, code.co_name] = name, instead
    _names.add(code.co_name)


def refuse_nowhere() -> None:
    """Undoes all of :func:`refuse_in`."""
    _refused.clear()
    _names.clear()


def check_readers() -> None:
    """Raises :class:`sar.WholeGraphError` where a function runs that must not read edge indices."""
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name in _names and (code.co_filename, code.co_name) in _refused:
            raise WholeGraphError(*_refused[code.co_filename, code.co_name])
        frame = frame.f_back
