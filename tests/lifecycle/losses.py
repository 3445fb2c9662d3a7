"""Scenarios in which workers are lost, fail, diverge or are interrupted.

Those that take no rank run on the pool's processes, the others as plain ones (see :mod:`tests.lifecycle.scenarios`).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

from tests.lifecycle.steps import join, last, observe, report, ring, steps


def lost(rank: int, world: int) -> None:
    """Rank 1 is killed, or stopped, while everyone does one thing over and over."""
    phase, how = os.environ["SAR_TEST_PHASE"], os.environ["SAR_TEST_SIGNAL"]
    join(rank, world)
    step = steps(phase, rank, world)
    began = time.time()
    if rank == 1:
        delay = 0.0 if phase == "between" else 0.7
        if phase == "between":
            for _ in range(3):
                step()
            report(died=time.time())
            os.kill(os.getpid(), getattr(signal, how))
        threading.Timer(delay, lambda: (report(died=time.time()), os.kill(os.getpid(), getattr(signal, how)))).start()

    def loop() -> None:
        nonlocal began
        while time.time() - began < 60:
            step()
            if phase == "between":
                time.sleep(0.05)

    began = time.time()
    observe(loop, lambda: began)


def absent(rank: int, world: int) -> None:
    """Rank 1 dies before it has met the others."""
    import sar  # noqa: F401 - what it takes to import torch is no part of what is observed

    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.time()
    observe(lambda: join(rank, world), lambda: began)


def slow(rank: int, world: int) -> None:
    """Rank 1 is busy in Python for long, between and within epochs; nobody minds, and the numbers are right."""
    import torch

    import sar

    join(rank, world)
    step = steps("epoch", rank, world)
    step()
    if rank == 1:
        time.sleep(float(os.environ["SAR_TEST_SLEEP"]))
    step()
    total = torch.tensor([float(rank)])
    sar.comm.all_reduce(total, "sum")
    report(kind="none", total=total.item())


def diverges() -> None:
    """Rank 1 runs a layer more than the others, who go on to sum gradients."""
    import torch

    import sar

    forward = steps("forward", sar.rank(), sar.world_size())
    forward()
    if sar.rank() == 1:
        forward()
    sar.comm.all_reduce(torch.ones(5), "sum")
    for _ in range(3):
        forward()


def differs() -> None:
    """Everyone aggregates, but rank 1 with another width."""
    import torch

    import sar
    import sar.function as fn

    graph = ring(sar.rank(), sar.world_size())
    graph.srcdata["h"] = torch.ones(graph.num_nodes(), 8 + sar.rank() % 2)
    graph.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"))


def fails(rank: int, world: int) -> None:
    """Rank 1's script raises; nothing catches it."""
    join(rank, world)
    step = steps("forward", rank, world)
    if rank == 1:
        last(step)
        raise ZeroDivisionError("the script of rank 1 divided by zero")
    began = time.time()

    def loop() -> None:
        while time.time() - began < 60:
            step()

    observe(loop, lambda: began)


def _child(rank: int, world: int) -> None:
    """The function of a process that torch or multiprocessing started."""
    fails(rank, world)


def children(rank: int, world: int) -> None:
    """Workers are children of one process; one of them raises."""
    import multiprocessing

    import torch.multiprocessing

    how = os.environ["SAR_TEST_SPAWN"]
    if how == "torch":
        context = torch.multiprocessing.start_processes(_child, (3,), nprocs=3, join=False, start_method="spawn")
        assert context is not None
        processes = context.processes
    else:
        spawn = multiprocessing.get_context("spawn")
        processes = [spawn.Process(target=_child, args=(r, 3)) for r in range(3)]
        for process in processes:
            process.start()
    for process in processes:
        process.join(100)


def interrupted(phase: str) -> dict[str, Any]:
    """Rank 0 gets SIGINT while it waits in the engine for rank 1, who is busy; rank 2 waits too. When it was over, and
    when the rank came to the engine."""
    import torch

    import sar

    rank = sar.rank()
    step = steps(phase, rank, sar.world_size())
    sar.comm.barrier()
    if rank == 1:
        time.sleep(6)
    came = time.time()
    if rank == 0:
        threading.Timer(0.7, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        step()
        sar.comm.all_reduce(torch.ones(3), "sum")
    except KeyboardInterrupt:
        return {"kind": "KeyboardInterrupt", "at": time.time()}
    except sar.RemoteError as error:
        return {"kind": "RemoteError", "message": str(error), "rank": error.rank, "at": time.time(), "came": came}
    return {"kind": "none"}


def leaves(rank: int, world: int) -> None:
    """Rank 1 ends its script without an error while the others wait for it."""
    join(rank, world)
    step = steps("forward", rank, world)
    if rank == 1:
        last(step)
        return
    began = time.time()
    observe(lambda: (step(), step()), lambda: began)
