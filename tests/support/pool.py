"""Worker processes that live for the whole test run and form one session after another.

The first P of them are the ranks of a session of P workers. A case is a function of a module; it runs on every rank at
the same time, with arguments of its own. Arrays travel as numpy, so no process imports DGL unless a case does.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import pickle
import subprocess
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any, Callable, NamedTuple

from sar.distributed.network import free_port
from tests.support import ROOT, warm

Case = Callable[..., Any]
"""A function at the top level of a module that worker processes can import."""

ENVIRONMENT = dict(os.environ)
"""That of workers, whatever the test that needs them first has set."""

PATIENCE = 120.0
"""Seconds after which a case that does not end is given up, and the processes with it."""


class Failure(NamedTuple):
    """What a case raised on one rank."""

    kind: str
    message: str
    trace: str


class CaseError(AssertionError):
    """A case failed on some rank."""


class Pool:
    """Up to 8 processes, started when they are first needed."""

    def __init__(self) -> None:
        self._workers: list[tuple[warm.Popen, Connection]] = []
        self._session: tuple[Any, ...] | None = None

    def run(self, world: int, transport: str, case: Case, arguments: list[dict[str, Any]], **common: Any) -> list[Any]:
        """Runs ``case`` on ``world`` ranks and returns what each returned; raises what any rank raised."""
        results = self.attempt(world, transport, case, arguments, **common)
        failures = [(rank, r) for rank, r in enumerate(results) if isinstance(r, Failure)]
        if failures:
            raise CaseError("\n".join(f"rank {rank}: {f.kind}: {f.message}\n{f.trace}" for rank, f in failures))
        return results

    def attempt(
        self, world: int, transport: str, case: Case, arguments: list[dict[str, Any]] | None = None, **common: Any
    ) -> list[Any]:
        """The same, with a :class:`Failure` in the place of what a rank raised."""
        self._open(world, transport)
        per_rank = arguments if arguments is not None else [{}] * world
        results = self._everywhere(world, [(case, {**common, **own}) for own in per_rank])
        if any(isinstance(r, Failure) for r in results):
            self.leave()  # ranks may be out of step now
        return results

    def leave(self) -> None:
        """The next case forms a session of its own, because this one is no longer whole."""
        self._session = None

    def stop(self) -> None:
        """Ends the processes."""
        for _, pipe in self._workers:
            with contextlib.suppress(OSError):
                pipe.send(None)
        for process, _ in self._workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
        self._kill()

    def _open(self, world: int, transport: str) -> None:
        wanted = (world, transport)
        if self._session == wanted:
            return
        while len(self._workers) < world:
            ours, theirs = multiprocessing.Pipe()
            words = ["-c", f"from {__name__} import work; work()"]
            process = warm.Popen(words, libraries=True, stdin=theirs, cwd=ROOT, env=ENVIRONMENT)
            theirs.close()
            self._workers.append((process, ours))
        port = free_port()
        # everyone leaves the session before last, also those that take no part in the next
        self._everywhere(len(self._workers), [(_close_session, {})] * len(self._workers))
        ranks = [{"rank": r, "world": world, "transport": transport, "port": port} for r in range(world)]
        opened = self._everywhere(world, [(_open_session, rank) for rank in ranks])
        for result in opened:
            if isinstance(result, Failure):
                raise CaseError(f"no session of {world} over {transport}: {result.message}\n{result.trace}")
        self._session = wanted

    def _everywhere(self, world: int, jobs: list[tuple[Case, dict[str, Any]]]) -> list[Any]:
        for (_, pipe), job in zip(self._workers, jobs):
            pipe.send(job)
        end = time.monotonic() + PATIENCE
        results = []
        name = jobs[0][0].__name__
        for rank, (process, pipe) in enumerate(self._workers[:world]):
            if not pipe.poll(max(0.0, end - time.monotonic())):
                self._kill()
                raise CaseError(f"rank {rank} did not finish {name} within {PATIENCE:g} s")
            try:
                results.append(pipe.recv())
            except EOFError:
                code = process.wait(5)
                self._kill()
                raise CaseError(f"rank {rank} died in {name} (exit code {code})") from None
        return results

    def _kill(self) -> None:
        for process, _ in self._workers:
            process.kill()
            process.wait()
        self._workers, self._session = [], None


def work() -> None:
    """A worker process: runs what comes through the pipe, which it has as its input, until None comes."""
    pipe = Connection(os.dup(0))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["SAR_LIVENESS_TIMEOUT"] = "20"
    os.environ["SAR_START_TIMEOUT"] = "60"
    os.environ["SAR_TIMEOUT"] = "60"
    import torch

    gc.freeze()  # a full collection of all that was imported takes longer than most cases
    torch.set_num_threads(1)
    while True:
        try:
            job = pipe.recv_bytes()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            wanted = pickle.loads(job)  # imports the module of the case
            if wanted is None:
                return
            case, arguments = wanted
            result: Any = case(**arguments)
        except BaseException as error:
            result = Failure(type(error).__name__, str(error), traceback.format_exc())
        pipe.send(result)


def _open_session(rank: int, world: int, transport: str, port: int) -> None:
    import sar

    os.environ["SAR_TRANSPORT"] = transport
    sar.initialize_comms(rank, world, "127.0.0.1", "sar", master_port_number=port)


def _close_session() -> None:
    import sar

    sar.comm.shutdown()
