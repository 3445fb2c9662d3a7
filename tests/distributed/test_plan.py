"""Predictions of memory and traffic, against what is measured, and against sums done by hand."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

import sar.cli
from sar.autograd.fused import costs
from sar.autograd.fused.costs import Cover
from sar.cli.plan import rate_of
from sar.profiling.plan import Estimate, estimate_memory
from sar.profiling.plan.layers import costs_of
from tests.distributed import cases_plan
from tests.support import ROOT, graph_dirs
from tests.support.graphs import make
from tests.support.sessions import Workers

MIB = 1 << 20


@pytest.mark.parametrize(
    "widths, dropout, autocast",
    [
        *[([64, 128, 128, 16], 0, False), ([64, 128, 128, 16], 0.5, False), ([128, 64, 32], 0, False)],
        ([64, 128, 128, 16], 0, True),
    ],
)
def test_growth_is_as_predicted(two: Workers, widths: list[int], dropout: float, autocast: bool) -> None:
    """Dropout of nothing takes no memory."""
    nodes, edges = 40_000, 80_000
    rng = np.random.default_rng(70)
    half = nodes // 2
    arguments = []
    for rank in range(2):
        dst = np.sort(rng.integers(rank * half, (rank + 1) * half, edges // 2))
        src = rng.integers(0, nodes, edges // 2)
        start = np.array([0, half, nodes])
        arguments.append({"part": {"start": start, "src": src, "dst": dst}, "rows": half})
    # In the first run pages of the window are touched for the first time, and memory of tests before may be given back
    # meanwhile; in the others less may be.
    given = {"widths": widths, "dropout": dropout, "autocast": autocast}
    _, *runs = (max(two.run(cases_plan.growth, arguments, **given)) for _ in range(3))
    measured = max(runs)
    hidden = [layer for w in widths[1:-1] for layer in (f"sage:{w}", "bn", "relu", *["dropout"] * (dropout > 0))]
    (e, *_) = estimate_memory(
        None,
        [*hidden, f"sage:{widths[-1]}"],
        in_features=widths[0],
        num_nodes=nodes,
        num_edges=edges,
        parts=2,
        edge_cut=0.5,
        autocast=autocast,
    )
    predicted = e.parameters + e.activations + e.scratch
    most = 1.25 if autocast else 1.15  # libraries widen rows where the processor has no products of bfloat16
    assert 0.85 < measured / predicted < most, f"measured {measured / MIB:.1f} MiB, predicted {predicted / MIB:.1f}"


def test_rows_are_half_under_autocast() -> None:
    """Rows have two bytes. Sums of other workers' rows have four until they are rounded where they lie: the other two
    are in place of the input's gradient. GCN's result has four."""

    def made(*layers: str, parts: int = 1) -> Estimate:
        sizes = {"in_features": 64, "num_nodes": 1000 * parts, "num_edges": 10**6 * parts, "parts": parts}
        return estimate_memory(None, layers, **sizes, edge_cut=0.5, optimizer="sgd", autocast=True)[0]

    one, two = made("sage:64"), made("sage:64", parts=2)
    deep = [made("sage:64", "sage:64", parts=parts) for parts in (1, 2)]
    assert one.features == 1000 * 64 * 2 and one.parameters == (2 * 64 * 64 + 64) * 4 * 2
    assert one.activations == 1000 * (64 + 64) * 2  # the mean, and the result
    assert deep[1].scratch == deep[0].scratch
    assert made("gcn:64").activations - one.activations == 1000 * (64 + 1) * 2
    assert two.sent_per_epoch == pytest.approx(1000 * 64 * 2 + one.parameters // 2, rel=1e-3)


def test_one_layer_by_hand() -> None:
    """A linear layer of 1000 rows, 10 to 20: its result and the gradient of that are all there is."""
    (e,) = estimate_memory(None, ["linear:20"], in_features=10, num_nodes=1000, num_edges=0, optimizer="sgd")
    assert e.activations == 1000 * 20 * 4
    assert e.scratch == 1000 * 20 * 4
    assert e.parameters == (10 * 20 + 20) * 4 * 2
    assert e.window == e.sent_per_epoch == 0


def test_less_is_kept_by_the_fused_norm() -> None:
    def kept(*layers: str) -> int:
        return estimate_memory(None, layers, in_features=8, num_nodes=1000, num_edges=5000)[0].activations

    apart, fused = kept("sage:64", "bn", "elu", "dropout", "sage:8"), kept("sage:64", "bnact", "sage:8")
    assert apart - fused >= 1000 * 64 * 4


def test_less_is_kept_by_attention_by_columns() -> None:
    """Between the passes two inputs and the result; in the last layer's backward also the gradients of the last two,
    and four blocks of columns."""
    (plain,) = estimate_memory(
        None, ["gat:4x64", "elu", "gat:4x40", "mean:4"], in_features=32, num_nodes=1000, num_edges=5000
    )
    (e,) = estimate_memory(None, ["gat-flatten:4x64", "gat-mean:4x40"], in_features=32, num_nodes=1000, num_edges=5000)
    assert e.activations == 1000 * 4 * (256 + 40)
    assert e.scratch == 1000 * 4 * (256 + 40 + 4 * 20 + 4 * 4)
    assert e.parameters == plain.parameters
    assert e.activations + e.scratch < 0.5 * (plain.activations + plain.scratch)


def test_traffic_by_hand() -> None:
    """Every worker reads about all rows of the other: forward of both layers, backward of the second alone."""
    (e, _) = estimate_memory(
        None, ["sage:64", "sage:64"], in_features=16, num_nodes=2000, num_edges=4_000_000, parts=2, edge_cut=0.5
    )
    weights = (2 * 16 * 64 + 64) + (2 * 64 * 64 + 64)
    assert e.sent_per_epoch == pytest.approx(1000 * 4 * (16 + 64 + 64) + weights * 4, rel=1e-3)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("kind", ["sage", "sage-pool", "gat", "gat-flatten"])
def test_traffic_is_what_travels(workers: Workers, kind: str, half: bool) -> None:
    """Byte by byte: what workers send in one step, and what the plan says of as many boundary rows."""
    graph = make("random", workers.world, seed=91)
    widths = {"sage": [6, 6, 4, 8], "sage-pool": [6, 4], "gat": [6, 4, 8], "gat-flatten": [6, 80, 8]}[kind]
    arguments = [{"part": graph.part(r), "rows": graph.rows(r).stop - graph.rows(r).start} for r in range(graph.world)]
    found = workers.run(cases_plan.traffic, arguments, kind=kind, widths=widths, autocast=half)
    names = [f"{kind}:{w}" if "sage" in kind else f"{kind}:2x{w // 2}" for w in widths[1:]]
    row = sum(layer.sent(2 if half else 4) for layer in costs_of(names, widths[0]))
    boundary = sum(one["boundary"] for one in found)
    sent = sum(one["sent"] for one in found) - row * boundary
    # workers agree on how a layer by columns runs: a few numbers to each other
    few = 48 * workers.world * (workers.world - 1) * len(names)
    assert 0 <= sent <= (few if kind == "gat-flatten" else 0)
    assert workers.world == 1 or boundary > 0


def test_what_a_cover_saves() -> None:
    """Layers send rows, or the cheapest cover for their rows and partial results, where that saves 1/32."""
    cover = Cover(100, (10, 40, 90), (120, 30, 5))  # of a price of a half, one and two
    assert [cover.share(4, price) for price in (2, 4, 5, 8)] == [0.55, 0.7, 0.775, 1.0]
    assert cover.share(4, 7.5) == pytest.approx(0.9625) and cover.share(4, 0.5) == pytest.approx(0.25)
    width = 4 * 32
    assert costs.gin(width, 8, True).sent(4, cover) == pytest.approx(0.7 * 2 * width * 4)
    assert costs.sage_pool(width, 8, True).sent(4, cover) == pytest.approx(0.775 * 2 * width * 4)
    rows = (132 * 0.4 + 140 * 0.3, 264 * 0.4 + 148 * 0.3)  # of GAT: numbers
    assert costs.gat(8, 4, 32, True).sent(4, cover) == pytest.approx(4 * sum(rows))


def test_from_a_partition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ROOT / "examples" / "data" / "cora.npz"
    assert sar.cli.main(["partition", str(data), "--parts", "3", "--method", "random", "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    path = next(map(str, tmp_path.glob("*.json")))
    words = ["plan", path, "--layers", "gcn:16,relu,dropout,gcn:7"]
    assert sar.cli.main([*words, "--json-output"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [e["rank"] for e in found] == [0, 1, 2]
    width = np.load(data)["x"].shape[1]
    assert all(e["features"] >= 900 * width * 4 and e["peak"] > e["features"] for e in found)
    assert sar.cli.main(words) == 0
    assert "heaviest worker" in capsys.readouterr().out


LAYERS = ["--layers", "sage:256,bn,relu,sage:9"]
SIZES = ["plan", "--nodes", "1000000", "--edges", "20000000", "--features", "128", *LAYERS]


def plan(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert sar.cli.main(list(words)) == code
    found = capsys.readouterr()
    return found.out if code == 0 else found.err


def test_equal_workers_have_one_row(capsys: pytest.CaptureFixture[str]) -> None:
    rows = plan(capsys, *SIZES, "--parts", "8").splitlines()
    assert [row.split("  ")[0] for row in rows[2:3]] == ["each of 8"] and rows[3].startswith("The heaviest worker")


def test_from_a_graph_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same as from its sizes."""
    rng = np.random.default_rng(5)
    features = {"features": rng.random((300, 12), dtype=np.float32), "labels": np.arange(300)}
    edges = {("_N", "_E", "_N"): (rng.integers(0, 300, 900), rng.integers(0, 300, 900), {})}
    graph_dirs.write(tmp_path / "g", {"_N": (300, features)}, edges)
    words = ["--parts", "8", "--json-output"]
    sizes = ["--nodes", "300", "--edges", "900", "--features", "12"]
    expected = json.loads(plan(capsys, "plan", *sizes, *LAYERS, *words))
    for path in (tmp_path / "g", tmp_path / "g" / "graph.json"):
        found = json.loads(plan(capsys, "plan", str(path), *LAYERS, *words))
        assert found == expected and len(found) == 8
    assert "--nodes and --edges are for a graph without files" in plan(capsys, *SIZES, str(tmp_path / "g"), code=2)
    (tmp_path / "g" / "graph.json").write_text('{"format": "DGL"}')
    assert 'found "DGL"' in plan(capsys, "plan", str(tmp_path / "g"), *LAYERS, code=1)


