"""Parts of ``sar launch``: the channel to other hosts, the binding of workers to cores, log files."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any, Callable, Coroutine, Iterator
from unittest import mock

import pytest

from sar.cli import binding, channel, lines
from sar.cli.channel import GREETING, Channel, ChannelError
from tests.support.command import launch_fresh

# ---- the channel ---------------------------------------------------------------------------


class Ends:
    """A channel of the launcher, and what the agent would write to and read from."""

    async def __aenter__(self) -> Ends:
        from_agent, self.agent_out = os.pipe()
        self.agent_in, self.to_agent = os.pipe()
        reader, self.transport = await channel.open_reader(open(from_agent, "rb", buffering=0))  # noqa: SIM115
        self.launcher = Channel(reader, self.to_agent)
        return self

    async def __aexit__(self, *unused: object) -> None:
        self.transport.close()
        for descriptor in (self.agent_out, self.agent_in, self.to_agent):
            os.close(descriptor)


async def messages_come_in_pieces() -> None:
    async with Ends() as ends:
        greeted = asyncio.create_task(ends.launcher.greeted())
        sent = b"motd\n" + GREETING + b'\n{"rank": 3, "stdout": "text"}\n'
        for k in range(len(sent)):
            os.write(ends.agent_out, sent[k : k + 1])
            await asyncio.sleep(0)
        assert await greeted == b"motd\n"
        assert await ends.launcher.receive() == {"rank": 3, "stdout": "text"}


async def what_is_no_agent() -> None:
    async with Ends() as ends:
        greeted = asyncio.create_task(ends.launcher.greeted())
        while not greeted.done():
            os.write(ends.agent_out, bytes(1 << 12))
            await asyncio.sleep(0)
        with pytest.raises(ChannelError, match="something else than the agent answers"):
            await greeted


async def what_is_no_message() -> None:
    for text in (b"hello\n", b"[1]\n", b"[" * 100_000 + b"\n"):
        async with Ends() as ends:
            writing = asyncio.get_running_loop().run_in_executor(None, os.write, ends.agent_out, text)
            with pytest.raises(ChannelError, match="something else than a message came"):
                await ends.launcher.receive()
            await writing


async def lengths_are_bounded() -> None:
    async with Ends() as ends:
        received = asyncio.create_task(ends.launcher.receive())
        while not received.done():
            os.write(ends.agent_out, b"x" * (1 << 12))
            await asyncio.sleep(0)
        with pytest.raises(ChannelError, match="a message came of more than 1000000 bytes"):
            await received


async def a_stuck_agent_blocks_nobody() -> None:
    async with Ends() as ends:
        text = os.urandom(1 << 20).decode("latin-1")
        ends.launcher.send(text=text)
        read = b""
        while not read.endswith(b"\n"):
            read += os.read(ends.agent_in, 1 << 20)
            await asyncio.sleep(0.001)
        assert json.loads(read) == {"text": text} and not ends.launcher.unsent


async def silence_is_an_end() -> None:
    async with Ends() as ends:
        with mock.patch.object(channel, "PING_SECONDS", 0.01):
            ends.launcher.silent = 0.02
            await ends.launcher.keep()
        assert os.read(ends.agent_in, 100) == b"\n\n"
        with pytest.raises(ChannelError, match="nothing has been heard for 0.02 s"):
            await ends.launcher.receive()


@pytest.mark.parametrize(
    "case",
    [
        messages_come_in_pieces,
        what_is_no_agent,
        what_is_no_message,
        lengths_are_bounded,
        a_stuck_agent_blocks_nobody,
        silence_is_an_end,
    ],
    ids=lambda case: case.__name__,
)
def test_channel(case: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with mock.patch.object(channel, "_LONGEST", 1_000_000):
        asyncio.run(asyncio.wait_for(case(), 30))


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
