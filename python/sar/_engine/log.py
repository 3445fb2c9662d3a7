"""The logger of the package, ``sar``. It is silent until a script sets it up (:func:`sar.logging_setup`)."""

from __future__ import annotations

import logging
from typing import Set

logger = logging.getLogger("sar")
logger.addHandler(logging.NullHandler())

_said: Set[str] = set()


def log_once(key: str, message: str) -> None:
    """Logs a warning the first time that ``key`` is seen in this process."""
    if key not in _said:
        _said.add(key)
        logger.warning(message)
