"""Parts of ``sar launch``: the binding of workers to cores, log files."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Iterator
from unittest import mock

import pytest

from sar.cli import binding, lines
from sar.cli.group import Ended, Group
from sar.cli.lines import Output
from sar.cli.workers import Outputs, Worker
from tests.support.command import launch_fresh

# ---- binding -------------------------------------------------------------------------------


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Path]:
    """Two nodes of two cores with two threads each, of which one processor must not be used, and one more core."""
    for node, cpus in enumerate(["0-1,4-5", "2-3,6-7"]):
        (tmp_path / f"node/node{node}").mkdir(parents=True)
        (tmp_path / f"node/node{node}/cpulist").write_text(cpus + "\n")
    for cpu in range(9):
        about = tmp_path / f"cpu/cpu{cpu}/topology"
        about.mkdir(parents=True)
        (about / "physical_package_id").write_text(f"{cpu // 2 % 2}\n")
        (about / "core_id").write_text(f"{cpu % 4 if cpu < 8 else 8}\n")
    with mock.patch("os.sched_getaffinity", return_value=set(range(8)) - {7}):
        yield tmp_path


@pytest.mark.parametrize(
    ("mode", "workers", "expected"),
    [
        ("none", 2, [(None, 3), (None, 3)]),
        ("numa", 1, [({0, 1, 2, 3, 4, 5, 6}, 7)]),
        ("numa", 2, [({0, 1, 4, 5}, 4), ({2, 3, 6}, 3)]),
        ("numa", 3, [({0, 1, 4, 5}, 2), ({0, 1, 4, 5}, 2), ({2, 3, 6}, 3)]),
        ("cores", 1, [({0, 1, 2, 3, 4, 5, 6}, 7)]),
        ("cores", 2, [({0, 1, 4, 5}, 4), ({2, 3, 6}, 3)]),
        ("cores", 4, [({0, 4}, 2), ({1, 5}, 2), ({2, 6}, 2), ({3}, 1)]),
        ("cores", 5, [({0}, 1), ({4}, 1), ({1, 5}, 2), ({2, 6}, 2), ({3}, 1)]),
        ("cores", 7, [({cpu}, 1) for cpu in (0, 4, 1, 5, 2, 6, 3)]),
    ],
)
def test_seats(mode: str, workers: int, expected: list[tuple[set[int], int]], machine: Path) -> None:
    found = binding.seats(mode, workers, system=machine)
    assert [(seat.cores, seat.threads) for seat in found] == expected
    assert {seat.threads for seat in binding.seats(mode, workers, 9, machine)} == {9}


def test_seats_that_are_not_there(machine: Path) -> None:
    with pytest.raises(ValueError, match="8 workers and 7 processors"):
        binding.seats("cores", 8, system=machine)
    # a kernel that tells nothing of nodes has one
    assert [seat.cores for seat in binding.seats("numa", 2, system=machine / "nowhere")] == [set(range(7))] * 2


def test_workers_are_bound(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text("import os; print(*sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'])")
    expected = binding.seats("cores", 1)[0]
    done = launch_fresh("-n", 1, "--bind", "cores", "--no-prefix", script)
    assert expected.cores is not None
    assert done.stdout.split() == [*map(str, sorted(expected.cores)), str(expected.threads)], done.stderr
    own = len(os.sched_getaffinity(0))
    if own > 1:
        done = launch_fresh("-n", own, "--bind", "cores", "--no-prefix", script)
        assert sorted(line.split()[0] for line in done.stdout.splitlines()) == sorted(map(str, os.sched_getaffinity(0)))


# ---- the end -------------------------------------------------------------------------------


class Quick(Worker):
    """Rank 0 has ended before anybody looks, the others run until they are stopped."""

    async def start(self, output: Outputs) -> None:
        self.tasks = [asyncio.create_task(asyncio.sleep(0))]

    def poll(self) -> None:
        if self.rank == "0":
            self.ended(7)

    def signal(self, number: int) -> None:
        self.ended(-number)


def test_a_worker_that_ends_before_the_last_has_started() -> None:
    async def run() -> Ended:
        group = Group([Quick("0"), Quick("1")], Output(2), grace=0.0)
        return await asyncio.wait_for(group.run(), 20)

    assert asyncio.run(run()) == Ended(7, False)


# ---- log files -----------------------------------------------------------------------------


def test_a_file_for_each_worker_and_life(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(
        "import os, sys\n"
        "print('out', os.environ['RANK'], flush=True); print('err', file=sys.stderr)\n"
        "sys.exit(os.environ['SAR_RESTART_COUNT'] == '0')"
    )
    logs = tmp_path / "deep" / "logs"
    done = launch_fresh("-n", 2, "--max-restarts", 1, "--log-dir", logs, script)
    assert done.returncode == 0 and "[1] out 1" in done.stdout
    found = {file.name: sorted(file.read_text().splitlines()) for file in logs.iterdir()}
    names = ["rank-0.log", "rank-0.restart-1.log", "rank-1.log", "rank-1.restart-1.log"]
    assert found == {name: ["err", f"out {name[5]}"] for name in names}
    (tmp_path / "file").touch()
    done = launch_fresh("-n", 1, "--log-dir", tmp_path / "file", script)
    assert done.returncode == 2 and "--log-dir" in done.stderr


def test_a_full_disk_does_not_end_the_job(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    import sys

    with open("/dev/full", "wb", buffering=0) as full:
        stream = lines.Lines(sys.stdout.buffer, b"", None, full)
        stream.feed(b"one\n")
        stream.feed(b"two\n")
    out, err = capfdbinary.readouterr()
    assert out == b"one\ntwo\n" and err == b"sar launch: /dev/full gets no more lines: No space left on device\n"
