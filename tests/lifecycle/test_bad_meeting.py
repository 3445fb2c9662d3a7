"""Workers that cannot meet, and workers of which one fails: what each of them raises, and how soon.

Workers that die in the middle are in ``test_lifecycle.py``.
"""

from __future__ import annotations

import re
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

import sar
from sar.distributed.network import free_port
from tests.support.command import run_sar
from tests.support.scripts import environment, together, write_script

# ---- workers that cannot meet --------------------------------------------------


def test_a_rank_that_is_not_below_the_world_size() -> None:
    for rank in (2, 5, -1):
        with pytest.raises(ValueError, match=f"rank {rank} is outside 0..1: world_size is 2"):
            sar.initialize_comms(rank, 2, "127.0.0.1", "sar", master_port_number=free_port())


def test_a_port_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAR_START_TIMEOUT", "60")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        began = time.monotonic()
        with pytest.raises(sar.RendezvousError, match=f"port {port} on 127.0.0.1 is in use.*choose another"):
            sar.initialize_comms(0, 2, "127.0.0.1", "sar", master_port_number=port)
        assert time.monotonic() - began < 40, "the start-up deadline was waited for"
    assert not sar.comm.is_initialized()


def test_an_unreachable_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAR_START_TIMEOUT", "1.5")
    port = free_port()
    for address in ("127.0.0.1", "no-such-host.invalid"):
        began = time.monotonic()
        with pytest.raises(sar.RendezvousError, match=f"{address}:{port} after 1.5 s.*is rank 0 running, are address"):
            sar.initialize_comms(1, 2, address, "sar", master_port_number=port)
        assert time.monotonic() - began < 60
    assert not sar.comm.is_initialized()


def test_workers_that_do_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAR_START_TIMEOUT", "1.5")
    port = free_port()
    says = f"ranks 1, 2 of 3 did not come to 127.0.0.1 port {port} within 1.5 s"
    with pytest.raises(sar.RendezvousError, match=says):
        sar.initialize_comms(0, 3, "127.0.0.1", "sar", master_port_number=port)


def test_a_master_port_that_speaks_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAR_START_TIMEOUT", "4")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()

        def greet() -> None:
            while True:
                try:
                    connection, _ = other.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=greet, daemon=True).start()
        with pytest.raises(sar.RendezvousError, match=f"127.0.0.1:{other.getsockname()[1]}"):
            sar.initialize_comms(1, 2, "127.0.0.1", "sar", master_port_number=other.getsockname()[1])
        other.shutdown(socket.SHUT_RDWR)


def test_two_workers_of_one_rank(tmp_path: Path) -> None:
    """One of the two is refused, and hears why; the others wait for who is missing, and hear that one was refused."""
    began = time.monotonic()
    reports = together(
        tmp_path,
        """
        os.environ["SAR_START_TIMEOUT"] = "4"
        try:
            join(min(rank, 1), 3)
        except sar.RendezvousError as error:
            print(error)
        """,
        3,
    )
    assert time.monotonic() - began < 60
    assert [code for code, *_ in reports] == [0, 0, 0], reports
    outs = [out for _, out, _ in reports]
    taken = r"two workers have rank 1: process \d+ on \S+ and process \d+ on .*rank of its own"
    missing = "rank 2 of 3 did not come.*turned away: " + taken
    assert re.match(missing, outs[0]), outs
    refused = [out for out in outs[1:] if re.match(taken, out)]
    waited = [out for out in outs[1:] if re.match(missing, out)]
    assert len(refused) == len(waited) == 1, outs


# ---- an exception in one rank's script ------------------------------------------

FAILING = """
    join(rank, world)
    for step in range(1000):
        if rank == 1 and step == 3:
            print("FAILED", time.time(), flush=True)
            atexit.register(time.sleep, 2)  # the others end first
            raise LookupError("the labels of rank 1 are gone")
        try:
            sar.comm.all_reduce(torch.ones(1000), "sum")
        except sar.RemoteError as error:
            print("TOLD", time.time(), error.rank, flush=True)
            raise
"""


