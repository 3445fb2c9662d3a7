"""Python processes that begin with torch and SAR imported: forks of one process, which imported them once.

Otherwise they are what ``subprocess.Popen([sys.executable, ...])`` gives, children of this process that end as Python
ends. Not for tests of what importing does, nor of how much memory a process takes.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 15, 36
PRELOADED = "tests.support.preloaded"


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """A process with ``words`` after the name of Python: a script, ``-c`` or ``-m``, and arguments.

    Of the options of ``subprocess.Popen``, those of the three streams, of the environment, the directory, and
    ``start_new_session``.

    :param inside: a process in whose network, mount and UTS namespaces this one begins; 0: in those of this process
    :param libraries: DGL and PyG are imported too, where they are there
    """

    def __init__(self, words: list[str], inside: int = 0, libraries: bool = False, **options: Any) -> None:
        self._inside, self._parent = inside, (with_libraries if libraries else parent)()
        super().__init__(words, **{"stdin": subprocess.DEVNULL, **options})

    def _execute_child(self, words: list[str], *given: Any) -> None:
        cwd, env = given[4:6]
        pipes = given[9:15]  # the two ends of input, of output, of errors; -1: this process's
        out, err = (end if end >= 0 else own for end, own in ((pipes[3], 1), (pipes[5], 2)))
        message = {"words": words, "env": dict(env or os.environ), "cwd": str(cwd or os.getcwd())}
        message |= {"session": given[20], "inside": self._inside}
        try:
            socket.send_fds(self._parent, [json.dumps(message).encode()], [pipes[0], out, err])
            self.pid = int(self._parent.recv(100))
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


@functools.lru_cache(None)
def parent() -> socket.socket:
    """The process that forks, at its first use. It ends with this one."""
    # its forks' own forks become children of this process when what made them ends
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if PRELOADED in sys.modules:  # this is such a process itself
        if not os.fork():
            ours.close()
            main(theirs)
        theirs.close()
        return ours
    subprocess.Popen(
        [sys.executable, "-m", __name__, str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # OpenMP starts no thread, which a fork would lack
    )
    theirs.close()
    return ours


LIBRARIES = f"""
import contextlib, gc, importlib, socket
from {__name__} import main
gc.disable()
for name in ("tests.support.templates", "dgl", "torch_geometric.nn"):
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
gc.enable()
gc.freeze()
main(socket.socket(fileno=0))
"""


@functools.lru_cache(None)
def with_libraries() -> socket.socket:
    """The process that forks those with DGL and PyG: a fork of the one without."""
    parent()  # first: a fork that held the other end of its own channel would not see this process end
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    Popen(["-c", LIBRARIES], stdin=theirs)
    theirs.close()
    return ours


def serve(channel: socket.socket) -> list[str]:
    """Forks a process for each message. Returns in those processes, with their words."""
    while True:
        message, files, _, _ = socket.recv_fds(channel, 1 << 20, 3)
        if not message:
            os._exit(0)
        child = os.fork()
        if not child:
            break
        os.waitpid(child, 0)
        for file in files:
            os.close(file)
    between = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == between:  # until then nobody can wait for this process
        time.sleep(0.001)
    given = json.loads(message)
    for namespace in ("net", "uts", "mnt") if given["inside"] else ():
        with open(f"/proc/{given['inside']}/ns/{namespace}", "rb") as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0):
                raise OSError(ctypes.get_errno(), "setns")
    name = next(word for word in given["words"] if word != "-m")
    ctypes.CDLL(None).prctl(PR_SET_NAME, Path(name).name.encode()[:15])  # what psutil and ps call it
    if given["session"]:
        os.setsid()
    channel.send(str(os.getpid()).encode())
    channel.close()
    for own, file in enumerate(files):
        os.dup2(file, own)
        os.close(file)
    os.environ.clear()
    os.environ.update(given["env"])
    os.chdir(given["cwd"])
    if given["env"].get("PYTHONUNBUFFERED"):
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    return list(given["words"])


def piped(words: list[str], **options: Any) -> Popen:
    """The same, whose output and errors are texts to read."""
    return Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def run(words: list[str], timeout: float = 120.0, **options: Any) -> subprocess.CompletedProcess[str]:
    """Such a process when it has ended: its exit code, and what it wrote."""
    with piped(words, **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def execute() -> None:
    """Runs what ``sys.argv`` says."""
    if sys.argv[0] == "-c":
        code = sys.argv.pop(1)
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    elif sys.argv[0] == "-m":
        sys.argv.pop(0)
        sys.path[0] = os.getcwd()
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(sys.argv[0]).parent)
        runpy.run_path(sys.argv[0], run_name="__main__")


def leave(code: int) -> None:
    """Ends the process without taking apart what torch is made of, which takes it a second."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def main(channel: socket.socket) -> None:
    """Forks processes, and is what each of them runs."""
    sys.argv = serve(channel)
    code = 0
    try:
        execute()
    except KeyboardInterrupt:
        raise
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        code = 1
    leave(code)


if __name__ == "__main__":
    importlib.import_module(PRELOADED)
    main(socket.socket(fileno=int(sys.argv[1])))