def test_seconds_of_an_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    """By hand: a layer of 128 to 256 aggregates its input, which needs no gradient; one of 256 to 9 its product, in
    both passes. Each of 4 workers has a quarter of nodes and edges."""
    words = [*SIZES, "--parts", "4", "--json-output", "--kernel-rate", "2"]
    (one, *_) = json.loads(plan(capsys, *words))
    assert one["aggregated"] == (128 + 9 * 2) * 5_000_000
    weights = (2 * 128 * 256 + 256) + 2 * 256 + (2 * 256 * 9 + 9)
    assert one["multiplied"] == 3 * weights * 250_000
    products = one["multiplied"] / 16e9
    assert one["epoch_seconds"] == pytest.approx(one["aggregated"] / 2e9 + products)
    (slow, *_) = json.loads(plan(capsys, *words, "--bandwidth", "1Mbit"))
    assert slow["epoch_seconds"] == pytest.approx(one["sent_per_epoch"] * 8 / 1e6 + products)
    assert "epoch" in plan(capsys, *SIZES, "--kernel-rate", "2").splitlines()[0]
    for rate in ("0", "fast", "nan"):
        assert "give a number above 0" in plan(capsys, *SIZES, "--kernel-rate", rate, code=2)


def test_rates_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    (one,) = json.loads(plan(capsys, *SIZES, "--bandwidth", "10Gbit", "--json-output"))
    assert 0 < one["epoch_seconds"] < 3600


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *[("10Gbit", 1.25e9), ("10Gbit/s", 1.25e9), ("8 Mbps", 1e6)],
        *[("1GBps", 1e9), ("1GB", 1e9), ("2MiB/s", 2 << 20), ("100", 100.0)],
    ],
)
def test_rates_as_people_write_them(text: str, expected: float) -> None:
    assert rate_of(text) == expected


