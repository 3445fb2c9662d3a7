"""All-reduce of torch.distributed with the backend sar beside gloo: 1 KiB, 1 MiB and 64 MiB, 2 and 8 processes.

The processes hold both groups at the same time and take turns, so that a busy machine slows both alike. Checks the
sums. Prints the time of an all-reduce, from its call to its end on the last process, and sar's to gloo's.

    python bench/all_reduce.py [--workers 2,8] [--bytes 1024,1048576,67108864] [--turns 9]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist

import common
import sar  # noqa: F401 (it makes its backend known)
from sar.cli.output import table
from sar.units import size

BACKENDS = ("sar", "gloo")
SECONDS = 0.15  # that the all-reduces of a turn take, about


def worker(sizes: list[int], turns: int) -> None:
    """One of the processes. Answers with the seconds of each turn, by size and backend."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    groups = {name: dist.new_group(backend=name) for name in BACKENDS}
    taken = {n: {name: [timed(groups[name], n, 1, world)] for name in BACKENDS} for n in sizes}
    for n in sizes:
        slowest = max(first for (first,) in taken[n].values())
        repeat = max(3, min(1000, int(SECONDS / slowest)))
        for name in BACKENDS:
            taken[n][name] = []
        for _ in range(turns):
            for name in BACKENDS:
                taken[n][name].append(timed(groups[name], n, repeat, world))
    print(json.dumps({"taken": taken}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def timed(group: dist.ProcessGroup, n: int, repeat: int, world: int) -> float:
    """Seconds of one all-reduce, the longest of any process."""
    x = torch.ones(n // 4)
    dist.all_reduce(x, group=group)
    if not bool((x == world).all()):
        raise RuntimeError(f"a sum of {n} bytes is wrong")
    x.zero_()
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(repeat):
        dist.all_reduce(x, group=group)
    seconds = torch.tensor((time.perf_counter() - begin) / repeat, dtype=torch.float64)
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    return float(seconds)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--workers", default="2,8")
    p.add_argument("--bytes", default="1024,1048576,67108864")
    p.add_argument("--turns", type=int, default=9)
    p.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # in the processes
    args = p.parse_args()
    sizes = [int(n) for n in args.bytes.split(",")]
    if args.inside:
        worker(sizes, args.turns)
        return
    rows, results = [], {}
    for world in map(int, args.workers.split(",")):
        words = ["--inside", "--bytes", args.bytes, "--turns", str(args.turns)]
        with common.Group("all_reduce.py", words, world, 1, {}) as group:
            taken = group.answers()[0]["taken"]
        for n in sizes:
            ours, gloo = (taken[str(n)][name] for name in BACKENDS)
            ratio = statistics.median(a / b for a, b in zip(ours, gloo))
            times = [f"{1e3 * statistics.median(each):.3f} ms" for each in (ours, gloo)]
            rows.append([f"{world} processes, {size(n)}", *times, f"{ratio:.2f}x"])
            results[f"{world}/{n}"] = {"sar": ours, "gloo": gloo, "ratio": ratio}
    machine = common.machine()
    print(common.machine_line(machine))
    print(table(["", "sar", "gloo", "sar's time to gloo's"], rows))
    common.save("all_reduce", {"machine": machine, "all_reduce": results})


if __name__ == "__main__":
    main()
