"""Random faults in small training jobs.

Each case is a job of 3 to 8 workers on hosts of its own (network namespaces), and one fault. No worker may hang, a job
that ends well has the bits of an undisturbed one, and otherwise every survivor raises an error that names the loss.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import multiprocessing
import os
import shutil
import sys
import time
from collections import defaultdict
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import sar  # noqa: E402 - torch reads the variables above
from tests.support.machines import NoMachines, machines, run  # noqa: E402

from .case import LAYOUTS, Case, draw  # noqa: E402
from .job import preload  # noqa: E402
from .kinds import KINDS  # noqa: E402
from .run import Outcome, perform  # noqa: E402
from .verdict import judge  # noqa: E402


def main() -> int:
    p = argparse.ArgumentParser(prog="faults", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--faults", type=int, default=400, help="how many cases (400)")
    p.add_argument("--seed", type=int, default=1, help="of the first case; the next has the next (1)")
    p.add_argument("--jobs", type=int, default=2, help="cases at one time (2)")
    p.add_argument("--kind", choices=sorted(KINDS), default="", help="this fault alone")
    p.add_argument("--layouts", default="", help=f"these alone, of {','.join(LAYOUTS)}; by default those that work")
    p.add_argument("--minutes", type=float, default=0, help="begin no case after so many (no limit)")
    p.add_argument("--logs", type=Path, default=Path("build/faults"), help="where logs of failed cases are kept")
    p.add_argument("--keep", action="store_true", help="keep the logs of all cases")
    args = p.parse_args()
    why = missing()
    if why:
        print(f"make faults: skipped: {why}")
        return 0
    layouts = [name for name in args.layouts.split(",") if name] or working_layouts()
    kinds = {name: tuple(x for x in kind.layouts if x in layouts) for name, kind in KINDS.items()}
    kinds = {name: fits for name, fits in kinds.items() if fits}
    cases = [draw(seed, kinds, args.kind) for seed in range(args.seed, args.seed + args.faults)]
    logs = args.logs.resolve()
    logs.mkdir(parents=True, exist_ok=True)
    return Campaign(cases, logs, args.jobs, args.minutes, args.keep).run()


def missing() -> str:
    """Why there are no faults here, "" if there are."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    absent = [name for name in ("ip", "nft", "tc", "ss", "nsenter", "unshare") if shutil.which(name) is None]
    if absent:
        return f"there is no {', no '.join(absent)} here (packages iproute2, nftables, util-linux)"
    try:
        with machines(1) as (machine,):
            run(machine.inside, "nft", "add table netdev faults")
            run(machine.inside, "tc", "qdisc", "add", "dev", "veth", "root", "tbf", "rate", "1mbit", "burst", "16kb",
                "latency", "200ms")  # fmt: skip
    except NoMachines as error:
        return str(error)
    return ""


def working_layouts() -> list[str]:
    tls = "SAR_TLS" in (sar.comm.initialize_comms.__doc__ or "")
    if not tls:
        print("without tls: this build does not know SAR_TLS")
    return [name for name in LAYOUTS if tls or name != "tls"]


class Campaign:
    """Many cases, and what came of them."""

    def __init__(self, cases: list[Case], logs: Path, jobs: int, minutes: float, keep: bool) -> None:
        self.cases, self.logs, self.jobs, self.keep = cases, logs, jobs, keep
        self.end = time.monotonic() + 60 * minutes if minutes else float("inf")
        self.right: dict[tuple[str, int, str], dict[str, object]] = {}
        self.outcomes: list[Outcome] = []
        self.failed: dict[int, list[str]] = {}

    def run(self) -> int:
        undisturbed = list(dict.fromkeys(case.undisturbed() for case in self.cases))
        preload()
        # Forked before this process starts a thread, and without the engine: workers are forked from those again.
        fork = multiprocessing.get_context("fork")
        with concurrent.futures.ProcessPoolExecutor(self.jobs, mp_context=fork) as pool:
            for outcome in pool.map(_undisturbed, undisturbed, [self.logs] * len(undisturbed)):
                if wrong := judge(outcome, outcome.workers[0]["done"]):
                    print(f"{outcome.case.describe()}:", *wrong, sep="\n  ")
                    return 1
                self.right[outcome.case.job] = outcome.workers[0]["done"]
            print(f"{len(undisturbed)} jobs without a fault: all right", flush=True)
            futures = [pool.submit(_one, case, self.logs, self.end) for case in self.cases]
            for future in concurrent.futures.as_completed(futures):
                if (found := future.result()) is not None:
                    self.take(found)
        self.table()
        return 1 if self.failed else 0

    def take(self, outcome: Outcome) -> None:
        found = judge(outcome, self.right[outcome.case.job])
        self.outcomes.append(outcome)
        seed = outcome.case.seed
        if found:
            self.failed[seed] = found
            print(f"seed {seed}: {outcome.case.describe()}", *found, sep="\n  ", flush=True)
        elif not self.keep:
            shutil.rmtree(self.logs / f"seed-{seed}", ignore_errors=True)
        if len(self.outcomes) % 20 == 0:
            print(f"{len(self.outcomes)} of {len(self.cases)} cases, {len(self.failed)} failed", flush=True)

    def table(self) -> None:
        from sar.cli.output import table

        rows: dict[str, list[Outcome]] = defaultdict(list)
        for outcome in self.outcomes:
            rows[outcome.case.kind].append(outcome)
        lines = []
        for kind in KINDS:
            these = rows.get(kind, [])
            well = sum(all(w["done"] for w in o.workers) for o in these)
            slowest = max((_latency(o) for o in these), default=0.0)
            hung = sum(bool(o.hung) for o in these)
            missed = sum(o.missed for o in these)
            wrong = sum(o.case.seed in self.failed for o in these)
            late = f"{slowest:.1f} s" if slowest else ""
            lines.append([kind, len(these), missed, well, len(these) - well, late, hung, wrong])
        heads = ["fault", "cases", "too late", "trained on", "ended", "last error after", "hung", "failed"]
        print(table(heads, [[str(cell) for cell in line] for line in lines]))
        mean = sum(o.seconds for o in self.outcomes) / max(1, len(self.outcomes))
        print(f"{len(self.outcomes)} cases, {mean:.1f} s each; {len(self.failed)} failed")
        if self.failed:
            print(f"failed seeds (logs in {self.logs}): {' '.join(map(str, sorted(self.failed)))}")


def _latency(outcome: Outcome) -> float:
    """Seconds from the fault to the last worker's error."""
    return max((w["error"]["time"] - outcome.struck for w in outcome.workers if w["error"]), default=0.0)


def _undisturbed(case: Case, logs: Path) -> Outcome:
    """A busy machine may take a worker for lost: once more then."""
    for _ in range(3):
        outcome = perform(case, logs / f"undisturbed-{'-'.join(map(str, case.job))}")
        if not judge(outcome, outcome.workers[0]["done"]):
            break
    return outcome


def _one(case: Case, logs: Path, end: float) -> Outcome | None:
    return perform(case, logs / f"seed-{case.seed}") if time.monotonic() < end else None


if __name__ == "__main__":
    sys.exit(main())
