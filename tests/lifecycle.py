"""Scripts that worker processes run in the tests of their life and death: ``python lifecycle.py scenario rank world``.

Each writes what it saw as one line of JSON. ``start`` of :class:`Group` runs one on every rank.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable

HERE = Path(__file__).parent


class Group:
    """The processes of one scenario."""

    def __init__(self, scenario: str, world: int, transport: str = "shm", **environment: str) -> None:
        from sar._network import free_port

        variables = {
            **os.environ,
            "SAR_TRANSPORT": transport,
            "SAR_TEST_PORT": str(free_port()),
            "OMP_NUM_THREADS": "1",
            "SAR_START_TIMEOUT": "90",
            **environment,
        }
        self.processes = [
            subprocess.Popen(
                [sys.executable, str(HERE / "lifecycle.py"), scenario, str(rank), str(world)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=variables,
            )
            for rank in range(world)
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


# ---- what runs in the processes --------------------------------------------


def report(**facts: Any) -> None:
    # in one piece: processes of one rank share the pipe
    os.write(sys.stdout.fileno(), (json.dumps(facts) + "\n").encode())


def join(rank: int, world: int) -> None:
    import sar

    sar.initialize_comms(rank, world, "127.0.0.1", "sar", master_port_number=int(os.environ["SAR_TEST_PORT"]))


def ring(rank: int, world: int, rows: int = 2000) -> Any:
    """A graph in which every worker reads rows of the next."""
    import numpy as np

    from cases import build

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
            started = time.time()
            step()
            if phase == "between":
                time.sleep(0.05)
            del started

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


def diverges(rank: int, world: int) -> None:
    """Rank 1 runs a layer more than the others, who go on to sum gradients."""
    import torch

    import sar

    join(rank, world)
    forward = steps("forward", rank, world)
    began = time.time()

    def epoch() -> None:
        forward()
        if rank == 1:
            forward()
        sar.comm.all_reduce(torch.ones(5), "sum")
        for _ in range(3):
            forward()

    observe(epoch, lambda: began)


def differs(rank: int, world: int) -> None:
    """Everyone aggregates, but rank 1 with another width."""
    import torch

    import sar.function as fn

    join(rank, world)
    graph = ring(rank, world)
    began = time.time()

    def epoch() -> None:
        graph.srcdata["h"] = torch.ones(graph.num_nodes(), 8 + rank % 2)
        graph.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"))

    observe(epoch, lambda: began)


def last(step: Callable[[], None]) -> None:
    """What rank 1 does before it goes."""
    step()
    time.sleep(0.5)  # the others are in their loop by then
    report(died=time.time())


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


def zero_degree(rank: int, world: int) -> None:
    """A node of rank 1 has no in-edge, which a layer of DGL would refuse on one machine."""
    import dgl.nn
    import numpy as np
    import torch

    from cases import build

    join(rank, world)
    own = np.arange(4 * rank, 4 * rank + 4)
    graph = build({"start": 4 * np.arange(world + 1), "src": own, "dst": own if rank != 1 else own[[0, 0, 1, 2]]})
    same = {}
    for name, arguments in (("GraphConv", (3, 2)), ("GATConv", (3, 2, 2)), ("SGConv", (3, 2)), ("EdgeConv", (3, 2))):
        layer = getattr(dgl.nn, name)(*arguments)
        out = layer(graph, torch.ones(4, 3))
        layer.set_allow_zero_in_degree(True)
        same[name] = bool(torch.equal(out, layer(graph, torch.ones(4, 3))) and out.isfinite().all())
    degrees = graph.in_degrees()
    total = torch.ones(4, 2) * 6
    quotients = [
        total / degrees[:, None],
        (1 / degrees.float())[:, None] * total,
        total * degrees.double().pow(-1)[:, None],
        total * degrees.reciprocal()[:, None],
        total * degrees.float().rsqrt().unsqueeze(1) ** 2,
    ]
    report(
        kind="none",
        same=same,
        degrees=degrees.tolist(),
        more=(degrees + 1).tolist(),
        quotients=[q[:, 0].tolist() for q in quotients],
    )


def interrupted(rank: int, world: int) -> None:
    """Rank 0 gets SIGINT while it waits in the engine for rank 1, who is busy; so does rank 2."""
    import torch

    import sar

    join(rank, world)
    phase = os.environ["SAR_TEST_PHASE"]
    step = steps(phase, rank, world)
    sar.comm.barrier()
    if rank == 1:
        time.sleep(4)
    sent = time.time() + 1.0
    if rank == 0:
        threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        step()
        sar.comm.all_reduce(torch.ones(3), "sum")
    except KeyboardInterrupt:
        report(kind="KeyboardInterrupt", seconds=time.time() - sent)
    except sar.RemoteError as error:
        report(kind="RemoteError", message=str(error), rank=error.rank, seconds=time.time() - sent)


def leaves(rank: int, world: int) -> None:
    """Rank 1 ends its script without an error while the others wait for it."""
    join(rank, world)
    step = steps("forward", rank, world)
    if rank == 1:
        last(step)
        return
    began = time.time()
    observe(lambda: (step(), step()), lambda: began)


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


def same_rank(rank: int, world: int) -> None:
    """Two workers say that they are rank 1."""
    began = time.time()
    observe(lambda: join(min(rank, 1), world), lambda: began)


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
    if dist.is_initialized():
        theirs = torch.tensor([rank])
        dist.all_reduce(theirs)
        facts["torch_sum"] = theirs.item()
    steps("epoch", rank, world)()
    sar.comm.shutdown()
    facts["group_left"] = dist.is_initialized()
    report(**facts)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a script that runs tests behind it has it ignored
    if len(sys.argv) > 2:
        numbers = int(sys.argv[2]), int(sys.argv[3])
    else:  # torchrun says it in the environment
        numbers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    globals()[sys.argv[1]](*numbers)
