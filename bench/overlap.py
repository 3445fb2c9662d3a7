"""Overlap of communication and computation: how much of a transfer is hidden behind kernels over a slow link.

Two workers of one thread in network namespaces of their own, joined by a veth pair whose ends a token bucket (tbf)
shapes. For each operation the link gets the rate at which the bytes that it sends would take 0.5, 0.7 and 0.9 of the
time that it takes unshaped. Hidden is 1 - (time shaped - time unshaped) / (time of the same bytes alone over that
link, both ways at once). Each round runs it unshaped, shaped and unshaped again, and then the bytes alone, so that a
machine that slows down for a while slows all of them; the figures are medians over the rounds, with quartiles of what
each round says is hidden. Needs root, ip and tc.

    python bench/overlap.py [--parts metis] [--shares 0.5,0.7,0.9] [--rounds 9] [--window MiB] [--trace FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time

import common
from sar.cli.output import table
from shaped_link import MASTER, Link, come_first, link

OPERATIONS = ("mean forward", "mean backward", "attention forward", "attention backward")
WIDTH, HEADS, PER_HEAD = 256, 4, 32

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
        from sar._engine import abi, session as _session

        send, receive = torch.zeros(size, dtype=torch.uint8), torch.empty(size, dtype=torch.uint8)
        sar.comm.barrier()
        begin = time.perf_counter()
        abi.exchange_pair(_session.current().handle, abi.TRAIN, 1 - self.rank, send, 1 - self.rank, receive)
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


def slowest(group: common.Group, command: str) -> tuple[float, int]:
    """The slower worker's seconds, and the most bytes that a worker sent."""
    answers = group.ask(command)
    return max(a["seconds"] for a in answers), max(a.get("bytes", 0) for a in answers)


def measure(net: Link, group: common.Group, operation: str, share: float, rounds: int) -> dict:
    """An operation over a link on which its bytes take ``share`` of the time that it takes unshaped."""
    command = f"run {operation}"
    net.shape(None)
    first, sizes = zip(*(slowest(group, command) for _ in range(6)))
    rate = max(sizes) / (share * min(first))
    found: dict[str, list[float]] = {"unshaped": [], "together": [], "transfer": []}
    for _ in range(rounds):
        found["unshaped"].append(slowest(group, command)[0])
        net.shape(rate)
        found["together"].append(slowest(group, command)[0])
        found["transfer"].append(slowest(group, f"exchange {max(sizes)}")[0])
        net.shape(None)

    def hidden(times: dict[str, float]) -> float:
        return 1 - (times["together"] - times["unshaped"]) / times["transfer"]

    times = {name: statistics.quantiles(each, n=4)[0] for name, each in found.items()}
    medians = {name: statistics.median(each) for name, each in found.items()}
    about = {"operation": operation, "share": share, "bytes": max(sizes), "rate": rate}
    return {**about, **times, "hidden": hidden(times), "hidden_by_medians": hidden(medians), "rounds": found}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--parts", default="metis", help="metis or random (default: metis)")
    p.add_argument("--shares", default="0.5,0.7,0.9", help="of the transfer in the time unshaped")
    p.add_argument("--rounds", type=int, default=9, help="of each share, at least 2 (default: 9)")
    p.add_argument("--window", type=float, default=0, help="MiB (default: the engine's)")
    p.add_argument("--operations", default=",".join(OPERATIONS))
    p.add_argument("--trace", help="write a timeline of each operation at the last share to FILE.<operation>.json")
    p.add_argument("--worker", help=argparse.SUPPRESS)  # in the two processes: the parts
    args = p.parse_args()
    window = int(args.window * common.MIB)
    if args.worker:
        come_first()
        Worker(args.worker, window).serve()
        return
    path = common.parts(2, args.parts)
    rows, results = [], []
    with link() as net:
        words = ["--worker", path, "--window", str(args.window)]
        inside = [net.inside(rank) for rank in range(2)]
        with common.Group("overlap.py", words, 2, 1, {}, MASTER, inside) as group:
            group.answers()
            for operation in args.operations.split(","):
                for share in map(float, args.shares.split(",")):
                    one = measure(net, group, operation, share, max(2, args.rounds))
                    results.append(one)
                    rows.append(
                        [operation, f"{one['bytes'] / common.MIB:.1f}"]
                        + [f"{1e3 * one[name]:.0f}" for name in ("unshaped", "transfer", "together")]
                        + [f"{one['transfer'] / one['unshaped']:.2f}", f"{100 * one['hidden']:.0f} %"]
                        + [f"{100 * one['hidden_by_medians']:.0f} %"]
                    )
                if args.trace:
                    net.shape(one["rate"])
                    group.ask(f"trace {args.trace}.{operation.replace(' ', '-')}.json {operation}")
                    net.shape(None)
    machine = common.machine()
    print(common.machine_line(machine))
    print(f"\ntwo workers of one thread, {args.parts} parts, in namespaces joined by a shaped veth; times in ms")
    print(table(["", "MiB sent", "unshaped", "transfer alone", "together", "share", "hidden", "by medians"], rows))
    common.save(f"overlap-{args.parts}", {"machine": machine, "parts": args.parts, "results": results})


if __name__ == "__main__":
    main()
