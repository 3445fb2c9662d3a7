"""Shutdown and exit hooks."""

from __future__ import annotations

import atexit
import functools
import multiprocessing
import multiprocessing.util
import sys
from types import TracebackType
from typing import Callable, List, Optional, Type

import torch

from sar._engine import abi, interrupts, session as _session
from sar._engine.log import logger
from sar.autograd import memo
from sar.profiling import memory, metrics

from . import torch_transport
from .failure import tell_peers

_hooks_installed = False


def shutdown() -> None:
    """Tells the other workers that this one is leaving, and frees what the engine holds.

    Not collective, and harmless when called twice; it also happens when the interpreter exits. Workers that still wait
    for this one raise :class:`sar.PeerLostError`. Where rank 0 logs at level INFO, it waits half a second at most for
    the others, whose memory its closing line sums up.
    """
    session = _session.remove()
    if session is None:
        return
    memo.clear_memoized()
    try:
        metrics.stop()
        memory.log(session)
        session.lane.close()
        abi.session_close(session.handle)
    finally:
        torch_transport.release()
        made = session.process_group  # the script may have destroyed it, and made another
        if made is not None and torch.distributed.is_initialized() and torch.distributed.group.WORLD is made:
            torch.distributed.destroy_process_group()  # and all others, whose objects older versions of torch keep
            for handle in list(_session.groups):
                close_group(handle)


def add_group(handle: int) -> None:
    """Has the session of a process group closed when the process ends, and ended by Ctrl-C."""
    _session.groups.add(handle)
    install_hooks()


def close_group(handle: int) -> None:
    """Closes the session of a process group. Harmless when called twice."""
    if handle in _session.groups:
        _session.groups.discard(handle)
        abi.session_close(handle)


def install_hooks() -> None:
    """Has the process tell the others when it ends, and report its exception or Ctrl-C, if any. Once per process."""
    interrupts.watch(_interrupted)
    global _hooks_installed
    if _hooks_installed:
        return
    _hooks_installed = True
    atexit.register(_shutdown_quietly)
    previous = sys.excepthook

    def hook(kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> None:
        tell_peers(error)
        previous(kind, error, trace)

    sys.excepthook = hook
    if multiprocessing.parent_process() is not None:
        # a child of multiprocessing (and of torch.multiprocessing.spawn) ends without either of the above
        multiprocessing.util.Finalize(None, _end_of_child, exitpriority=100)


def _end_of_child() -> None:
    """What :mod:`multiprocessing` calls while an exception of the child's function is on its way."""
    error = sys.exc_info()[1]
    if isinstance(error, SystemExit) and error.code:
        error = error.__context__  # torch's spawn catches the exception, and exits
    if error is not None and not isinstance(error, SystemExit):
        tell_peers(error)
    _shutdown_quietly()


def _interrupted() -> None:
    """Ends what the main thread waits for in the engine, and tells the other workers."""
    for handle in _session.handles():
        abi.session_abort(handle, "KeyboardInterrupt: its user pressed Ctrl-C (SIGINT)")


def _shutdown_quietly() -> None:
    closing: List[Callable[[], None]] = [functools.partial(close_group, handle) for handle in _session.groups]
    for close in [shutdown, *closing]:
        try:
            close()
        except Exception as failure:
            logger.warning("closing a session failed: %s", failure)
