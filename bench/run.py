"""Time and memory of an epoch against DGL alone, in one run and one table.

Bench graph; the models of model.py. The peer is DGL on the whole graph at its best: 2 threads, int32, nodes in METIS
order, sparse formats built before the clock starts. Every row takes turns with it, a few epochs each, both sides under
the same allocator policy; a row's time is the median, its ratio the median over turns. Memory is resident memory,
shared memory included: growth is the peak while training minus the size before the first epoch, total is the peak
minus the size after imports; a warm-up before both has loaded what torch loads late. Planned is what
sar.estimate_memory says of the total beforehand.

    python bench/run.py [--model sage|gat|gat128] [--rounds 4] [--epochs 3] [--policies compact,default]
                        [--rows 2:shm:metis,...,pyg] [--name epoch]
"""

from __future__ import annotations

import argparse
import statistics

import common
import sar
from model import HEADS, HIDDEN, MODELS, WIDTHS
from sar.cli.output import stage, table

ROWS = "1:-:metis,2:shm:metis,2:tcp:metis,8:shm:metis,8:tcp:metis,8:shm:random,8:tcp:random,pyg"
PEER_THREADS = 2


def planned(description: str, model: str) -> int:
    """Bytes that the heaviest worker should take."""
    if model == "sage":
        layers = [f"sage:{HIDDEN}", "bn", "relu"] * 2 + ["sage:47"]
    else:
        layers = [f"gat:{HEADS}x{WIDTHS[model]}", "elu"] * 2 + [f"gat:{HEADS}x47"]
    return max(e.peak for e in sar.estimate_memory(description, layers, in_features=100))


def measure(peer: common.Group, row: str, policy: str, rounds: int, epochs: int, model: str) -> dict:
    """One row, ``workers:transport:method`` or ``pyg``, in turns with the peer."""
    alone = row == "pyg"
    count, transport, method = ("1", "-", "-") if alone else row.split(":")
    workers = int(count)
    threads = max(1, PEER_THREADS // workers)
    extra = {"SAR_TRANSPORT": transport} if transport != "-" else {}
    description = common.reordered_graph() if alone else common.parts(workers, method)
    ours, theirs, ratios, first = [], [], [], 0.0
    words = ["pyg" if alone else "sar", description, policy, model]
    with common.Group("worker.py", words, workers, threads, extra) as group:
        ready = group.answers()
        for turn in range(rounds):
            peer_seconds = peer.ask(f"epochs {epochs}")[0]["seconds"]
            answers = group.ask(f"epochs {epochs}")
            own_seconds = [max(times) for times in zip(*(a["seconds"] for a in answers))]
            if turn == 0:  # warm-up of both
                first = sum(a["losses"][0] for a in answers)
                continue
            theirs += peer_seconds
            ours += own_seconds
            ratios.append(statistics.median(own_seconds) / statistics.median(peer_seconds))
        memory = group.ask("memory")
    largest = max(memory, key=lambda m: m["growth"])
    result = {
        "workers": workers,
        "threads": threads,
        "transport": transport,
        "parts": method,
        "policy": policy,
        "library": "pyg" if alone else "sar",
        "seconds": statistics.median(ours),
        "all_seconds": ours,
        "peer_seconds": statistics.median(theirs),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "first_loss": first,
        "growth": largest["growth"],
        "total": max(m["total"] for m in memory),
    }
    if not alone:
        result.update(
            engine=largest["engine"],
            engine_growth=largest["engine_growth"],
            structure_resident=max(r["structure_resident"] for r in ready),
            structure_accounted=max(r["structure_accounted"] for r in ready),
            planned=planned(description, model),
        )
    return result


def run_policy(policy: str, rows: list[str], rounds: int, epochs: int, model: str) -> tuple[dict, list[dict]]:
    """The peer and all rows under one allocator policy."""
    measured = []
    with common.Group("worker.py", ["dgl", common.reordered_graph(), policy, model], 1, PEER_THREADS, {}) as peer:
        peer.answers()
        warm = peer.ask(f"epochs {epochs}")[0]
        for row in rows:
            with stage(f"{policy}: {row}") as step:
                measured.append(measure(peer, row, policy, rounds, epochs, model))
                step.note = f"{measured[-1]['seconds']:.3f} s an epoch, {measured[-1]['ratio']:.2f}x DGL"
        memory = peer.ask("memory")[0]
    return {"policy": policy, "first_loss": warm["losses"][0], **memory}, measured


def mib(count: float) -> str:
    return f"{count / common.MIB:.0f}"


def render(peer: dict, rows: list[dict]) -> str:
    """The table of one policy. Memory in MiB, of the worker that grows most."""
    header = ["", "epoch s", "ratio to DGL", "growth", "total", "planned", "of it engine", "structure", "window"]
    header.append("first loss")
    seconds = statistics.median(r["peer_seconds"] for r in rows)
    lines = [
        ["DGL alone, 2 threads", f"{seconds:.3f}", "1.00", mib(peer["growth"]), mib(peer["total"]), *"----"]
        + [f"{peer['first_loss']:.5f}"]
    ]
    for r in rows:
        way = "" if r["transport"] == "-" else f", {r['transport']}"
        name = f"{r['workers']} x {r['threads']} thread{'s' if r['threads'] > 1 else ''}{way}, {r['parts']} parts"
        ours = ["-"] * 4
        if r["library"] == "sar":
            ours = [mib(r["planned"]), *(mib(r["engine"][purpose]) for purpose in ("total", "structure", "window"))]
        else:
            name = "PyG alone, 2 threads"
        lines.append(
            [name, f"{r['seconds']:.3f}", f"{r['ratio']:.2f}", mib(r["growth"]), mib(r["total"]), *ours]
            + [f"{r['first_loss']:.5f}"]
        )
    text = f"allocator: {peer['policy']}\n{table(header, lines)}"
    accounted = [r for r in rows if r["library"] == "sar"]
    if accounted:
        account = max(accounted, key=lambda r: r["structure_accounted"])
        resident, known = mib(account["structure_resident"]), mib(account["structure_accounted"])
        text += (
            f"\nconstruct_full_graph with {account['workers']} worker(s): {resident} MiB more resident, of which the "
            f"engine accounts for {known}"
        )
    return text


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", choices=MODELS, default="sage")
    p.add_argument("--rounds", type=int, default=4, help="turns, of which the first is warm-up (default: 4)")
    p.add_argument("--epochs", type=int, default=3, help="epochs a turn (default: 3)")
    p.add_argument("--policies", default="compact,default", help="allocator policies (default: compact,default)")
    p.add_argument("--rows", default=ROWS, help=f"workers:transport:parts, or pyg (default: {ROWS})")
    p.add_argument("--name", default="epoch", help="of the JSON file in bench/out (default: epoch)")
    args = p.parse_args()
    machine = common.machine()
    print(common.machine_line(machine), flush=True)
    policies = []
    for policy in args.policies.split(","):
        peer, rows = run_policy(policy, args.rows.split(","), args.rounds, args.epochs, args.model)
        print(f"\n{render(peer, rows)}", flush=True)
        policies.append({"peer": peer, "rows": rows})
    print("\nepoch: median seconds; ratio: median over turns; memory in MiB, of the worker that grows most.")
    common.save(args.name, {"machine": machine, "model": args.model, "policies": policies})


if __name__ == "__main__":
    main()
