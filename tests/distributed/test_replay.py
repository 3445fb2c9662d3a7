"""What plays the peers of one worker in `make bench-paper` is to that worker as real peers are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support import ROOT, warm

sys.path.insert(0, str(ROOT / "bench"))

import common  # noqa: E402
import paper  # noqa: E402
import paper_graph  # noqa: E402
from record import joined  # noqa: E402
from sar._engine import abi  # noqa: E402

CALLS = {
    "sage": ("sar_program_forward", "sar_program_backward"),
    "gat128": ("sar_program_forward", "sar_program_backward"),
}


def started(words: list[str], **options: Any) -> warm.Popen:
    """A fork of a process that has imported torch. What real and replayed rank 0 grow by, they grow by from there."""
    return warm.Popen(words[1:], **options)


@pytest.mark.parametrize(
    ("model", "way"),
    [
        ("sage", "plain"),
        pytest.param("gat128", "plain", marks=pytest.mark.full),
        pytest.param("gat128", "efficient", marks=pytest.mark.full),
    ],
)
def test_replayed_peers(tmp_path: Path, model: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 of 3 sends and receives, to the byte and the frame, what it does among real workers, and takes the memory
    that it does there."""
    for module in (common, paper):
        monkeypatch.setattr(module, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": started}))
    records = [str(tmp_path / f"{workers}.json") for workers in (2, 3)]
    for workers, record in zip((2, 3), records):
        parts = paper.small(str(tmp_path), workers, 3001, 60_001)
        extra = {"BENCH_RECORD": record, "BENCH_WAY": way}
        with common.Group("worker.py", ["sar", parts, "pool", model], workers, 1, extra) as group:
            real = paper.train(group, 1)
    joined(*records)
    text = Path(records[0]).read_text(encoding="utf-8")
    assert all(f'"{name}"' in text for name in CALLS[model])
    found = paper.replayed(parts, 3, model, way, 1, records[0], 1)
    assert found["links"] == real["links"]
    assert found["links"]["train"]["recv_payload"] > 1 << 20
    assert found["memory"]["growth"] == pytest.approx(real["memory"]["growth"], rel=0.1, abs=2 << 20)


def test_records_of_different_scripts(tmp_path: Path) -> None:
    """Records that do not have the same calls are not joined."""
    for name, calls in (("a", [{"name": "sar_barrier", "args": []}]), ("b", [])):
        (tmp_path / name).write_text(f'{{"world": 2, "calls": {calls}}}'.replace("'", '"'), encoding="utf-8")
    with pytest.raises(ValueError, match="depends on the number of workers"):
        joined(str(tmp_path / "a"), str(tmp_path / "b"))


@pytest.mark.parametrize("cut", [0.2, None])
def test_generated_part(tmp_path: Path, cut: float | None) -> None:
    """A part that is made by itself has the paper's sizes, the halo rows of a cut, and what a worker loads."""
    made = paper_graph.part(str(tmp_path), 8, cut, 2000)
    expected = 7 / 8 if cut is None else cut
    assert made["cut"] == pytest.approx(expected, rel=0.01)
    assert made["nodes"] == paper_graph.NODES // 2000 // 8
    assert made["edges"] == pytest.approx(paper_graph.EDGES / 2000 / 8, rel=0.01)
    assert made["most_in_edges"] > 20 * made["edges"] / made["nodes"]
    if cut is not None:
        assert made["cut"] * made["edges"] / made["halo"] == pytest.approx(paper_graph.READS, rel=0.15)
    part = abi.partition_open(str(tmp_path / "paper.json"), 0)
    info = abi.partition_info(part)
    count = abi.partition_count_edges(part, 0)
    src, dst = torch.empty(count, dtype=torch.int64), torch.empty(count, dtype=torch.int64)
    abi.partition_edges(part, 0, src, dst, None)
    abi.partition_close(part)
    assert (info["num_inner_nodes"], count) == (made["nodes"], made["edges"])
    assert info["num_local_nodes"] == made["nodes"] + made["halo"]
    remote = src[src >= made["nodes"]]
    assert len(torch.unique(remote)) == made["halo"] and dst.max() < made["nodes"]
