"""Workers that are killed in jobs that are started again. ``make kills`` does more of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kills import run


@pytest.mark.parametrize("launcher", ["sar", "torchrun"])
def test_killed_jobs_end_with_the_same_losses(tmp_path: Path, launcher: str) -> None:
    assert run.job(tmp_path / "whole", launcher, 0, 0) == run.Outcome(0, "")
    undisturbed = run.losses(tmp_path / "whole")
    assert all(len(loss) == 1 for loss in undisturbed.values())
    outcome = run.job(tmp_path / "killed", launcher, 2, seed=11)
    assert outcome == run.Outcome(2, "")
    assert run.compare(tmp_path / "killed", undisturbed) == ""


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
