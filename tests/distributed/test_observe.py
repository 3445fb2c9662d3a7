"""Timelines of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sar.cli
from tests.distributed import cases_observe
from tests.support.graphs import make
from tests.support.sessions import Workers


def record(workers: Workers, folder: Path, torch_ops: bool) -> list[dict[str, Any]]:
    graph = make("random", workers.world, seed=50)
    x = np.random.default_rng(51).standard_normal((graph.num_nodes, 64)).astype("float32")
    return workers.run(cases_observe.traced, graph.shares(x=x), folder=str(folder), torch_ops=torch_ops)


def inside(inner: dict[str, Any], outer: dict[str, Any]) -> bool:
    slack = 1.0  # microseconds that rounding may cost
    return bool(outer["ts"] - slack <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + slack)


@pytest.mark.parametrize("torch_ops", [False, True])
def test_timeline(two: Workers, tmp_path: Path, torch_ops: bool) -> None:
    for rank, result in enumerate(record(two, tmp_path, torch_ops)):
        events = result["events"]
        lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
        slices = [e for e in events if e["ph"] == "X"]
        assert slices and all(e["pid"] == rank and e["tid"] in lanes for e in slices)
        by_lane = {name: [e for e in slices if e["tid"] == tid] for tid, name in lanes.items()}
        operations = by_lane["train: operations"]
        assert [e["name"].split(" (")[0] for e in operations] == ["forward aggregation", "backward aggregation"]
        assert all(0 < e["dur"] < result["microseconds"] and e["args"]["bytes"] > 0 for e in operations)
        for lane, names in (
            ("train: computing", {"own rows"}),
            (f"train: sending to {1 - rank}", {"produce"}),
            (f"train: receiving from {1 - rank}", {"wait for rows", "consume"}),
        ):
            seen = {e["name"] for e in by_lane[lane]}
            assert names - {"wait for rows"} <= seen <= names | {"wait for room"}  # waits where there are any
            for event in by_lane[lane]:
                assert any(inside(event, operation) for operation in operations)
        torch_lanes = [name for name in lanes.values() if name.startswith("torch thread")]
        assert bool(torch_lanes) == torch_ops
        if torch_ops:
            ours = [e for name in torch_lanes for e in by_lane[name]]
            assert any(e["name"] == "aten::mul" for e in ours)
            call = next(e for e in ours if e["name"] == "_Aggregate")
            clocks_differ = 5000.0  # microseconds; the marker that aligns them is read from Python
            assert call["ts"] - clocks_differ < operations[0]["ts"] < call["ts"] + call["dur"] + clocks_differ


def test_timeline_of_attention(two: Workers, tmp_path: Path) -> None:
    """Where rows are read again and gradients return in one movement, both show."""
    graph = make("random", 2, seed=52)
    for rank, events in enumerate(two.run(cases_observe.traced_attention, graph.shares(), folder=str(tmp_path))):
        lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
        slices = [e for e in events if e["ph"] == "X"]
        backward = [e for e in slices if e["name"].startswith("backward")]
        assert backward
        seen = {
            (lanes[e["tid"]], e["name"])
            for e in slices
            if e["name"] != backward[-1]["name"] and any(inside(e, operation) for operation in backward)
        }
        assert {
            ("train: computing", "own rows"),
            (f"train: sending to {1 - rank}", "produce"),
            (f"train: receiving from {1 - rank}", "consume"),
            (f"train: receiving from {1 - rank}", "take back"),
        } <= seen


def test_joined(two: Workers, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(two, tmp_path, False)
    files = sorted(map(str, tmp_path.glob("run.rank*.json")))
    assert sar.cli.main(["trace", *files, "-o", str(tmp_path / "all.json")]) == 0
    assert "2 workers" in capsys.readouterr().out
    events = json.loads((tmp_path / "all.json").read_text())["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    assert {e["pid"] for e in slices} == {0, 1} and min(e["ts"] for e in slices) == 0
    (tmp_path / "bad.json").write_text("{}")
    assert sar.cli.main(["trace", str(tmp_path / "bad.json"), "-o", str(tmp_path / "x.json")]) == 1
    assert "not a timeline" in capsys.readouterr().err


def test_one_at_a_time(two: Workers, tmp_path: Path) -> None:
    for message in two.run(cases_observe.trace_twice, folder=str(tmp_path)):
        assert "already" in message
