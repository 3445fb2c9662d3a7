"""The agent of ``sar launch`` on another host, started there over ssh: runs one worker, whose output is its own.

It decides nothing. On its standard input come lines: what is to run, when to begin, then signals for the worker; an
empty line is a sign of life. When they end, since the launcher or the connection to it is gone, it ends the worker.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import sar
from sar.distributed.network import free_port

from .binding import seats
from .workers import DRAIN_SECONDS, TERMINATE_SECONDS, signal_group, spawn

GREETING = b"\0sar agent\n"
"""Comes on standard output after whatever a login shell prints. A line of JSON follows, then what the worker prints."""
ENDED = b"\0sar ended "
"""Comes last on standard error, with the worker's exit code."""

_SILENT_SECONDS = 600.0  # then the launcher is gone; it may be stopped at its terminal for a while


def lines(source: int) -> Iterator[bytes]:
    """What the launcher says, until the connection to it ends, or it has said nothing for long."""
    unread = b""
    while select.select([source], [], [], _SILENT_SECONDS)[0] and (data := os.read(source, 1 << 16)):
        *whole, unread = (unread + data).split(b"\n")
        yield from filter(None, whole)


def prepare(order: dict[str, Any]) -> None:
    """Goes where the worker is to work, and sets its environment.

    :raises ValueError: something is not here as the launcher expects it
    """
    if order["version"] != sar.__version__:
        raise ValueError(
            f"SAR {sar.__version__} is installed here and {order['version']} at the launcher: "
            "install one version on every host"
        )
    try:
        os.chdir(order["directory"])
    except OSError as error:
        raise ValueError(
            f"cannot work in {order['directory']}: {error.strerror}. Start where all hosts have the same "
            "directory, such as on a shared file system, or name one with --directory"
        ) from None
    os.environ.update(order["environment"])


def main() -> int:
    said = lines(sys.stdin.fileno())
    order = json.loads(next(said, b"{}"))
    if not order:
        return 1
    try:
        prepare(order)
        seat = seats(order["bind"], order["workers"], order["threads"])[order["local_rank"]]
        answer: dict[str, Any] = {"port": free_port() if order["port"] else 0}
    except (ValueError, OSError) as error:
        answer = {"trouble": str(error)}
    os.write(sys.stdout.fileno(), GREETING + json.dumps(answer).encode() + b"\n")
    place = json.loads(next(said, b"0"))
    if "trouble" in answer or not isinstance(place, dict):  # where the job does not start, nothing comes, or a signal
        return 1
    environment = {**os.environ, **place, **seat.variables()}
    worker = spawn(order["command"], seat, env=environment, stdin=subprocess.DEVNULL)

    def end(*unused: object) -> None:
        signal_group(worker.pid, signal.SIGTERM)
        time.sleep(TERMINATE_SECONDS)
        signal_group(worker.pid, signal.SIGKILL)
        time.sleep(DRAIN_SECONDS)
        os._exit(1)  # what is left to say has no hearer

    def obey() -> None:
        for number in said:
            signal_group(worker.pid, int(number))
        end()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: threading.Thread(target=end, daemon=True).start())
    threading.Thread(target=obey, daemon=True).start()
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    signal_group(worker.pid, signal.SIGKILL)  # children it left, before its number may be another's
    os.write(sys.stderr.fileno(), ENDED + b"%d\n" % worker.wait())
    return 0


if __name__ == "__main__":
    sys.exit(main())
