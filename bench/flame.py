"""Where a worker's time goes: a flame graph of its Python, torch and engine, and the engine's own profile.

    python bench/flame.py [--model sage|gat|gat128] [--workers 1] [--seconds 20]

Writes bench/out/profile-MODEL.svg (py-spy, all threads, native frames; the engine's have names if it was built with
SAR_SYMBOLS=1, as `make profile` does) and bench/out/timeline-MODEL.rank*.json (sar.trace of one epoch, for
https://ui.perfetto.dev).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys

import common
from model import MODELS


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", choices=MODELS, default="sage")
    p.add_argument("--workers", type=int, default=1)
    p.add_argument("--seconds", type=int, default=20)
    args = p.parse_args()
    spy = shutil.which("py-spy", path=os.path.dirname(sys.executable))
    if spy is None:
        sys.exit("py-spy is not installed: pip install -r requirements-bench.txt")
    os.makedirs(common.OUT, exist_ok=True)
    picture = os.path.join(common.OUT, f"profile-{args.model}.svg")
    threads = max(1, 2 // args.workers)
    words = ["sar", common.parts(args.workers, "metis"), "compact", args.model]
    with common.Group("worker.py", words, args.workers, threads, {}) as group:
        group.answers()
        group.ask("epochs 1")
        group.ask(f"trace {os.path.join(common.OUT, f'timeline-{args.model}.json')}")
        recorder = subprocess.Popen(
            [spy, "record", "--native", "--threads", "--rate", "100", "--duration", str(args.seconds)]
            + ["--format", "flamegraph", "--output", picture, "--pid", str(group.processes[0].pid)]
        )
        while recorder.poll() is None:
            group.ask("epochs 1")
        if recorder.returncode != 0:
            sys.exit("py-spy failed; attaching to a process may need permission (kernel.yama.ptrace_scope=0, or root)")
    print(f"wrote {os.path.relpath(picture)} and the timelines beside it")


if __name__ == "__main__":
    main()
