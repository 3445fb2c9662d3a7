"""Time and memory of an epoch against DGL alone, in one run and one table.

Bench graph; the models of model.py. The peer is DGL on the whole graph at its best: 2 threads, int32, nodes in METIS
order, sparse formats built before the clock starts. Every row takes turns with it, a few epochs each, both sides under
the same allocator policy; a row's time is the median, its ratio the median over turns. Memory is resident memory,
shared memory included: growth is the peak while training minus the size before the first epoch, total is the peak
minus the size after imports; a warm-up before both has loaded what torch loads late. Planned is what
sar.estimate_memory says of the total beforehand.

    python bench/run.py [--model sage|gat|gat128] [--rounds 4] [--epochs 3] [--policies pool,compact]
                        [--rows 2:shm:metis,...,pyg | --modes | --less] [--dropout P] [--window MIB] [--name epoch]

The way of a row (fourth word): plain, the default; prepared: after sar.prepare, which keeps the mean of the features;
act: sar.nn.BatchNormAct in place of batch norm, ReLU and dropout;
remat and nn: sar.remat on dgl.nn and on sar.nn; efficient: sar.nn.GATConv with memory_efficient=True; sa and one_shot:
modes that keep what forward fetched, and that hold all boundary rows at once. With --dropout, all sides drop that share
of elements after every layer but the last.
"""

from __future__ import annotations

import argparse
import statistics

import common
import sar
from model import MODELS
from net import HEADS, HIDDEN, WIDTHS
from sar.cli.output import stage, table

ROWS = "1:-:metis,1:-:metis:prepared,2:shm:metis,2:tcp:metis,8:shm:metis,8:tcp:metis,8:shm:random,8:tcp:random,pyg"
MODES = "8:shm:random,8:shm:random:sa,8:shm:random:one_shot"
LESS = "1:-:metis,1:-:metis:act,1:-:metis:remat,1:-:metis:nn"
PEER_THREADS = 2


def planned(description: str, a: argparse.Namespace) -> dict:
    """What the heaviest worker should take, and what the workers should send in an epoch, in bytes."""
    dropout = ["dropout"] if a.dropout else []
    if a.model == "sage":
        layers = [f"sage:{HIDDEN}", "bn", "relu", *dropout] * 2 + ["sage:47"]
    else:
        layers = [f"gat:{HEADS}x{WIDTHS[a.model]}", "elu", *dropout] * 2 + [f"gat:{HEADS}x47", f"mean:{HEADS}"]
    found = sar.estimate_memory(description, layers, in_features=100, window_bytes=window_bytes(a))
    return {"planned": max(e.peak for e in found), "planned_sent": sum(e.sent_per_epoch for e in found)}


def window_bytes(a: argparse.Namespace) -> int:
    return int(a.window * common.MIB)


