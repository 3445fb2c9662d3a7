"""Logs peak memory at the end of a run."""

from __future__ import annotations

import logging

from sar._engine import abi
from sar._engine.log import logger
from sar._engine.session import Session

WAIT_SECONDS = 0.5
"""How long rank 0 waits for the last figures of workers that end after it."""
_PURPOSES = ("tensors", "structure", "features", "window", "scratch", "runtime", "mapped")


def log(session: Session) -> None:
    """On rank 0, if the log is shown: logs the largest peaks of all workers. Logs nothing after a failure."""
    if session.rank != 0 or not logger.isEnabledFor(logging.INFO) or not logger.hasHandlers():
        return
    try:
        found = abi.session_memory(session.handle, WAIT_SECONDS)
    except Exception as failure:  # the session has failed, which the script was told
        logger.debug("no summary of memory: %s", failure)
        return
    peaks, known = found["peaks"], found["workers"]
    parts = ", ".join(f"{name} {_mib(peaks.get(name, 0))}" for name in _PURPOSES)
    missing = "" if known == session.world else f" ({known} of them known)"
    logger.info(
        "memory in MiB, the largest of %d worker(s)%s: %s in all; %s",
        session.world,
        missing,
        _mib(peaks.get("resident", 0)),
        parts,
    )


def _mib(count: int) -> str:
    return f"{count / (1 << 20):.0f}"
