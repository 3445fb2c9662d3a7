"""Time of an epoch with memoized aggregates, and with the values of Config.exchange.

Models of model.py on the bench graph, or on one with hubs. The same processes train in turns, a few epochs each. SAGE:
as they are, and with the first layer's aggregate of the constant features kept (sar.memoize; kept is what it holds on
the worker where it is most), or, with --model sums, all rows against the rows and sums of a cover. GAT: the three
values of Config.exchange. Times are medians of the slowest worker's epochs, the ratio the median over turns.

    python bench/epoch_options.py [--model sage] [--graph cornell5] [--ways 2:shm,2:tcp,2:shaped,4:shm]
                                  [--hidden 256,1024] [--rounds 6] [--epochs 2] [--mbit 1000] [--parts metis]

The way "shaped" is tcp between network namespaces whose links carry --mbit a second; it needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import time

import common
from sar.cli.output import stage, table
from shaped_link import MASTER, come_first, link

OPTIONS = {"sage": ("plain", "memoize"), "gat": ("pull", "push", "auto"), "sums": ("pull", "auto")}
WAYS = "2:shm,2:tcp,2:shaped,4:shm,4:tcp,4:shaped"


# ---- the workers ------------------------------------------------------------


class Worker:
    """A model that trains on one part, with one option or another."""

    def __init__(self, path: str, name: str, hidden: int) -> None:
        import torch

        import model
        import sar

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        sar.set_allocator("pool")
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        port = int(os.environ["MASTER_PORT"])
        sar.initialize_comms(rank, world, os.environ["MASTER_ADDR"], "sar", master_port_number=port)
        data = sar.load_dgl_partition_data(path, rank, torch.device("cpu"))
        names = ("features", "labels", "train_mask")
        self.features, labels, mask = (sar.suffix_key_lookup(data.node_features, name) for name in names)
        graph = sar.construct_full_graph(data)
        counts = torch.stack([labels.max() + 1, mask.sum()])
        trained = counts[1:].clone()
        sar.comm.all_reduce(counts, "max")
        sar.comm.all_reduce(trained, "sum")
        model.HIDDEN = hidden

        self.training = model.Training(
            *("sage" if name == "sums" else name, "dgl", model.on_graph(graph), self.features, labels, mask.bool()),
            *(int(counts[0]), float(trained), sar.DistributedBN1D, sar.sync_params, sar.gather_grads),
        )
        self.parameters = sum(p.numel() * p.element_size() for p in self.training.model.parameters())

    def epochs(self, option: str, count: int) -> dict:
        import sar
        from sar.autograd import memo

        training, kept = self.training, 0
        if option in OPTIONS["gat"]:
            sar.Config.exchange = option
        if option == "memoize":
            sar.memoize(self.features)
            training.epoch()
            kept = sum(one.out.nbytes for of in memo._memo.results.values() for one in of.results.values())
        sent, seconds, cpu = self.sent(), [], time.process_time()
        for _ in range(count):
            sar.comm.barrier()
            begin = time.perf_counter()
            training.epoch()
            seconds.append(time.perf_counter() - begin)
        sent, cpu = (self.sent() - sent) / count, (time.process_time() - cpu) / count
        if option == "memoize":
            sar.clear_memoized()
        return {"seconds": seconds, "cpu": cpu, "sent": sent, "kept": kept}

    def sent(self) -> int:
        import sar

        return sum(one["sent_payload"] for one in sar.stats()["links"])

    def serve(self) -> None:
        import sar

        print(json.dumps({"parameters": self.parameters}), flush=True)
        for line in sys.stdin:
            option, *count = line.split()
            if option == "end":
                break
            print(json.dumps(self.epochs(option, int(count[0]))), flush=True)
        sar.comm.barrier()
        sar.comm.shutdown()


# ---- the measurement --------------------------------------------------------


def measure(workers: int, transport: str, hidden: int, args: argparse.Namespace) -> dict:
    """All options over one transport."""
    options = OPTIONS[args.model]
    shaped = transport == "shaped"
    words = ["--worker", common.parts(workers, args.parts, args.graph), "--model", args.model, "--hidden", str(hidden)]
    with contextlib.ExitStack() as stack:
        inside, master = None, "127.0.0.1"
        if shaped:
            net = stack.enter_context(link(workers))
            net.shape(args.mbit * 1e6 / 8)
            inside, master = [net.inside(rank) for rank in range(workers)], MASTER
        extra = {"SAR_TRANSPORT": "tcp" if shaped else transport}
        group = common.Group("epoch_options.py", words, workers, max(1, 2 // workers), extra, master, inside)
        stack.enter_context(group)
        found: dict = {"workers": workers, "transport": transport, "hidden": hidden, **group.answers()[0]}
        seconds: dict[str, list[float]] = {name: [] for name in options}
        cpu: dict[str, list[float]] = {name: [] for name in options}
        for turn in range(args.rounds + 1):  # the first is warm-up
            for name in options:
                answers = group.ask(f"{name} {args.epochs}")
                if turn:
                    each = [max(times) for times in zip(*(a["seconds"] for a in answers))]
                    seconds[name].append(statistics.median(each))
                    found[f"{name}_sent"] = sum(a["sent"] for a in answers)
                    cpu[name].append(sum(a["cpu"] for a in answers))
                else:
                    found[f"{name}_kept"] = max(a["kept"] for a in answers)
    for name in options:
        found[name], found[f"{name}_cpu"] = statistics.median(seconds[name]), statistics.median(cpu[name])
        found[f"{name}_ratio"] = statistics.median(a / b for a, b in zip(seconds[name], seconds[options[0]]))
    return found


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", choices=OPTIONS, default="sage")
    p.add_argument("--graph", choices=("bench", "cornell5", "rmat"), default="bench")
    p.add_argument("--ways", default=WAYS, help=f"workers:transport (default: {WAYS})")
    p.add_argument("--hidden", default="256,1024", help="hidden widths of SAGE (default: 256,1024)")
    p.add_argument("--rounds", type=int, default=6, help="turns after one of warm-up (default: 6)")
    p.add_argument("--epochs", type=int, default=2, help="epochs a turn (default: 2)")
    p.add_argument("--mbit", type=float, default=1000, help="of the shaped links, a second (default: 1000)")
    p.add_argument("--parts", default="metis", help="metis or random (default: metis)")
    p.add_argument("--worker", help=argparse.SUPPRESS)  # in the processes: the parts
    args = p.parse_args()
    if args.worker:
        if os.geteuid() == 0:
            come_first()
        Worker(args.worker, args.model, int(args.hidden)).serve()
        return
    first, *others = OPTIONS[args.model]
    results, rows = [], []
    for hidden in map(int, args.hidden.split(",")) if args.model != "gat" else [128]:
        for way in args.ways.split(","):
            workers, transport = way.split(":")
            with stage(f"{way}, {hidden} hidden") as step:
                one = measure(int(workers), transport, hidden, args)
                ratios = ", ".join(f"{name} {one[f'{name}_ratio']:.2f}" for name in others)
                step.note = f"{one[first]:.3f} s an epoch, {ratios}"
            results.append(one)
            rows.append(
                [f"{workers} workers, {transport}", str(hidden), f"{one['parameters'] / common.MIB:.1f}"]
                + [f"{1e3 * one[first]:.0f}", *(f"{one[f'{name}_ratio']:.2f}" for name in others)]
                + [f"{1e3 * one[f'{name}_cpu']:.0f}" for name in (first, *others)]
                + [f"{one[f'{name}_sent'] / common.MIB:.0f}" for name in (first, *others)]
                + [f"{max(one[f'{name}_kept'] for name in others) / common.MIB:.1f}"]
            )
    machine = common.machine()
    print(common.machine_line(machine))
    print(f"\n{args.model.upper()}, {args.graph}, {args.parts} parts; {first}: an epoch in ms, the others to it; then")
    print(f"processor time of all workers in ms, and MiB that they send, an epoch. shaped: {args.mbit:g} Mbit/s")
    each = [f"{name}, {of}" for of in ("CPU", "MiB") for name in (first, *others)]
    print(table(["", "hidden", "MiB of parameters", first, *others, *each, "kept MiB"], rows))
    common.save(f"epoch-options-{args.model}", {"machine": machine, "results": results})


if __name__ == "__main__":
    main()
