"""What the allocator policy does to memory and time: the epoch benchmark with few rows, both policies side by side.

python bench/allocator.py [--rounds 3] [--epochs 3]
"""

from __future__ import annotations

import argparse
import statistics

import common
import run
from sar.cli.output import table

ROWS = ["1:-:metis", "2:shm:metis", "8:shm:metis"]
POLICIES = ("compact", "default")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3, help="turns, of which the first is warm-up (default: 3)")
    p.add_argument("--epochs", type=int, default=3, help="epochs a turn (default: 3)")
    args = p.parse_args()
    machine = common.machine()
    print(common.machine_line(machine), flush=True)
    measured = {policy: run.run_policy(policy, ROWS, args.rounds, args.epochs) for policy in POLICIES}
    header = ["", *(f"{what}, {policy}" for what in ("epoch s", "growth", "total") for policy in POLICIES)]
    peers = {policy: peer for policy, (peer, _) in measured.items()}
    peer_seconds = {p: statistics.median(r["peer_seconds"] for r in rows) for p, (_, rows) in measured.items()}
    lines = [
        ["DGL alone, 2 threads"]
        + [f"{peer_seconds[p]:.3f}" for p in POLICIES]
        + [run.mib(peers[p][what]) for what in ("growth", "total") for p in POLICIES]
    ]
    for index in range(len(ROWS)):
        both = {policy: rows[index] for policy, (_, rows) in measured.items()}
        workers, threads = both["compact"]["workers"], both["compact"]["threads"]
        lines.append(
            [f"{workers} x {threads} thread{'s' if threads > 1 else ''}"]
            + [f"{both[p]['seconds']:.3f}" for p in POLICIES]
            + [run.mib(both[p][what]) for what in ("growth", "total") for p in POLICIES]
        )
    print(f"\n{table(header, lines)}\n\nmemory in MiB, of the worker that grows most")
    common.save("allocator", {"machine": machine, "policies": [{"peer": p, "rows": r} for p, r in measured.values()]})


if __name__ == "__main__":
    main()
