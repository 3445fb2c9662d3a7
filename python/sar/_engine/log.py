"""The logger of the package, ``sar``. It is silent until a script sets it up (:func:`sar.logging_setup`)."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Set

logger = logging.getLogger("sar")
logger.addHandler(logging.NullHandler())

_said: Set[str] = set()


def log_once(key: str, message: str) -> None:
    """Logs a warning the first time that ``key`` is seen in this process."""
    if key not in _said:
        _said.add(key)
        logger.warning(message)


def warn_user(message: str) -> None:
    """Gives a ``RuntimeWarning`` for the line of the script, or of the user's module, that led here."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, RuntimeWarning, stacklevel=level)


_LIBRARIES = ("sar", "torch", "torch_geometric")
