"""The job of ``sar launch``: which worker has which place, and its lives."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import sar
from sar.distributed import launchers, tokens
from sar.distributed.network import free_port, port_range

from .binding import seats
from .group import Ended, Group
from .hosts import HostSpec
from .lines import Output, say
from .output import Failure
from .remote import HostError, carried, connect
from .workers import Local, Worker

_RECONNECT_SECONDS = 2.0  # before the next life, where hosts could not be reached


class Job(NamedTuple):
    """What all workers run, and where."""

    words: Sequence[str]
    """Behind the name of Python."""
    prefix: bool = True
    """Whether the rank stands before lines of output."""
    restarts: int = 0
    logs: Path | None = None
    hosts: Sequence[HostSpec] = ()
    """None: this host."""
    ssh: Sequence[str] = ("ssh",)
    """The program that reaches hosts, and options of its own."""
    python: str = sys.executable
    """Python on other hosts."""
    directory: str = ""
    """Where workers on other hosts work."""


def start(job: Job, arguments: argparse.Namespace) -> int:
    """Runs the workers of a job, all of them again up to ``job.restarts`` times where one fails, and returns the exit
    code of the last life.

    :param arguments: what :func:`sar.cli.launch.check_places` has accepted
    :raises Failure: the workers cannot be started
    """
    check_ports(job.hosts or [HostSpec("this machine", arguments.workers)])
    for life in range(job.restarts + 1):
        ended = asyncio.run(_live(job, arguments, life))
        if ended.code == 0 or ended.interrupted:
            break
        if life < job.restarts:
            say(f"restart {life + 1} of {job.restarts}: all workers start again")
    return ended.code


def check_ports(hosts: Sequence[HostSpec]) -> None:
    """Refuses a range of ports that has less than one for each worker of a host.

    :raises Failure: which host has too many workers
    :raises ValueError: ``SAR_PORT_RANGE`` is no range
    """
    ports = port_range()
    for host in hosts:
        if ports and len(ports) < host.workers:
            raise Failure(
                f"SAR_PORT_RANGE={ports[0]}-{ports[-1]} has {len(ports)} ports and {host.name} gets {host.workers} "
                "workers: each listens at one; widen the range, or start fewer workers there",
                2,
            )


async def _live(job: Job, arguments: argparse.Namespace, life: int) -> Ended:
    try:
        workers = await _workers(job, arguments, life)
    except HostError as error:
        if life == 0:
            raise Failure(str(error)) from None
        say(str(error))
        await asyncio.sleep(_RECONNECT_SECONDS)
        return Ended(1, False)
    world = arguments.nodes * len(workers)
    with contextlib.closing(Output(world, prefix=job.prefix, logs=job.logs, life=life)) as output:
        return await Group(workers, output, arguments.grace).run()


async def _workers(job: Job, arguments: argparse.Namespace, life: int) -> Sequence[Worker]:
    """The workers of one life, and what they are told. A life has a token of its own, and a port unless one was
    given: what is left of an earlier life cannot join it."""
    common = {"SAR_RESTART_COUNT": str(life), "PYTHONUNBUFFERED": "1"}
    if sys.stderr.isatty():
        common["SAR_PROGRESS"] = os.environ.get("SAR_PROGRESS") or "1"  # the stderr of workers is a pipe
    try:
        token = tokens.for_launch(arguments.nodes)
    except ValueError as error:
        raise Failure(str(error), 2) from None
    if token is not None:
        common[tokens.VARIABLE] = token
    for chosen, variable in ((arguments.allocator, "SAR_ALLOCATOR"), (arguments.transport, "SAR_TRANSPORT")):
        if chosen is not None:
            common[variable] = chosen
    if job.hosts:
        return await _on_hosts(job, arguments, common)
    n, first = arguments.workers, arguments.node_rank * arguments.workers
    master = arguments.master_addr or "127.0.0.1", arguments.master_port or free_port()
    environments = [{**inherited(), **common, **place(first + k, arguments.nodes * n, k, n, *master)} for k in range(n)]
    command = [sys.executable, "-u", *job.words]
    return [Local(command, *own) for own in zip(environments, seats(arguments.bind, n, arguments.threads))]


async def _on_hosts(job: Job, arguments: argparse.Namespace, common: dict[str, str]) -> Sequence[Worker]:
    order = {
        "version": sar.__version__,
        "directory": job.directory or os.getcwd(),
        "environment": {**carried(inherited()), **common},
        "command": [job.python, "-u", *job.words],
        "bind": arguments.bind,
        "threads": arguments.threads,
        "port": arguments.master_port is None,
    }
    workers, port = await connect(job.hosts, job.ssh, order)
    master = arguments.master_addr or job.hosts[0].address, arguments.master_port or port
    for worker in workers:
        worker.place = place(int(worker.rank), len(workers), worker.local_rank, worker.host.workers, *master)
    return workers


def place(rank: int, world: int, local_rank: int, local_world: int, master: str, port: int) -> dict[str, str]:
    """What tells a worker of its place among the others."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(local_world),
        "MASTER_ADDR": master,
        "MASTER_PORT": str(port),
        launchers.MARK: "1",
    }


def environment(rank: int, workers: int, threads: int | None, master: str, port: int) -> dict[str, str]:
    """All the environment of one worker, where all are on this host."""
    seat = seats("none", workers, threads)[rank]
    return {**inherited(), **place(rank, workers, rank, workers, master, port), **seat.variables()}


def inherited() -> dict[str, str]:
    """The environment of this process, but what torchrun has told it of a place."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC_")}
