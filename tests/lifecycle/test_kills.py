"""Workers that are killed in jobs that are started again. ``make kills`` does more of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kills import run
from tests.support.command import run_sar, started, torchrun
from tests.support.partitions import partition


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, set[str]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    done = run_sar("launch", "-n", run.WORKERS, *run.JOB, partition(folder, run.WORKERS), folder)
    assert done.returncode == 0, done.stderr
    found = run.losses(folder)
    assert all(len(loss) == 1 for loss in found.values())
    return found


def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """The launcher and its workers, as forks of a process that has imported torch."""
    assert command[:2] == [sys.executable, "-m"]
    return {"sar": started, "torch.distributed.run": torchrun}[command[2]](*command[3:], **options)


@pytest.mark.parametrize(("launcher", "seed"), [("sar", 9), ("torchrun", 5)])  # in a checkpoint, in an epoch
def test_a_killed_job_ends_with_the_same_losses(
    tmp_path: Path, undisturbed: dict[int, set[str]], launcher: str, seed: int
) -> None:
    assert run.job(tmp_path / "job", launcher, 1, seed, start) == run.Outcome(1, "")
    assert run.compare(tmp_path / "job", undisturbed) == ""


def test_the_judge(tmp_path: Path) -> None:
    """It notices an epoch that is missing, and one that has two losses."""
    path = tmp_path / "losses"
    lines = [f"{epoch} {float(epoch).hex()}" for epoch in range(1, run.EPOCHS + 1)]
    path.write_text("\n".join(lines) + "\n")
    undisturbed = run.losses(tmp_path)
    assert run.compare(tmp_path, undisturbed) == ""
    path.write_text("\n".join(lines[1:]) + "\n")
    assert run.compare(tmp_path, undisturbed).startswith("epochs ")
    path.write_text("\n".join([*lines, "7 0x1.0p+0"]) + "\n")
    assert run.compare(tmp_path, undisturbed) == "other losses in epochs [7]"
