"""Scripts that worker processes run in the tests of their life and death: ``python -m tests.lifecycle.scenarios
scenario rank world``.

Each writes what it saw as one line of JSON. ``start`` of :class:`Group` runs one on every rank.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

from tests.lifecycle import losses as lifecycle_losses
from tests.lifecycle.steps import join, report, steps
from tests.support import ROOT, warm

COMMAND = ["-m", "tests.lifecycle.scenarios"]
"""What Python is told, in ``ROOT``."""


class Group:
    """The processes of one scenario."""

    def __init__(self, scenario: str, world: int, transport: str = "shm", **environment: str) -> None:
        from sar.distributed.network import free_port

        variables = {
            **os.environ,
            "SAR_TRANSPORT": transport,
            "SAR_TEST_PORT": str(free_port()),
            "OMP_NUM_THREADS": "1",
            "SAR_START_TIMEOUT": "90",
            **environment,
        }
        self.processes = [
            warm.piped([*COMMAND, scenario, str(rank), str(world)], cwd=ROOT, env=variables) for rank in range(world)
        ]

    def wait(self, timeout: float = 150.0, besides: tuple[int, ...] = ()) -> list[dict[str, Any]]:
        """What each rank reported, with ``code`` and ``stderr``; ``{}`` for those in ``besides``, which are killed."""
        end = time.monotonic() + timeout
        reports: list[dict[str, Any]] = [{} for _ in self.processes]
        try:
            for rank, process in enumerate(self.processes):
                if rank not in besides:
                    reports[rank] = self._report(process, max(0.1, end - time.monotonic()))
        finally:
            self.kill()
        return reports

    def _report(self, process: subprocess.Popen[str], timeout: float) -> dict[str, Any]:
        out, err = process.communicate(timeout=timeout)
        lines = [line for line in out.splitlines() if line.startswith("{")]
        found = json.loads(lines[-1]) if lines else {}
        return {**found, "code": process.returncode, "stderr": err, "stdout": out}

    def kill(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()


# ---- scenarios in which nobody is lost ----------------------------------------


def zero_degree() -> dict[str, Any]:
    """On the pool's processes: a node of rank 1 has no in-edge, which a layer of DGL would refuse on one machine."""
    import dgl.nn
    import numpy as np
    import torch

    import sar
    from tests.support.worker import build

    rank, world = sar.rank(), sar.world_size()
    own = np.arange(4 * rank, 4 * rank + 4)
    graph = build({"start": 4 * np.arange(world + 1), "src": own, "dst": own if rank != 1 else own[[0, 0, 1, 2]]})
    same = {}
    for name, arguments in (("GraphConv", (3, 2)), ("GATConv", (3, 2, 2)), ("SGConv", (3, 2)), ("EdgeConv", (3, 2))):
        layer = getattr(dgl.nn, name)(*arguments)
        out = layer(graph, torch.ones(4, 3))
        layer.set_allow_zero_in_degree(True)
        same[name] = bool(torch.equal(out, layer(graph, torch.ones(4, 3))) and out.isfinite().all())
    degrees = graph.in_degrees()
    return {"same": same, "degrees": degrees.tolist(), "more": (degrees + 1).tolist()}


def ends(rank: int, world: int) -> None:
    """An ordinary script, with and without a last word."""
    import sar

    join(rank, world)
    steps("epoch", rank, world)()
    if rank == 0:
        sar.comm.shutdown()
    report(kind="none")


def twice(rank: int, world: int) -> None:
    """Two sessions after each other in one process."""
    import sar

    for _ in range(2):
        join(rank, world)
        steps("epoch", rank, world)()
        sar.comm.barrier()
        sar.comm.shutdown()
        os.environ["SAR_TEST_PORT"] = str(int(os.environ["SAR_TEST_PORT"]) + 1)
    report(kind="none")


def forks(rank: int, world: int) -> None:
    """A child of a process that has used SAR."""
    import sar

    join(rank, world)
    pipe = os.pipe()
    if os.fork() == 0:
        try:
            sar.comm.barrier()
            text = "no error"
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(pipe[1], text.encode())
        os._exit(0)
    os.wait()
    sar.comm.barrier()
    report(message=os.read(pipe[0], 4096).decode())


def torch_too(rank: int, world: int) -> None:
    """torch.distributed beside the engine."""
    import torch
    import torch.distributed as dist

    import sar

    backend = os.environ["SAR_TEST_BACKEND"]
    if os.environ.get("SAR_TEST_EXISTING"):
        port = int(os.environ["SAR_TEST_PORT"])
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    address = os.environ.get("MASTER_ADDR", "127.0.0.1")
    port = int(os.environ.get("MASTER_PORT", os.environ.get("SAR_TEST_PORT", "0")))
    sar.logging_setup("WARNING")
    sar.initialize_comms(rank, world, address, backend, master_port_number=port)
    facts: dict[str, Any] = {"backend": sar.comm.backend(), "plane": sar.stats()["data_plane"]}
    ours = torch.tensor([float(rank)])
    sar.comm.all_reduce(ours, dist.ReduceOp.SUM)
    facts["sum"] = ours.item()
    theirs = torch.tensor([rank])
    dist.all_reduce(theirs)
    facts["torch_sum"] = theirs.item()
    steps("epoch", rank, world)()
    sar.comm.shutdown()
    facts["group_left"] = dist.is_initialized()
    report(**facts)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        numbers = int(sys.argv[2]), int(sys.argv[3])
    else:  # torchrun says it in the environment
        numbers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    {**vars(lifecycle_losses), **globals()}[sys.argv[1]](*numbers)
