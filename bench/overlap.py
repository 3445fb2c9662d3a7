"""How much of the transfer is hidden behind kernels, over a link so slow that it matters.

Two workers of one thread in network namespaces of their own, joined by a veth pair whose ends a token bucket (tbf)
shapes. For each operation the link gets the rate at which the bytes that it sends would take 0.5, 0.7 and 0.9 of the
time that it takes unshaped. Hidden is 1 - (time shaped - time unshaped) / (time of the same bytes alone over that
link, both ways at once). Needs root, ip and tc.

    python bench/overlap.py [--parts metis] [--shares 0.5,0.7,0.9] [--rounds 5] [--window MiB] [--trace FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Iterator

import common
from sar.cli.output import table

OPERATIONS = ("mean forward", "mean backward", "attention forward", "attention backward")
WIDTH, HEADS, PER_HEAD = 256, 4, 32
NET = "10.77.0."


# ---- the link ---------------------------------------------------------------


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Link:
    """Two namespaces and what joins them."""

    def __init__(self) -> None:
        self.names = [f"sar-{os.getpid()}-{rank}" for rank in range(2)]

    def inside(self, rank: int) -> list[str]:
        return ["ip", "netns", "exec", self.names[rank]]

    def shape(self, rate: float | None) -> None:
        """Bytes a second each way; None: as fast as it goes."""
        for rank in range(2):
            tc = [*self.inside(rank), "tc", "qdisc"]
            if rate is None:
                subprocess.run([*tc, "del", "dev", "veth", "root"], check=False, capture_output=True)
            else:
                bucket = ["tbf", "rate", f"{int(8 * rate)}bit", "burst", "256kb", "limit", "4mb"]
                subprocess.run([*tc, "replace", "dev", "veth", "root", *bucket], check=True)


@contextlib.contextmanager
def link() -> Iterator[Link]:
    made = Link()
    try:
        for name in made.names:
            ip("netns", "add", name)
        ends = [["name", "veth", "netns", name] for name in made.names]
        ip("link", "add", *ends[0], "type", "veth", "peer", *ends[1])
        for rank, name in enumerate(made.names):
            ip("-n", name, "addr", "add", f"{NET}{rank + 1}/24", "dev", "veth")
            for device in ("lo", "veth"):
                ip("-n", name, "link", "set", device, "up")
        yield made
    finally:
        for name in made.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


# ---- the workers ------------------------------------------------------------


class Worker:
    """Runs operations on its part of the bench graph."""

    def __init__(self, path: str, window: int) -> None:
        import torch

        import sar

        torch.set_num_threads(1)
        if window:
            sar.Config.window_bytes = window
        self.rank = int(os.environ["RANK"])
        port = int(os.environ["MASTER_PORT"])
        sar.initialize_comms(self.rank, 2, os.environ["MASTER_ADDR"], "sar", master_port_number=port)
        graph = sar.construct_full_graph(sar.load_dgl_partition_data(path, self.rank, torch.device("cpu")))
        n = graph.num_nodes()
        self.graph, self.x = graph, torch.randn(n, WIDTH, requires_grad=True)
        self.z = torch.randn(n, HEADS, PER_HEAD, requires_grad=True)
        self.el, self.er = (torch.randn(n, HEADS, 1, requires_grad=True) for _ in range(2))
        self.out = {"mean": self.mean(), "attention": self.attention()}

    def mean(self):
        import sar.function as fn

        with self.graph.local_scope():
            self.graph.srcdata["x"] = self.x
            self.graph.update_all(fn.copy_u("x", "m"), fn.mean("m", "y"))
            return self.graph.dstdata["y"]

    def attention(self):
        import torch.nn.functional as F

        import sar
        import sar.function as fn

        with self.graph.local_scope():
            self.graph.srcdata.update({"z": self.z, "el": self.el})
            self.graph.dstdata["er"] = self.er
            self.graph.apply_edges(fn.u_add_v("el", "er", "e"))
            self.graph.edata["a"] = sar.edge_softmax(self.graph, F.leaky_relu(self.graph.edata["e"], 0.2))
            self.graph.update_all(fn.u_mul_e("z", "a", "m"), fn.sum("m", "y"))
            return self.graph.dstdata["y"]

    def run(self, operation: str) -> dict:
        """One run: seconds, and the bytes that this worker has sent."""
        import torch

        import sar

        name, way = operation.split()
        if way == "backward":
            grad = torch.ones_like(self.out[name])
        before = self.sent()
        sar.comm.barrier()
        begin = time.perf_counter()
        if way == "forward":
            self.out[name] = getattr(self, name)()
        else:
            self.out[name].backward(grad, retain_graph=True)
        return {"seconds": time.perf_counter() - begin, "bytes": self.sent() - before}

    def sent(self) -> int:
        import sar

        return sum(x["sent_bytes"] for x in sar.stats()["links"] if x["communicator"] == "train")

    def exchange(self, size: int) -> dict:
        """The same bytes and no computing."""
        import torch

        import sar
        from sar import _abi, _session

        send, receive = torch.zeros(size, dtype=torch.uint8), torch.empty(size, dtype=torch.uint8)
        sar.comm.barrier()
        begin = time.perf_counter()
        _session.exchange_pair(1 - self.rank, send, 1 - self.rank, receive, _abi.TRAIN)
        return {"seconds": time.perf_counter() - begin}

    def serve(self) -> None:
        import sar

        print(json.dumps({}), flush=True)
        for line in sys.stdin:
            word, _, rest = line.strip().partition(" ")
            if word == "end":
                break
            if word == "run":
                answer = self.run(rest)
            elif word == "exchange":
                answer = self.exchange(int(rest))
            else:
                path, _, operation = rest.partition(" ")
                with sar.trace(path, torch_ops=False):
                    answer = self.run(operation)
            print(json.dumps(answer), flush=True)
        sar.comm.barrier()
        sar.comm.shutdown()


# ---- the measurement --------------------------------------------------------


def slowest(group: common.Group, command: str, rounds: int) -> tuple[float, int]:
    """Median over rounds of the slower worker's seconds, and the most bytes that a worker sent."""
    answers = [group.ask(command) for _ in range(rounds)]
    most = max(a.get("bytes", 0) for pair in answers for a in pair)
    return statistics.median(max(a["seconds"] for a in pair) for pair in answers), most


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--parts", default="metis", help="metis or random (default: metis)")
    p.add_argument("--shares", default="0.5,0.7,0.9", help="of the transfer in the time unshaped")
    p.add_argument("--rounds", type=int, default=5, help="runs of each, after one of warm-up (default: 5)")
    p.add_argument("--window", type=float, default=0, help="MiB (default: the engine's)")
    p.add_argument("--operations", default=",".join(OPERATIONS))
    p.add_argument("--trace", help="write a timeline of each operation at the last share to FILE.<operation>.json")
    p.add_argument("--worker", help=argparse.SUPPRESS)  # in the two processes: the parts
    args = p.parse_args()
    window = int(args.window * common.MIB)
    if args.worker:
        Worker(args.worker, window).serve()
        return
    if os.geteuid() != 0:
        sys.exit("bench/overlap.py makes network namespaces: run it as root")
    path = common.parts(2, args.parts)
    rows, results = [], []
    with link() as net:
        words = ["--worker", path, "--window", str(args.window)]
        inside = [net.inside(rank) for rank in range(2)]
        with common.Group("overlap.py", words, 2, 1, {}, f"{NET}1", inside) as group:
            group.answers()
            for operation in args.operations.split(","):
                slowest(group, f"run {operation}", 1)
                for share in map(float, args.shares.split(",")):
                    net.shape(None)
                    alone, count = slowest(group, f"run {operation}", args.rounds)
                    net.shape(count / (share * alone))
                    transfer, _ = slowest(group, f"exchange {count}", 3)
                    shaped, _ = slowest(group, f"run {operation}", args.rounds)
                    net.shape(None)
                    alone = min(alone, slowest(group, f"run {operation}", args.rounds)[0])
                    hidden = 1 - (shaped - alone) / transfer
                    results.append(
                        {"operation": operation, "share": share, "bytes": count, "alone": alone, "transfer": transfer}
                        | {"together": shaped, "hidden": hidden}
                    )
                    rows.append(
                        [operation, f"{count / common.MIB:.1f}", f"{1e3 * alone:.0f}", f"{1e3 * transfer:.0f}"]
                        + [f"{transfer / alone:.2f}", f"{1e3 * shaped:.0f}", f"{100 * hidden:.0f} %"]
                    )
                if args.trace:
                    net.shape(count / (share * alone))
                    group.ask(f"trace {args.trace}.{operation.replace(' ', '-')}.json {operation}")
                    net.shape(None)
    machine = common.machine()
    print(common.machine_line(machine))
    print(f"\ntwo workers of one thread, {args.parts} parts, in namespaces joined by a shaped veth; times in ms")
    print(table(["", "MiB sent", "unshaped", "transfer alone", "share", "together", "hidden"], rows))
    common.save(f"overlap-{args.parts}", {"machine": machine, "parts": args.parts, "results": results})


if __name__ == "__main__":
    main()