@pytest.mark.parametrize("text", ["fast", "-1GB", "0Gbit", "10 parsecs", ""])
def test_rates_that_are_none(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected a rate above 0, such as 10Gbit or 1GB, found"):
        rate_of(text)


def test_what_to_change(capsys: pytest.CaptureFixture[str]) -> None:
    assert "That fits into 64.0 GiB." in plan(capsys, *SIZES, "--parts", "2", "--memory", "64GiB")
    text = plan(capsys, *SIZES, "--parts", "2", "--memory", "600MiB")
    assert "does not fit into 600.0 MiB" in text
    fits = [line for line in text.splitlines() if "  fits  " in line]
    (parts,) = [int(line.split()[-1]) for line in fits if "--parts" in line]
    for count, good in ((parts, True), (parts - 1, False)):
        again = plan(capsys, *SIZES, "--parts", str(count), "--memory", "600MiB")
        assert ("That fits" in again) == good
    assert "None of them is enough" in plan(capsys, *SIZES, "--memory", "20MiB")


def test_attention_by_columns_is_advised(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "--nodes", "1000000", "--edges", "20000000", "--features", "128", "--memory", "1GiB"]
    text = plan(capsys, *words, "--layers", "gat:4x128,elu,gat:4x47,mean:4")
    (line,) = [line for line in text.splitlines() if "memory_efficient=True" in line]
    (one,) = estimate_memory(
        None, ["gat-flatten:4x128", "gat-mean:4x47"], in_features=128, num_nodes=10**6, num_edges=2 * 10**7
    )
    assert f"{one.peak / (1 << 30):.1f} GiB" in line
    assert "memory_efficient" not in plan(capsys, *SIZES, "--memory", "600MiB")


def test_another_number_of_parts_than_a_partition_has(tmp_path: Path) -> None:
    """About what a partition into that number would take."""
    data = ROOT / "examples" / "data" / "cora.npz"
    found = {}
    for count in (2, 4):
        folder = tmp_path / str(count)
        words = ["--parts", str(count), "--method", "random", "--out", str(folder)]
        assert sar.cli.main(["partition", str(data), *words]) == 0
        path = str(folder / "cora.json")
        found[count] = estimate_memory(path, ["gcn:16"])
        assert estimate_memory(path, ["gcn:16"], parts=count) == found[count]
    guessed = estimate_memory(str(tmp_path / "2" / "cora.json"), ["gcn:16"], parts=4)
    assert len(guessed) == 4
    real = sum(e.sent_per_epoch for e in found[4]) / 4
    assert guessed[0].sent_per_epoch == pytest.approx(real, rel=0.2)
    assert guessed[0].activations == pytest.approx(found[4][0].activations, rel=0.05)


@pytest.mark.parametrize(
    ("layers", "options", "message"),
    [
        (["sage"], {}, "sage:N"),
        (["gat:8"], {}, "gat:HxD"),
        ([], {}, "no layers"),
        (["bn"], {"in_features": None}, "in_features"),
        (["bn"], {"num_nodes": 0}, "num_nodes=0"),
        (["bn"], {"optimizer": "lion"}, "adam"),
    ],
)
def test_bad_input(layers: list[str], options: dict[str, object], message: str) -> None:
    given = {"in_features": 4, "num_nodes": 10, "num_edges": 20, **options}
    with pytest.raises(ValueError, match=message):
        estimate_memory(None, layers, **given)  # type: ignore[arg-type]
