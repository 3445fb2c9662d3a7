"""The log of a run, and the page that is made of it."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import sar.cli
from sar.errors import FormatError
from sar.profiling.plan import estimate_memory
from sar.report import pictures
from sar.report.events import read
from sar.report.page import page
from tests.distributed import cases_run_log
from tests.support.graphs import make
from tests.support.sessions import Workers

_TEXT = ["html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "div", "figure", "figcaption"]
_LISTS = ["ul", "li", "b", "i", "span", "table", "thead", "tbody", "tr", "th", "td"]
ALLOWED = {*_TEXT, *_LISTS, "svg", "line", "text", "path"}


class Reader(HTMLParser):
    """Elements, attributes and texts of a page, and that what is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def logged(workers: Workers, folder: Path, epochs: int = 3, logging: list[int] | None = None, **settings: str) -> Any:
    graph = make("random", workers.world, seed=8)
    arguments = graph.shares()
    ranks = list(range(workers.world)) if logging is None else logging
    return workers.run(cases_run_log.trained, arguments, folder=str(folder), epochs=epochs, logging=ranks, **settings)


def test_the_log_holds_what_happened(few: Workers, tmp_path: Path) -> None:
    losses = logged(few, tmp_path / "run")
    run = read(str(tmp_path / "run"))
    assert run.world == few.world and not run.missing
    for worker in run.workers:
        assert [e.epoch for e in worker.epochs] == [1, 2, 3]
        assert [e.values["loss"] for e in worker.epochs] == losses[worker.rank]
        assert worker.epochs[1].values["accuracy"] == {"train": 0.2, "test": None}
        assert all(0 < e.phases["backward <&>"] <= e.took for e in worker.epochs)
        assert worker.epochs[-1].memory["structure"][1] > 0
        assert set(worker.epochs[-1].sent) == set(range(few.world)) - {worker.rank}
        assert all(n > 0 for n in worker.epochs[-1].sent.values())
        assert worker.epochs[-1].operations["aggregation"][0] >= 3
        assert worker.start["settings"] == {"lr": "0.01"}
        assert "SAR_JOB_TOKEN" not in worker.start["environment"]


def test_logging_sends_nothing(two: Workers, tmp_path: Path) -> None:
    """A rank may keep a log where the other does not."""
    assert logged(two, tmp_path / "one", logging=[1]) == logged(two, tmp_path / "both")
    run = read(str(tmp_path / "one"))
    assert [w.rank for w in run.workers] == [1] and run.missing == [0]
    assert "No log of rank 0" in page(run, "one")


def test_the_page(few: Workers, tmp_path: Path) -> None:
    evil = "</style><script>alert(1)</script><img src=x onerror=y> \"quotes\" & 'all'"
    logged(few, tmp_path / "run", note=evil)
    plan = estimate_memory(None, ["sage:3"], in_features=8, num_nodes=61, num_edges=400, parts=few.world, edge_cut=0.5)
    (tmp_path / "run" / "plan.json").write_text(json.dumps([e._asdict() for e in plan]))
    out = tmp_path / "report.html"
    assert sar.cli.main(["report", str(tmp_path / "run"), "-o", str(out)]) == 0
    text = out.read_text(encoding="utf-8")
    found = Reader(text)
    assert {tag for tag, _ in found.elements} <= ALLOWED
    for tag, attributes in found.elements:
        assert not any(name.startswith("on") or name in ("src", "href", "xlink:href") for name in attributes), tag
    assert evil in found.texts
    for expected in ("Training", "Memory", "Time", "Settings", "planned", "torch", "everything else", "loss"):
        assert expected in found.texts, expected
    assert ("Bytes sent over each link" in found.texts) == (few.world > 1)
    assert "3 epochs with values that are not finite, the first is 1." in found.texts
    assert text.count("<svg") == 4 and text.count("<figure>") == 6 + (few.world > 1)
    cells = [a for tag, a in found.elements if tag == "td" and a.get("class") == "cell"]
    assert len(cells) == (few.world**2 if few.world > 1 else 0)


