"""Batches of sampled blocks with features per second: two workers of SAR against DGL's own sampler and loader, which
have the whole graph and as many threads.

Everybody draws neighbours of the same fan-outs for training nodes of the bench graph, in random order, and fetches the
features of the nodes that the first block reads and the labels of the seeds. Two ways of counting:

    steps    the workers together take as many seeds a step as DGL takes a batch (--batch-size)
    batches  each worker's batches are as large as DGL's; a step of P workers is P batches

each without and with memory for other workers' features (--cache bytes a worker; DGL has all features).

Turns alternate, so that a busy machine slows all alike; a ratio is the median over turns of rates next to each other.

    python bench/sampling.py [--batch-size 1024] [--fanouts 15,10,5] [--turns 5] [--count 20]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time

import numpy as np
import torch

import common
from sar.cli.output import table

DGL_WAYS = {
    "DGL": {"num_workers": 0},
    "DGL, 1 loader process": {"num_workers": 1, "persistent_workers": True},
    "DGL, 2 loader processes": {"num_workers": 2, "persistent_workers": True},
}


DRAIN = 6
"""No loader keeps more batches ready: DGL's two processes have 2 each."""


def endless(loader):
    while True:
        yield from loader


def dgl_batches(args: argparse.Namespace, options: dict):
    """DGL's loader on the whole graph. int32 ids, which it is fastest with; features in the blocks."""
    import dgl

    with np.load(common.bench_graph()) as arrays:
        ends = torch.from_numpy(arrays["edge_index"])
        graph = dgl.graph((ends[0], ends[1]), num_nodes=len(arrays["y"]))
        graph.ndata["features"], graph.ndata["labels"] = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])
        seeds = torch.from_numpy(arrays["train_mask"]).nonzero().view(-1).int()
    graph.create_formats_()
    sampler = dgl.dataloading.NeighborSampler(
        args.fanouts, prefetch_node_feats=["features"], prefetch_labels=["labels"]
    )
    loader = dgl.dataloading.DataLoader(
        graph, seeds, sampler, batch_size=args.batch_size, shuffle=True, drop_last=True, **options
    )
    for _, _, blocks in endless(loader):
        yield blocks


def sar_batches(args: argparse.Namespace):
    import sar

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    sar.initialize_comms(
        rank, world, os.environ["MASTER_ADDR"], "sar", master_port_number=int(os.environ["MASTER_PORT"])
    )
    data = sar.load_dgl_partition_data(common.parts(world, "metis"), rank, torch.device("cpu"))
    features = sar.suffix_key_lookup(data.node_features, "features")
    labels = sar.suffix_key_lookup(data.node_features, "labels")
    seeds = sar.suffix_key_lookup(data.node_features, "train_mask").bool().nonzero().view(-1)
    seeds += data.node_ranges[rank][0]
    graph = sar.construct_full_graph(data)
    sampler = sar.DistNeighborSampler(
        args.fanouts,
        input_node_features={"features": features},
        output_node_features={"labels": labels},
        feature_cache_bytes=args.cache,
    )
    loader = sar.DataLoader(
        graph, seeds, sampler, args.batch_size, shuffle=True, drop_last=True, precompute_optimized_batches=False
    )
    yield from endless(loader)


def worker(args: argparse.Namespace) -> None:
    """Reads counts from stdin, takes so many batches, and answers with what they took and held."""
    threads = int(os.environ["OMP_NUM_THREADS"])
    torch.set_num_threads(threads)
    batches = sar_batches(args) if args.role == "sar" else dgl_batches(args, DGL_WAYS[args.role])
    if args.role == "sar":
        import sar

        sar.set_num_threads(threads)
    for _ in range(3):
        next(batches)
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        if line.strip() == "end":
            break
        for _ in range(DRAIN):  # what was prepared while others had their turn
            next(batches)
        begin, cpu, nodes, edges = time.perf_counter(), time.process_time(), 0, 0
        for _ in range(int(line)):
            blocks = next(batches)
            features = blocks[0].srcdata["features"]
            if features.shape != (blocks[0].num_src_nodes(), 100) or len(blocks[-1].dstdata["labels"]) == 0:
                raise RuntimeError(f"the features of {blocks[0]} have shape {features.shape}")
            nodes += len(features)
            edges += sum(block.num_edges() for block in blocks)
        answer = {
            "seconds": time.perf_counter() - begin,
            "cpu": time.process_time() - cpu,
            "nodes": nodes,
            "edges": edges,
        }
        print(json.dumps(answer), flush=True)
    os._exit(0)  # loader processes of DGL would be waited for


