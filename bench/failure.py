"""Failure detection: seconds until the other workers raise an error, and bytes on the wire.

Three workers, of which rank 1 is killed or stopped in one phase or another: seconds until the last of the others raised
sar.PeerLostError. Then what is left of the processes and in shared memory, a worker that is merely slow, bytes on the
wire beside the rows they carry, and the window. Runs what tests/lifecycle/scenarios.py and
tests/distributed/test_wire.py run.

    python bench/failure.py [--sleep 60]
"""

from __future__ import annotations

import argparse
import os
import sys

import common
from sar.cli.output import table
from sar.units import size

sys.path.insert(0, common.ROOT)

from tests.distributed import test_wire  # noqa: E402
from tests.lifecycle.scenarios import Group  # noqa: E402

WORLD = 3
PHASES = ("forward", "backward", "all_reduce", "between")


GROUPS: list[Group] = []


def started(*words, **more: str) -> Group:
    GROUPS.append(Group(*words, **more))
    return GROUPS[-1]


def others(reports: list[dict]) -> list[dict]:
    return [r for rank, r in enumerate(reports) if rank != 1]


def kinds(reports: list[dict]) -> str:
    return ", ".join(sorted({r["kind"] for r in reports}))


def lost(phase: str, transport: str, how: str, **more: str) -> list:
    group = started("lost", WORLD, transport, SAR_TEST_PHASE=phase, SAR_TEST_SIGNAL=how, **more)
    reports = group.wait(besides=(1,) if how == "SIGSTOP" else ())
    # A stopped worker's report is not read: its clock begins with the others', 0.7 s before the signal.
    died = reports[1].get("died")
    seconds = [r["at"] - died if died else r["seconds"] - 0.7 for r in others(reports)]
    name = "between epochs" if phase == "between" else phase.replace("_", "-")
    return [f"{how} in {name}", transport, kinds(others(reports)), f"{max(seconds):.2f} s", others(reports)[0]["phase"]]


def left(groups: list[Group], before: set[str]) -> str:
    """Of the workers that ran, and of shared memory since ``before``."""
    segments = [name for name in set(os.listdir("/dev/shm")) - before if "sar" in name.lower()]
    alive = [p.pid for group in groups for p in group.processes if os.path.exists(f"/proc/{p.pid}")]
    return f"{len(alive)} processes, {len(segments)} segments in /dev/shm"


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--sleep", type=float, default=60, help="seconds that the slow worker sleeps (default: 60)")
    args = p.parse_args()
    before = set(os.listdir("/dev/shm"))
    slow = started("slow", 2, SAR_LIVENESS_TIMEOUT="3", SAR_TEST_SLEEP=str(args.sleep))
    rows = []
    reports = others(started("absent", WORLD, SAR_START_TIMEOUT="4").wait())
    rows.append(["SIGKILL before the rendezvous (deadline 4 s)", "shm", kinds(reports)])
    rows[-1] += [f"{max(r['seconds'] for r in reports):.2f} s", ""]
    for transport in ("shm", "tcp"):
        rows += [lost(phase, transport, "SIGKILL") for phase in PHASES]
        rows.append(lost("forward", transport, "SIGSTOP", SAR_LIVENESS_TIMEOUT="3"))
    machine = common.machine()
    print(common.machine_line(machine))
    print(f"\n{WORLD} workers, rank 1 is lost; a liveness deadline of 3 s where it is stopped, else 20 s")
    print(table(["", "transport", "the others raise", "after", "rank 1 was last seen"], rows))
    reports = slow.wait()
    right = all(r["kind"] == "none" and r["total"] == 1.0 for r in reports)
    verdict = "nobody minds, sums are right" if right else str(reports)
    print(f"\nrank 1 sleeps {args.sleep:g} s with a deadline of 3 s: {verdict}")
    remains = left(GROUPS, before)
    print(f"left afterwards: {remains}")
    wire = test_wire.measured()
    framing = 100 * (wire["wire"] / wire["rows"] - 1)
    print(f"wire: {size(wire['wire'])} for {size(wire['rows'])} of rows, {framing:.2f} % more")
    print(f"window: limit {size(wire['limit'])}, peak {size(wire['peak'])}")
    common.save("failure", {"machine": machine, "lost": rows, "slow_is_right": right, "left": remains, "wire": wire})


if __name__ == "__main__":
    main()
