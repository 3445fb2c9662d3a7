"""Configures the log of SAR: each line with the time and the worker's rank."""

from __future__ import annotations

import logging
from typing import Optional, Union

from sar._engine import session as _session
from sar._engine.log import logger

__all__ = ["logger", "logging_setup"]

_handler: Optional[logging.Handler] = None


def logging_setup(
    log_level: Union[int, str], _rank: int = -1, _world_size: int = -1, log_file: Optional[str] = None
) -> None:
    """Shows the log of SAR, each line with the time and ``rank/world_size``.

    :param log_level: a level of :mod:`logging`, as a number or a name such as ``"INFO"``
    :param _rank: rank shown in front of each line; -1 takes the one of :func:`sar.initialize_comms`
    :param _world_size: number of workers shown; -1 likewise
    :param log_file: a file to append to; without one the log goes to standard error
    :raises ValueError: the level is unknown

    A second call replaces the first.
    """
    global _handler
    level = logging.getLevelName(log_level.upper()) if isinstance(log_level, str) else log_level
    if not isinstance(level, int):
        raise ValueError(f"log level {log_level!r} is unknown: give a number or one of DEBUG, INFO, WARNING, ERROR")
    handler: logging.Handler = logging.FileHandler(log_file) if log_file else logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(worker)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(_Worker(_rank, _world_size))
    if _handler is not None:
        logger.removeHandler(_handler)
        _handler.close()
    _handler = handler
    logger.addHandler(handler)
    logger.setLevel(level)


class _Worker(logging.Filter):
    """Adds ``worker``, as in ``0/4``, to every record."""

    def __init__(self, rank: int, world: int) -> None:
        super().__init__()
        self._rank, self._world = rank, world

    def filter(self, record: logging.LogRecord) -> bool:
        rank, world = self._rank, self._world
        session = _session.peek()
        if session is not None:
            rank = session.rank if rank < 0 else rank
            world = session.world if world < 0 else world
        record.worker = f"{'-' if rank < 0 else rank}/{'-' if world < 0 else world}"
        return True
