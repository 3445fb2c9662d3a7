"""What scenarios of workers' life and death share: how they meet, what they do over and over, what they report."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, Callable


def report(**facts: Any) -> None:
    # in one piece: processes of one rank share the pipe
    os.write(sys.stdout.fileno(), (json.dumps(facts) + "\n").encode())


def join(rank: int, world: int) -> None:
    import sar

    sar.initialize_comms(rank, world, "127.0.0.1", "sar", master_port_number=int(os.environ["SAR_TEST_PORT"]))


def ring(rank: int, world: int, rows: int = 2000) -> Any:
    """A graph in which every worker reads rows of the next."""
    import numpy as np

    from tests.support.worker import build

    start = np.arange(world + 1) * rows
    dst = np.repeat(np.arange(start[rank], start[rank + 1]), 4)
    src = (dst + rows + np.arange(len(dst)) % 7) % (rows * world)
    return build({"start": start, "src": src, "dst": dst})


def steps(phase: str, rank: int, world: int) -> Callable[[], None]:
    """One step of the loop in which a worker is lost."""
    import torch

    import sar
    import sar.function as fn

    graph = ring(rank, world)
    x = torch.ones(graph.num_nodes(), 256, requires_grad=True)
    gradient = torch.ones(1 << 18)

    def forward() -> torch.Tensor:
        with graph.local_scope():
            graph.srcdata["h"] = x
            graph.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"))
            out: torch.Tensor = graph.dstdata["out"]
        return out

    kept = forward()

    def step() -> None:
        if phase == "forward":
            with torch.no_grad():
                forward()
        elif phase == "backward":
            kept.backward(torch.ones_like(kept), retain_graph=True)
        elif phase == "all_reduce":
            sar.comm.all_reduce(gradient, "avg")
        else:  # a whole epoch
            forward().sum().backward()
            sar.comm.all_reduce(gradient, "avg")

    return step


def observe(action: Callable[[], None], began: Callable[[], float]) -> None:
    """Reports the error that ends ``action``, and how long it took."""
    import sar

    try:
        action()
    except (sar.PeerLostError, sar.ScheduleError, sar.RendezvousError, sar.DeadlineError, ValueError) as error:
        report(
            kind=type(error).__name__,
            message=str(error),
            rank=getattr(error, "rank", -1),
            host=getattr(error, "host", ""),
            phase=getattr(error, "phase", ""),
            seconds=time.time() - began(),
            at=time.time(),
        )
    else:
        report(kind="none")


def last(step: Callable[[], None]) -> None:
    """What rank 1 does before it goes."""
    step()
    time.sleep(0.5)  # the others are in their loop by then
    report(died=time.time())
