"""The ``sar`` command in the process of the tests: one of its own would take two seconds to import torch."""

from __future__ import annotations

import io
import os
import signal
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from types import FrameType
from typing import Optional
from unittest import mock

from sar import cli


def run_sar(*words: object, deadline: int = 120, **environment: str) -> subprocess.CompletedProcess[str]:
    """What ``sar`` with these words, in an environment with these variables more, returns and prints. Workers of
    ``sar launch`` are processes as always."""
    command = list(map(str, words))
    out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))

    def expired(number: int, frame: Optional[FrameType]) -> None:
        raise TimeoutError(f"sar {' '.join(command)} did not end within {deadline} s: {written(out)}{written(err)}")

    before = signal.signal(signal.SIGALRM, expired)
    signal.alarm(deadline)
    try:
        with mock.patch.dict(os.environ, environment), redirect_stdout(out), redirect_stderr(err):
            try:
                code = cli.main(command)
            except SystemExit as end:  # how argparse ends
                code = int(end.code or 0)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return subprocess.CompletedProcess(command, code, written(out), written(err))


def written(stream: io.TextIOWrapper) -> str:
    return stream.buffer.getvalue().decode()  # type: ignore[attr-defined]