def measure(args: argparse.Namespace) -> list[dict]:
    def group(role: str, batch_size: int, workers: int, cache: int = 0) -> common.Group:
        words = ["--role", role, "--batch-size", str(batch_size), "--fanouts", ",".join(map(str, args.fanouts))]
        words += ["--cache", str(cache)]
        return common.Group("sampling.py", words, workers, args.threads // workers, {})

    rows = [{"name": name, "group": group(name, args.batch_size, 1), "batches": 1} for name in DGL_WAYS]
    ways = (("steps", args.batch_size // args.workers, 1), ("batches", args.batch_size, args.workers))
    for cache in sorted({0, args.cache}):
        for name, batch_size, count in ways:
            name = f"SAR, {name}" + (f", cache of {cache >> 20} MiB" if cache else "")
            made = group("sar", batch_size, args.workers, cache)
            rows.append({"name": name, "group": made, "batches": count})
    for row in rows:
        row["group"].answers()
        row["rates"], row["cpu"] = [], []
    try:
        for _ in range(args.turns):
            for row in rows:
                answers = row["group"].ask(str(args.count))
                row["rates"].append(row["batches"] * args.count / max(a["seconds"] for a in answers))
                row["cpu"].append(sum(a["cpu"] for a in answers) / args.count / row["batches"])
                row["nodes"] = sum(a["nodes"] for a in answers) / args.count / row["batches"]
                row["edges"] = sum(a["edges"] for a in answers) / args.count / row["batches"]
    finally:
        for row in rows:
            row.pop("group").__exit__()
    return rows


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--batch-size", type=int, default=1024, help="seeds in a batch of DGL (default: 1024)")
    p.add_argument("--fanouts", type=lambda s: [int(n) for n in s.split(",")], default=[15, 10, 5])
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--threads", type=int, default=2, help="of DGL, and of all workers together (default: 2)")
    p.add_argument("--turns", type=int, default=5)
    p.add_argument("--count", type=int, default=20, help="batches a turn")
    p.add_argument("--cache", type=int, default=16 << 20, help="bytes of features that a worker may keep (16 MiB)")
    p.add_argument("--role", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.role:
        worker(args)
    else:
        compare(args)


def compare(args: argparse.Namespace) -> None:
    machine = common.machine()
    print(common.machine_line(machine), flush=True)
    common.parts(args.workers, "metis")
    rows = measure(args)
    best = max(rows[: len(DGL_WAYS)], key=lambda r: statistics.median(r["rates"]))
    for row in rows:
        row["ratio"] = statistics.median(a / b for a, b in zip(row["rates"], best["rates"]))
    header = ["", "batches/s", f"x {best['name']}", "CPU ms a batch", "nodes", "edges"]
    print(
        table(
            header,
            [
                [
                    row["name"],
                    f"{statistics.median(row['rates']):.1f}",
                    f"{row['ratio']:.2f}",
                    f"{1000 * statistics.median(row['cpu']):.1f}",
                    f"{row['nodes']:.0f}",
                    f"{row['edges']:.0f}",
                ]
                for row in rows
            ],
        )
    )
    print(
        f"batches of {args.batch_size} seeds (steps: {args.batch_size // args.workers} on each of {args.workers} "
        f"workers), fan-outs {args.fanouts}; CPU time without loader processes."
    )
    common.save("sampling", {"machine": machine, "rows": rows, "batch_size": args.batch_size, "fanouts": args.fanouts})


if __name__ == "__main__":
    main()