def measure(peer: common.Group, row: str, policy: str, a: argparse.Namespace) -> dict:
    """One row, ``workers:transport:method[:way]`` or ``pyg``, in turns with the peer."""
    alone = row == "pyg"
    count, transport, method, *ways = ("1", "-", "-") if alone else row.split(":")
    way = ways[0] if ways else "plain"
    workers = int(count)
    threads = max(1, PEER_THREADS // workers)
    extra = {"BENCH_WAY": way, "BENCH_DROPOUT": str(a.dropout)}
    if transport != "-":
        extra["SAR_TRANSPORT"] = transport
    if a.window:
        extra["BENCH_WINDOW"] = str(window_bytes(a))
    description = common.reordered_graph() if alone else common.parts(workers, method)
    ours, theirs, ratios, processor, first = [], [], [], [], 0.0
    words = ["pyg" if alone else "sar", description, policy, a.model]
    with common.Group("worker.py", words, workers, threads, extra) as group:
        ready = group.answers()
        for turn in range(a.rounds):
            alone_costs = peer.ask(f"epochs {a.epochs}")[0]
            peer_seconds = alone_costs["seconds"]
            answers = group.ask(f"epochs {a.epochs}")
            own_seconds = [max(times) for times in zip(*(a["seconds"] for a in answers))]
            if turn == 0:  # warm-up of both
                first = sum(a["losses"][0] for a in answers)
                continue
            theirs += peer_seconds
            ours += own_seconds
            ratios.append(statistics.median(own_seconds) / statistics.median(peer_seconds))
            costs = {key: max(a[key] for a in answers) for key in ("faults", "system")}
            costs.update({key: sum(a[key] for a in answers) for key in ("sent", "processor")})
            processor.append(costs["processor"] / alone_costs["processor"])
        memory = group.ask("memory")
    largest = max(memory, key=lambda m: m["growth"])
    result = {
        "workers": workers,
        "threads": threads,
        "transport": transport,
        "parts": method,
        "way": way,
        **costs,
        "processor_ratio": statistics.median(processor),
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
            window_limit=largest["window_limit"],
            **(planned(description, a) if way == "plain" else {}),
        )
    return result


def run_policy(policy: str, a: argparse.Namespace) -> tuple[dict, list[dict]]:
    """The peer and all rows under one allocator policy."""
    measured = []
    words, extra = ["dgl", common.reordered_graph(), policy, a.model], {"BENCH_DROPOUT": str(a.dropout)}
    with common.Group("worker.py", words, 1, PEER_THREADS, extra) as peer:
        peer.answers()
        warm = peer.ask(f"epochs {a.epochs}")[0]
        for row in a.rows.split(","):
            with stage(f"{policy}: {row}") as step:
                measured.append(measure(peer, row, policy, a))
                step.note = f"{measured[-1]['seconds']:.3f} s an epoch, {measured[-1]['ratio']:.2f}x DGL"
        memory = peer.ask("memory")[0]
    return {"policy": policy, "first_loss": warm["losses"][0], "faults": warm["faults"], **memory}, measured


def mib(count: float) -> str:
    return f"{count / common.MIB:.0f}"


def render(peer: dict, rows: list[dict]) -> str:
    """The table of one policy. Memory in MiB, of the worker that grows most."""
    header = [
        "",
        "epoch s",
        "to DGL",
        "cpu to DGL",
        "growth",
        "to DGL",
        "total",
        "planned",
        "engine",
        "structure",
        "window",
    ]
    header += ["faults", "sent", "planned", "first loss"]
    seconds = statistics.median(r["peer_seconds"] for r in rows)
    lines = [
        [
            "DGL alone, 2 threads",
            f"{seconds:.3f}",
            "1.00",
            "1.00",
            mib(peer["growth"]),
            "1.00",
            mib(peer["total"]),
            *"----",
        ]
        + [f"{peer['faults']:.0f}", *"--", f"{peer['first_loss']:.5f}"]
    ]
    for r in rows:
        via = "" if r["transport"] == "-" else f", {r['transport']}"
        name = f"{r['workers']} x {r['threads']} thread{'s' if r['threads'] > 1 else ''}{via}, {r['parts']} parts"
        name += "" if r["way"] == "plain" else f", {r['way']}"
        ours, wire = ["-"] * 4, ["-"] * 2
        if r["library"] == "sar":
            engine, limit = r["engine"], r["window_limit"]
            ours = [mib(r["planned"]) if "planned" in r else "-", mib(engine["total"]), mib(engine["structure"])]
            ours.append(f"{mib(engine['window'])} of {mib(limit)}")
            wire = [mib(r["sent"]), mib(r["planned_sent"]) if "planned" in r else "-"]
        else:
            name = "PyG alone, 2 threads"
        growth = f"{r['growth'] / peer['growth']:.2f}"
        lines.append(
            [name, f"{r['seconds']:.3f}", f"{r['ratio']:.2f}", f"{r['processor_ratio']:.2f}", mib(r["growth"]), growth]
            + [mib(r["total"]), *ours, f"{r['faults']:.0f}", *wire, f"{r['first_loss']:.5f}"]
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
    p.add_argument("--policies", default="pool,compact", help="allocator policies (default: pool,compact)")
    p.add_argument("--rows", default=ROWS, help=f"workers:transport:parts[:way], or pyg (default: {ROWS})")
    p.add_argument("--modes", action="store_const", dest="rows", const=MODES, help=f"modes of SAR: --rows {MODES}")
    p.add_argument("--less", action="store_const", dest="rows", const=LESS, help=f"less kept: --rows {LESS}")
    p.add_argument("--dropout", type=float, default=0, metavar="P", help="after every layer but the last (default: 0)")
    p.add_argument("--window", type=float, default=0, metavar="MIB", help="Config.window_bytes (default: SAR's)")
    p.add_argument("--name", default="epoch", help="of the JSON file in bench/out (default: epoch)")
    args = p.parse_args()
    if args.rounds < 2:
        p.error("--rounds must be 2 or more: the first is a warm-up")
    machine = common.machine()
    print(common.machine_line(machine), flush=True)
    policies = []
    for policy in args.policies.split(","):
        peer, rows = run_policy(policy, args)
        print(f"\n{render(peer, rows)}", flush=True)
        policies.append({"peer": peer, "rows": rows})
    print(
        "\nepoch: median seconds; ratio: median over turns; memory in MiB, of the worker that grows most; window: "
        "most held of what is allowed; cpu: processor time of all workers; faults (of pages) and sent (MiB of all "
        "workers): in an epoch."
    )
    common.save(args.name, {"machine": machine, "model": args.model, "dropout": args.dropout, "policies": policies})


if __name__ == "__main__":
    main()
