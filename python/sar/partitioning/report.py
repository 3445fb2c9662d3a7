"""What a partition costs: cut, balance, boundary rows, predicted memory and traffic; as JSON and as a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sar._engine import abi
from sar.data.directory import write_text
from sar.extras import need
from sar.profiling.plan import Estimate, estimate_memory

from .dataset import Dataset


class Report(NamedTuple):
    method: str
    quality: dict[str, Any]
    """Of :meth:`Dataset.quality`."""
    hosts: int
    layers: Sequence[str]
    workers: Sequence[Estimate]
    """Empty where the graph has no features whose width is known."""
    received: Sequence[int] = ()
    """Rows, and partial sums in place of some, that each part receives for a sum over edges; empty where the format of
    the parts does not tell."""

    @property
    def rows(self) -> int:
        """All rows that travel when each worker aggregates once."""
        return int(np.sum(self.quality["boundary"]))

    @property
    def slowest(self) -> tuple[int, int, str]:
        """The worker that sends or receives most of them, how many, and which of both."""
        boundary = np.array(self.quality["boundary"], np.int64)
        counts = np.stack([boundary.sum(0), boundary.sum(1)])
        way, worker = np.unravel_index(counts.argmax(), counts.shape)
        return int(worker), int(counts.max()), ("sends", "receives")[way]

    @property
    def between_hosts(self) -> float:
        """The share of all edges that have their ends on different hosts."""
        edges = np.array(self.quality["between"], np.int64)
        host = np.arange(len(edges)) * self.hosts // max(1, len(edges))
        return float(edges[host[:, None] != host].sum()) / max(1, int(edges.sum()))

    def as_json(self) -> dict[str, Any]:
        """What :meth:`write_json` writes."""
        plan = {"layers": list(self.layers), "workers": [e._asdict() for e in self.workers]}
        return {
            "method": self.method,
            "hosts": self.hosts,
            "rows": self.rows,
            "received": list(self.received) or None,
            "rows_of_slowest": self.slowest[1],
            "cut_between_hosts": self.between_hosts,
            **self.quality,
            "plan": plan if self.workers else None,
        }

    def write_json(self, path: str) -> None:
        """Writes the report, or nothing."""
        write_text(path, json.dumps(self.as_json(), indent=1) + "\n")


def plan(description: str, layers: Sequence[str]) -> Sequence[Estimate]:
    """Memory and traffic of each worker of a written partition. Empty where it has no features of a known width."""
    try:
        return estimate_memory(description, layers)
    except ValueError as error:
        if "width of the input is unknown" in str(error):
            return []
        raise


def received(description: str, parts: int) -> Sequence[int]:
    """What :attr:`Report.received` is, of a written partition."""
    covers = [abi.part_info(description, part)["cover"] for part in range(parts)]
    return [of["rows"][1] + of["sums"][1] for of in covers] if all(covers) else []


def require_matplotlib() -> Any:
    """:raises ImportError: matplotlib is not installed"""
    need("matplotlib", "partition", "--picture").use("Agg")
    return need("matplotlib.pyplot", "partition", "--picture")


def draw(report: Report, path: str) -> None:
    """Draws the boundary rows of each pair of parts, and the limits of hosts, as a PNG."""
    pyplot = require_matplotlib()
    rows = np.array(report.quality["boundary"], float)
    parts = len(rows)
    shown = np.ma.masked_equal(rows, 0)
    side = min(12.0, 4.5 + 0.12 * parts)
    figure, axes = pyplot.subplots(figsize=(side + 1.2, side), layout="constrained")
    image = axes.imshow(shown, cmap="viridis", norm="log" if shown.count() else None, interpolation="nearest")
    if shown.count():
        figure.colorbar(image, ax=axes, label="boundary rows", shrink=0.8)
    for host in range(1, report.hosts):
        edge = host * parts / report.hosts - 0.5
        axes.axhline(edge, color="tab:red", linewidth=1)
        axes.axvline(edge, color="tab:red", linewidth=1)
    cut = 100 * report.quality["edge_cut_fraction"]
    axes.set(title=f"{report.method}: {cut:.1f} % of edges cut", xlabel="rows of part", ylabel="read by part")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.yaxis.get_major_locator().set_params(integer=True)
    figure.savefig(path, dpi=100, format="png")
    pyplot.close(figure)


def training_nodes(dataset: Dataset, assignment: np.ndarray, parts: int) -> dict[str, Any]:
    """How many nodes each part has to train on, and the largest number over the mean."""
    weight = np.empty(len(assignment), np.int32)
    dataset.weights("train", weight)
    counts = np.bincount(assignment[weight > 0], minlength=parts)
    return {"nodes": counts.tolist(), "balance": float(counts.max() / counts.mean()) if counts.any() else 1.0}
