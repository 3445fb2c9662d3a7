"""Handles Ctrl-C while the engine waits.

Python runs its SIGINT handler only after the main thread has returned from the engine, which may be waiting for another
worker. So a thread learns of the signal through :func:`signal.set_wakeup_fd`. If the main thread stays in the same
call, this thread ends the session: the call returns, the handler runs, and the other workers are told.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from typing import Callable, Optional

PATIENCE = 0.1
"""Seconds that a call may go on after the signal."""

_main_thread = threading.main_thread().ident
_call = 0  # number of the main thread's call into the engine; negative between two calls
_sockets: Optional[tuple[socket.socket, socket.socket]] = None


def around() -> int:
    """The value to pass to :func:`left` after the next call: whether that call is nested in another one."""
    return _call


def entering() -> None:
    """Notes that a call into the engine begins."""
    global _call
    if threading.get_ident() == _main_thread:
        _call = abs(_call) + 1


def left(outer: int) -> None:
    """Notes that the call has ended, in whatever way. If it was nested, the outer call continues."""
    global _call
    if threading.get_ident() == _main_thread:
        _call = abs(_call) + 1 if outer > 0 else -abs(_call)


def watch(interrupt: Callable[[], None]) -> None:
    """Calls ``interrupt`` if SIGINT arrives while the main thread is in the engine. To be called from the main thread.
    Does nothing if the wake-up descriptor is in use, or if the signal's handler raises no exception."""
    global _sockets
    if _sockets is not None or threading.current_thread() is not threading.main_thread():
        return
    near, far = socket.socketpair()
    far.setblocking(False)
    previous = signal.set_wakeup_fd(far.fileno(), warn_on_full_buffer=False)
    if previous != -1:  # an event loop's
        signal.set_wakeup_fd(previous)
        near.close()
        far.close()
        return
    _sockets = near, far
    threading.Thread(target=_run, args=(near, interrupt), name="sar-interrupt", daemon=True).start()


def _run(wakeups: socket.socket, interrupt: Callable[[], None]) -> None:
    while True:
        numbers = wakeups.recv(64)
        if not numbers:
            return
        if signal.SIGINT in numbers and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            if _stays():
                interrupt()
            else:
                # a signal that came while this thread slept was handled, or waits for the end of a later call; of
                # which one cannot be told any more, and ending the wrong one would lose a session
                with contextlib.suppress(BlockingIOError):
                    wakeups.recv(64, socket.MSG_DONTWAIT)


def _stays() -> bool:
    """Whether the main thread is in a call into the engine and stays there. Otherwise the handler runs, and a script
    that catches its exception may already be in the next call."""
    seen = _call
    if seen <= 0:
        return False
    time.sleep(PATIENCE)
    return seen == _call


def _forget() -> None:
    """Closes the sockets in a forked child, which would wake its parent's thread."""
    global _sockets
    if _sockets is not None:
        signal.set_wakeup_fd(-1)
        for end in _sockets:
            end.close()
        _sockets = None


os.register_at_fork(after_in_child=_forget)
