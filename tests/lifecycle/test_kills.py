"""Workers that are killed in jobs that are started again. ``make kills`` does more of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kills import run


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, set[str]]:
    folder = tmp_path_factory.mktemp("undisturbed") / "job"
    assert run.job(folder, "sar", 0, 0) == run.Outcome(0, "")
    found = run.losses(folder)
    assert all(len(loss) == 1 for loss in found.values())
    return found


@pytest.mark.parametrize("launcher", ["sar", "torchrun"])
def test_killed_jobs_end_with_the_same_losses(tmp_path: Path, undisturbed: dict[int, set[str]], launcher: str) -> None:
    assert run.job(tmp_path / "job", launcher, 2, seed=11) == run.Outcome(2, "")
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
