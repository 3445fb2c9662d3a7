"""Layers of PyG on SAR's edge index, against PyG alone and against the same sums by DGL's functions on SAR.

The bench graph; the models of pyg_model.py. PyG alone has 2 threads, nodes in METIS order, and edges as it is fastest
with them: a torch CSR matrix, an ``EdgeIndex`` sorted by destination, or int64 numbers. Each is tried in a process of
its own first. Then all take turns, a few epochs each, under the same allocator policy. Time is the median; ratios are
medians over turns. Growth is the peak of resident memory while training minus the size before the first epoch; engine
is what SAR's own account grew by, which has no tensors of torch.

With ``--workers 8`` there is no peer: it compares both ways of SAR, of the worker that grows most.

    python bench/pyg.py [--models gat,sage,...] [--rounds 3] [--epochs 2] [--edges csr,sorted,coo] [--workers 1]
                        [--without-peer] [--dropout P] [--name pyg]
"""

from __future__ import annotations

import argparse
import statistics

import common
from pyg_model import BY_DGL, MODELS
from sar.cli.output import stage, table

THREADS = 2
EDGES = "csr,sorted,coo"


def alone(model: str, edges: str, a: argparse.Namespace) -> common.Group:
    words = ["pyg", common.reordered_graph(), "pool", model]
    return common.Group("worker.py", words, 1, THREADS, {"BENCH_EDGES": edges, "BENCH_DROPOUT": str(a.dropout)})


def split(model: str, way: str, a: argparse.Namespace) -> common.Group:
    words = ["sar", common.parts(a.workers, "metis"), "pool", model]
    extra = {"BENCH_WAY": way, "BENCH_DROPOUT": str(a.dropout)}
    if a.workers > 1:
        extra["SAR_TRANSPORT"] = "shm"
    return common.Group("worker.py", words, a.workers, max(1, THREADS // a.workers), extra)


def fastest(model: str, a: argparse.Namespace) -> tuple[str, dict[str, float]]:
    """How PyG alone gets its edges, and the seconds of an epoch with each kind that the model's layers take."""
    seconds: dict[str, float] = {}
    kinds = a.edges.split(",")
    for kind in kinds if len(kinds) > 1 else []:
        with stage(f"{model}: PyG alone, {kind}") as step, alone(model, kind, a) as group:
            try:
                group.answers()
                seconds[kind] = min(group.ask("epochs 2")[0]["seconds"])
                step.note = f"{seconds[kind]:.3f} s an epoch"
            except RuntimeError:
                step.note = "refused"
    return (min(seconds, key=seconds.__getitem__) if seconds else kinds[0]), seconds


class Peer:
    """One side: its processes, and what they took."""

    def __init__(self, name: str, group: common.Group) -> None:
        self.name, self.group = name, group
        self.seconds: list[list[float]] = []
        self.processor: list[float] = []
        self.loss = 0.0
        group.answers()

    def turn(self, epochs: int, warm: bool) -> None:
        answers = self.group.ask(f"epochs {epochs}")
        if warm:
            self.loss = sum(a["losses"][0] for a in answers)
            return
        self.seconds.append([max(times) for times in zip(*(a["seconds"] for a in answers))])
        self.processor.append(sum(a["processor"] for a in answers))

    def result(self) -> dict:
        memory = max(self.group.ask("memory"), key=lambda m: m["growth"])
        self.group.__exit__()
        return {
            "name": self.name,
            "seconds": statistics.median(s for turn in self.seconds for s in turn),
            "turns": self.seconds,
            "processor": statistics.median(self.processor),
            "first_loss": self.loss,
            "growth": memory["growth"],
            "engine_growth": memory.get("engine_growth"),
        }


def measure(model: str, a: argparse.Namespace) -> dict:
    """All sides of one model, in turns. The first is what the others are compared with."""
    sides, tried = [], {}
    if not a.without_peer:
        kind, tried = fastest(model, a)
        sides.append((f"PyG alone, {kind}", lambda: alone(model, kind, a)))
    if model in BY_DGL:
        sides.append(("SAR, DGL's functions", lambda: split(model, "as_pyg", a)))
    sides.append(("SAR, PyG's layers", lambda: split(model, "pyg", a)))
    with stage(f"{model}, {a.workers} worker(s)") as step:
        peers = [Peer(name, start()) for name, start in sides]
        for turn in range(a.rounds):
            for peer in peers:
                peer.turn(a.epochs, warm=turn == 0)
        rows = [peer.result() for peer in peers]
        step.note = f"{rows[-1]['seconds']:.3f} s an epoch"
    return {"model": model, "tried": tried, "rows": rows}


def ratio(own: dict, other: dict) -> float:
    return statistics.median(
        statistics.median(mine) / statistics.median(theirs) for mine, theirs in zip(own["turns"], other["turns"])
    )


def render(measured: list[dict]) -> str:
    header = ["", "", "epoch s", "to first", "cpu s", "growth MiB", "to first", "engine MiB", "first loss"]
    lines = []
    for entry in measured:
        first = entry["rows"][0]
        for row in entry["rows"]:
            engine = "-" if row["engine_growth"] is None else f"{row['engine_growth'] / common.MIB:.0f}"
            lines.append(
                [entry["model"] if row is first else "", row["name"], f"{row['seconds']:.3f}"]
                + [f"{ratio(row, first):.2f}", f"{row['processor']:.2f}", f"{row['growth'] / common.MIB:.0f}"]
                + [f"{row['growth'] / first['growth']:.2f}", engine, f"{row['first_loss']:.5f}"]
            )
    return table(header, lines)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", default=",".join(MODELS), help=f"(default: {','.join(MODELS)})")
    p.add_argument("--rounds", type=int, default=3, help="turns, of which the first is warm-up (default: 3)")
    p.add_argument("--epochs", type=int, default=2, help="epochs a turn (default: 2)")
    p.add_argument("--edges", default=EDGES, help=f"how PyG alone may get its edges (default: {EDGES})")
    p.add_argument("--workers", type=int, default=1, help="of SAR (default: 1)")
    p.add_argument("--without-peer", action="store_true", help="SAR's two ways alone")
    p.add_argument("--dropout", type=float, default=0, metavar="P", help="after every layer but the last (default: 0)")
    p.add_argument("--name", default="pyg", help="of the JSON file in bench/out (default: pyg)")
    a = p.parse_args()
    if a.rounds < 2:
        p.error("--rounds must be 2 or more: the first is a warm-up")
    if a.without_peer and not set(a.models.split(",")) <= set(BY_DGL):
        p.error(f"--without-peer takes {', '.join(BY_DGL)}: the others have no second way")
    a.without_peer = a.without_peer or a.workers > 1
    machine = common.machine()
    print(common.machine_line(machine), flush=True)
    measured = [measure(model, a) for model in a.models.split(",")]
    print(f"\n{render(measured)}\n", flush=True)
    common.save(a.name, {"machine": machine, "workers": a.workers, "dropout": a.dropout, "models": measured})


if __name__ == "__main__":
    main()
