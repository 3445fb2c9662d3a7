"""The ``sar`` command in the process of the tests, and what it starts as forks of a process that has imported torch."""

from __future__ import annotations

import functools
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
from sar.cli import doctor, workers
from tests.support import ROOT, warm


def exit_code(*words: object) -> int:
    """That of the command, in this process."""
    try:
        return cli.main([str(word) for word in words])
    except SystemExit as end:  # how argparse ends
        return int(end.code or 0)


def run_sar(
    *words: object, deadline: int = 120, fresh: bool = False, libraries: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """What ``sar`` with these words, in an environment with these variables more, returns and prints.

    :param fresh: workers and the probes of ``sar doctor`` are started as always. Otherwise they are processes of
        ``tests/support/warm.py``
    :param libraries: these have DGL and PyG imported
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
            for module in () if fresh else (workers, doctor):
                stack.enter_context(mock.patch.object(module, "subprocess", warm_ones(libraries)))
            stack.enter_context(redirect_stdout(out))
            stack.enter_context(redirect_stderr(err))
            code = exit_code(*command)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return subprocess.CompletedProcess(command, code, written(out), written(err))


def launch_fresh(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """``sar launch`` with workers that are started as always: for scripts that do not import torch, which take less
    time so, and for tests of what surrounds workers, such as the processors that they are bound to."""
    return run_sar("launch", *words, fresh=True, **environment)


def _warm(command: list[str], preexec_fn: Any = None, **options: Any) -> subprocess.Popen[Any]:
    """``preexec_fn`` has the worker end with its launcher, which here is the process of the tests."""
    if command[0] != sys.executable:  # ssh
        return subprocess.Popen(command, preexec_fn=preexec_fn, **options)
    return warm.Popen([word for word in command[1:] if word != "-u"], **options)


def warm_ones(libraries: bool = False) -> SimpleNamespace:
    """What the launcher finds as ``subprocess``."""
    return SimpleNamespace(**{**vars(subprocess), "Popen": functools.partial(_warm, libraries=libraries)})


WARM = warm_ones()


def started(*words: object, **options: Any) -> warm.Popen:
    """``sar`` with these words as a process of its own, whose workers are processes of ``tests/support/warm.py``."""
    return warm.Popen(["-m", __name__, *map(str, words)], **{"cwd": ROOT, **options})


def torchrun(*words: object, **options: Any) -> warm.Popen:
    """torchrun with these words, and its workers, as processes of ``tests/support/warm.py``."""
    return started("torchrun", *words, **options)


def _of_torchrun(handler: Any, args: tuple[str, ...], env: dict[str, str]) -> subprocess.Popen[Any]:
    """How torchrun starts a worker."""
    return _warm(list(args), env=env, stdout=handler._stdout, stderr=handler._stderr, start_new_session=True)


def written(stream: io.TextIOWrapper) -> str:
    return stream.buffer.getvalue().decode()  # type: ignore[attr-defined]


if __name__ == "__main__":
    if sys.argv[1] == "torchrun":
        from torch.distributed import run
        from torch.distributed.elastic.multiprocessing import api

        with mock.patch.object(api.SubprocessHandler, "_popen", _of_torchrun):
            run.main(sys.argv[2:])
    else:
        with mock.patch.object(workers, "subprocess", WARM):
            sys.exit(cli.main(sys.argv[1:]))
