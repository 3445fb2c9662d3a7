"""The ``sar`` command in the process of the tests, and its workers as forks of a process that has imported torch."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from types import FrameType, SimpleNamespace
from typing import Any, Optional
from unittest import mock

from sar import cli
from sar.cli import workers
from tests.support import warm


def run_sar(
    *words: object, deadline: int = 120, warm_workers: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """What ``sar`` with these words, in an environment with these variables more, returns and prints.

    :param warm_workers: the workers of ``sar launch`` and ``sar infer`` are processes of ``tests/support/warm.py``, for
        tests of what workers do. Otherwise they are started as always
    """
    command = list(map(str, words))
    out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))

    def expired(number: int, frame: Optional[FrameType]) -> None:
        raise TimeoutError(f"sar {' '.join(command)} did not end within {deadline} s: {written(out)}{written(err)}")

    before = signal.signal(signal.SIGALRM, expired)
    signal.alarm(deadline)
    try:
        with ExitStack() as stack:
            stack.enter_context(mock.patch.dict(os.environ, environment))
            if warm_workers:
                stack.enter_context(mock.patch.object(workers, "subprocess", _WARM))
            stack.enter_context(redirect_stdout(out))
            stack.enter_context(redirect_stderr(err))
            try:
                code = cli.main(command)
            except SystemExit as end:  # how argparse ends
                code = int(end.code or 0)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return subprocess.CompletedProcess(command, code, written(out), written(err))


def _warm(command: list[str], preexec_fn: Any, **options: Any) -> warm.Popen:
    """``preexec_fn`` has the worker end with its launcher, which here is the process of the tests."""
    assert command[:2] == [sys.executable, "-u"]
    return warm.Popen(command[2:], **options)


_WARM = SimpleNamespace(**{**vars(subprocess), "Popen": _warm})
"""What the launcher finds as ``subprocess``."""


def written(stream: io.TextIOWrapper) -> str:
    return stream.buffer.getvalue().decode()  # type: ignore[attr-defined]