def test_what_scripts_may_not_log(two: Workers, tmp_path: Path) -> None:
    for said in two.run(cases_run_log.wrong, folder=str(tmp_path)):
        assert len(said) == 3 and all("give a number" in text for text in said)
    text = page(read(str(tmp_path)), "run")
    assert "Rank 0 ended with an error: ValueError: it broke &lt;b&gt;" in text and "No epoch was logged" in text


def test_a_log_that_was_cut_short(two: Workers, tmp_path: Path) -> None:
    logged(two, tmp_path, epochs=4)
    path = tmp_path / "rank00001.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    run = read(str(tmp_path))
    assert [len(w.epochs) for w in run.workers] == [4, 3]
    text = page(run, "run")
    assert "The log of rank 1 ends within a line" in text and "Workers have logged 3 to 4 epochs" in text


def test_files_of_an_earlier_run_are_left_out(few: Workers, tmp_path: Path) -> None:
    logged(few, tmp_path)
    old = json.loads((tmp_path / "rank00000.jsonl").read_text().splitlines()[0])
    old.update(rank=9, world=10, time=old["time"] - 1000)
    (tmp_path / "rank00009.jsonl").write_text(json.dumps(old) + "\n")
    assert [w.rank for w in read(str(tmp_path)).workers] == list(range(few.world))


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rank00000.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("line", "change", "message"),
    [
        (1, "not JSON", "line 1: not JSON"),
        (2, "[" * 100_000, "line 2: not JSON"),
        (2, "[]", "line 2: not a line of sar.RunLog"),
        (2, {"event": "hello"}, "unknown event 'hello'"),
        (1, {"event": "epoch"}, "expected the start of a log"),
        (1, {"version": 99}, "expected the start of a log"),
        (1, {"rank": 5}, "rank 5 of 2"),
        (1, {"rank": 1}, "it is of rank 1"),
        (1, {"world": -1}, "-1 is no count"),
        (2, {"took": "long"}, "'long' is no finite number"),
        (2, {"seconds": float("nan")}, "nan is no finite number"),
        (2, {"sent": {"7": 1}}, "a peer outside 0..1"),
        (2, {"sent": {"1": -1}}, "-1 is no count"),
        (2, {"memory": {"tensors": [1]}}, "expected 2 numbers"),
        (2, {"memory": [1]}, "not a line of sar.RunLog"),
        (2, {"operations": None}, "not a line of sar.RunLog"),
        (2, {"values": {"loss": "low"}}, "'low' is no finite number"),
        (2, "x" * ((1 << 20) + 10), "longer than 1048576"),
    ],
)
def test_bad_logs(two: Workers, tmp_path: Path, line: int, change: Any, message: str) -> None:
    logged(two, tmp_path, epochs=1)
    lines = [json.dumps(one) for one in lines_of(tmp_path)]
    if isinstance(change, dict):
        change = json.dumps({**json.loads(lines[line - 1]), **change})
    lines[line - 1] = change
    (tmp_path / "rank00000.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(FormatError) as caught:
        read(str(tmp_path))
    assert message in str(caught.value) and "rank00000.jsonl" in str(caught.value)


def test_nothing_to_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "report.html")
    assert sar.cli.main(["report", str(tmp_path), "-o", out]) == 1
    assert "holds no rank00000.jsonl" in capsys.readouterr().err
    (tmp_path / "rank00000.jsonl").write_text("")
    assert sar.cli.main(["report", str(tmp_path), "-o", out]) == 1
    assert "no line of sar.RunLog" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()


def test_plans_that_are_none(two: Workers, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logged(two, tmp_path)
    for text in ("{", '{"rank": 0}', "[[1]]", '[{"rank": 0}]'):
        (tmp_path / "plan.json").write_text(text)
        assert sar.cli.main(["report", str(tmp_path), "-o", str(tmp_path / "r.html")]) == 1
        assert "is not what `sar plan --json-output` prints" in capsys.readouterr().err


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.3, 0.9), (-5, 1e9), (1e-9, 2e-9), (4, 4), (0, 7)])
def test_ticks_hold_the_range(low: float, high: float) -> None:
    found = pictures.ticks(low, high)
    slack = 1e-6 * (high - low)
    assert found[0] <= low + slack and found[-1] >= high - slack and len(found) <= 9
    assert found == sorted(found)
