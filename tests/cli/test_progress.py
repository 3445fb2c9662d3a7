"""The line with the time left: on a terminal, through ``sar launch``, and nowhere else."""

from __future__ import annotations

import os
import pty
import re
import sys
from pathlib import Path

import pytest

from sar.cli.lines import Lines, Progress
from sar.profiling import progress
from tests.support.command import run_sar, started

SCRIPT = """
import os, sys, time
import sar
sar.initialize_comms()
rank = sar.rank()
for epoch in range(1, 6):
    time.sleep(0.15)
    sar.comm.barrier()
    print("printed", rank, epoch)
    sar.log_epoch(epoch, 5, loss=epoch / 2, accuracy={"train": 0.25})
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def on_terminal(script: Path, **environment: str) -> str:
    """What ``sar launch`` writes to one."""
    ours, theirs = pty.openpty()
    process = started("launch", "-n", 2, script, stdout=theirs, stderr=theirs, env={**os.environ, **environment})
    os.close(theirs)
    shown = b""
    while True:
        try:
            data = os.read(ours, 4096)
        except OSError:  # nobody has it open any more
            break
        if not data:
            break
        shown += data
    os.close(ours)
    assert process.wait(60) == 0, shown
    return shown.decode()


def test_on_a_terminal(script: Path) -> None:
    shown = on_terminal(script)
    line = r"\r\[0\] epoch %d/5  loss %s  accuracy/train 0\.25  (\d+ ms|[\d.]+ s) an epoch%s"
    assert all(re.search(line % (epoch, f"{epoch / 2:g}", r", \d+:\d\d left\x1b"), shown) for epoch in range(2, 5))
    assert "[1] epoch" not in shown
    # as a terminal shows it: what stands before a carriage return is written over
    lines = [text.rstrip("\r").rpartition("\r")[2].replace("\x1b[K", "") for text in shown.split("\n")]
    # a line of rank 1 may come after rank 0's last epoch
    [last] = [text for text in lines if text and "printed" not in text]
    assert re.fullmatch((line % (5, "2.5", ""))[2:], last)
    printed = sorted(text for text in lines if "printed" in text)
    assert printed == sorted(f"[{r}] printed {r} {epoch}" for r in range(2) for epoch in range(1, 6))


def test_switched_off(script: Path) -> None:
    assert " left" not in on_terminal(script, SAR_PROGRESS="0")


def test_without_a_terminal(script: Path) -> None:
    done = run_sar("launch", "-n", 2, script)
    assert done.returncode == 0 and done.stderr == "" and done.stdout.count("printed") == 10


def test_lines_appear_above_it(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    below = Progress()
    err = Lines(sys.stderr.buffer, b"[0] ", progress=below)
    err.rewrites = True
    other = Lines(sys.stderr.buffer, b"[1] ", progress=below)
    for stream, data in [
        (err, b"\repoch 1\x1b[K"),
        (other, b"half"),
        (other, b" a line\n"),
        (err, b"\repoch 2\x1b[K"),
        (err, b"\nthe end\n"),
        (other, b"more\n"),
        (err, b"a prompt: "),
        (err, b""),
    ]:
        stream.feed(data)
    clear = b"\x1b[K"
    assert capfdbinary.readouterr().err == (
        b"\r[0] epoch 1" + clear
        + b"\r" + clear + b"[1] half a line\n" + b"\r[0] epoch 1" + clear
        + b"\r[0] epoch 2" + clear
        + b"\r" + clear + b"[0] epoch 2\n[0] the end\n"
        + b"[1] more\n"
        + b"[0] a prompt: \n"
    )  # fmt: skip


def test_time_left(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """By the median, so that the start in the first epoch does not count; hours where there are."""
    monkeypatch.setenv("SAR_PROGRESS", "1")
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    assert progress.progress_line(1) is None
    line = progress.progress_line(0)
    assert line is not None
    for epoch, took in enumerate((500.0, 10.0, 10.0), 1):
        line.write({"epoch": epoch, "took": took, "values": {"loss": float(epoch), "none": None}}, 1000)
    line.close()
    line.close()
    last = capsys.readouterr().err.rpartition("\r")[2]
    assert last == "epoch 3/1000  loss 3  10.00 s an epoch, 2:46:10 left\x1b[K\n"