def test_an_exception_among_plain_processes(tmp_path: Path) -> None:
    reports = together(tmp_path, FAILING, 3)
    assert [code for code, *_ in reports] == [1, 1, 1]
    _, out, err = reports[1]
    failed = float(out.split("FAILED ")[1].split()[0])
    assert err.rstrip().endswith("LookupError: the labels of rank 1 are gone") and "RemoteError" not in err
    for rank in (0, 2):
        _, out, err = reports[rank]
        told, culprit = out.split("TOLD ")[1].split()[:2]
        assert culprit == "1" and float(told) - failed < 45.0  # the deadline of an operation is 90 s
        assert re.search(r"RemoteError: rank 1 on \S+ failed: Traceback", err), err
        assert "LookupError: the labels of rank 1 are gone" in err and "script.py" in err


def launched(folder: Path, body: str, world: int, *words: str) -> tuple[subprocess.CompletedProcess[str], float]:
    began = time.monotonic()
    done = run_sar("launch", "-n", world, *words, write_script(folder, body), **environment())
    return done, time.monotonic() - began


def closing(done: subprocess.CompletedProcess[str]) -> str:
    """The launcher's last words."""
    return done.stderr[done.stderr.rindex("sar launch: ") :]


def test_an_exception_under_the_launcher(tmp_path: Path) -> None:
    done, seconds = launched(tmp_path, FAILING, 3)
    assert done.returncode == 1 and seconds < 60, done.stderr
    # the cause is named, not the ranks that were told of it
    assert "rank 1 ended with exit code 1" in closing(done), done.stderr
    assert "LookupError: the labels of rank 1 are gone" in closing(done), done.stderr
    for rank in (0, 2):
        assert f"[{rank}] sar.errors.RemoteError: rank 1 on" in done.stderr, done.stderr


def test_an_exception_before_the_workers_meet(tmp_path: Path) -> None:
    """The others wait in initialize_comms, whose deadline is far away: the launcher ends them."""
    body = """
        if rank == 1:
            raise LookupError("no data here")
        join(rank, world)
    """
    done, seconds = launched(tmp_path, body, 2, "--grace", "1")
    assert done.returncode == 1 and seconds < 55
    assert "rank 1 ended with exit code 1" in closing(done) and "LookupError: no data here" in closing(done)


def test_an_exit_code_in_the_middle(tmp_path: Path) -> None:
    """Not an exception, and yet the others must not wait for long."""
    body = """
        join(rank, world)
        for step in range(1000):
            if rank == 1 and step == 3:
                sys.exit(5)
            sar.comm.all_reduce(torch.ones(1000), "sum")
    """
    done, seconds = launched(tmp_path, body, 2)
    assert done.returncode == 5 and seconds < 60
    assert "rank 1 ended with exit code 5" in closing(done)
    assert "[0] sar.errors.PeerLostError: lost rank 1 on" in done.stderr and "it has shut down" in done.stderr


def test_bad_arguments_on_one_rank(tmp_path: Path) -> None:
    """One rank's features are wrong: its own error is a plain ValueError, and the others hear of it."""
    body = """
        import numpy as np
        from sar.common_tuples import PartitionData, ShardEdgesAndFeatures
        join(rank, world)
        ring = ShardEdgesAndFeatures((torch.tensor([(rank + 1) % world]), torch.tensor([rank])), {})
        data = PartitionData([ring], [(r, r + 1) for r in range(world)], {}, ["_N"], [("_N", "_E", "_N")], None)
        graph = sar.construct_full_graph(data)
        graph.srcdata["h"] = torch.ones(2 if rank == 1 else 1, 3)
        graph.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"))
    """
    reports = together(tmp_path, body, 2)
    says = "srcdata['h'] has shape (2, 3), but this worker has 1 nodes"
    assert says in reports[1][2] and "ValueError" in reports[1][2] and "RemoteError" not in reports[1][2]
    assert "RemoteError: rank 1 on" in reports[0][2] and says in reports[0][2]
