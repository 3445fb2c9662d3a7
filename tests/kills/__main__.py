"""Kills workers at random moments, and holds the losses against those of a job that nobody disturbed."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from . import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="in all (default: 50)")
    parser.add_argument("--each", type=int, default=5, help="in one job at most (default: 5)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--launchers", default="sar,torchrun", help="which (default: sar,torchrun), in turns")
    arguments = parser.parse_args()
    launchers = arguments.launchers.split(",")
    with tempfile.TemporaryDirectory(prefix="sar-kills-") as scratch:
        outcome = run.job(Path(scratch, "undisturbed"), launchers[0], 0, 0)
        if outcome.wrong:
            sys.exit(f"without kills: {outcome.wrong}")
        undisturbed = run.losses(Path(scratch, "undisturbed"))
        done = failed = number = 0
        while done < arguments.kills:
            seed, launcher = arguments.seed * 1000 + number, launchers[number % len(launchers)]
            folder = Path(scratch, str(seed))
            outcome = run.job(folder, launcher, min(arguments.each, arguments.kills - done), seed)
            wrong = outcome.wrong or run.compare(folder, undisturbed)
            print(f"seed {seed}, {launcher}: {outcome.kills} kills, {wrong or 'the same losses'}", flush=True)
            done, failed, number = done + outcome.kills, failed + bool(wrong), number + 1
            if number > 4 * arguments.kills:
                sys.exit("jobs end before anybody is killed")
    print(f"{done} kills in {number} jobs; {number - failed} jobs ended with the losses of an undisturbed one")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
