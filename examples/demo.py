"""Trains on the graphs that ship with the repository: a GCN on Cora with 2 workers, GraphSAGE on Cornell5 with 1 and
with 2, whose losses must agree. Ends with a table and, where matplotlib is installed, a picture of the curves. The exit
code is 1 if something failed or the losses differ.

    make demo
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

from sar.cli.output import table
from sar.units import size

HERE = os.path.dirname(os.path.abspath(__file__))
WORK = os.path.join(os.path.dirname(HERE), "build", "demo")
TOLERANCE = 1e-3  # float32 adds up in another order with another number of workers


def command(*words: str) -> None:
    """Runs a ``sar`` command and shows it, as a user would type it."""
    shown = [os.path.relpath(w) if os.path.isabs(w) else w for w in words]
    print(f"\n$ sar {' '.join(shown)}", flush=True)
    subprocess.run([sys.executable, "-m", "sar", *shown], check=True)


def train(script: str, graph: str, workers: int, *partition_options: str) -> dict:
    """Cuts a graph, trains on it, and returns what the script reports."""
    parts = os.path.join(WORK, f"{graph}-{workers}")
    results = os.path.join(WORK, f"{graph}-{workers}.json")
    source = os.path.join(HERE, "data", f"{graph}.npz")
    command("partition", source, "--parts", str(workers), "--out", parts, *partition_options)
    command(
        *("launch", "-n", str(workers), os.path.join(HERE, "more", script)),
        *("--partitioning-json-file", os.path.join(parts, f"{graph}.json"), "--results", results),
    )
    with open(results, encoding="utf-8") as file:
        return json.load(file)


def draw(one: dict, two: dict, path: str) -> bool:
    """Draws losses and memory over the epochs with 1 and with 2 workers. False where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (losses, memory) = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
    styles = {"1 worker": (one, {"linewidth": 5, "alpha": 0.35}), "2 workers": (two, {"linewidth": 1.2})}
    for name, (run, style) in styles.items():
        epochs = range(1, len(run["losses"]) + 1)
        losses.plot(epochs, run["losses"], label=name, **style)
        memory.plot(epochs, [b / 2**20 for b in run["memory"]], label=name, **style)
    losses.set(title="GraphSAGE on Cornell5: loss", xlabel="epoch", ylim=(0, None))
    highest = max(max(run["memory"]) for run in (one, two)) / 2**20
    memory.set(title="memory of a worker, MiB", xlabel="epoch", ylim=(0, 1.1 * highest))
    losses.legend()
    figure.savefig(path, dpi=100)
    return True


def main() -> int:
    os.makedirs(WORK, exist_ok=True)
    begin = time.monotonic()
    try:
        runs = {
            "GCN, Cora": train("gcn_cora.py", "cora", 2, "--self-loops"),
            "SAGE, Cornell5": train("sage_cornell5.py", "cornell5", 1),
            "SAGE, Cornell5 ": train("sage_cornell5.py", "cornell5", 2),
        }
    except subprocess.CalledProcessError as error:
        print(f"\ndemo: the command above ended with exit code {error.returncode}", file=sys.stderr)
        return 1
    header = ["", "workers", "epoch", "final loss", "test accuracy", "memory per worker", "sent"]
    rows = [
        [
            name,
            r["workers"],
            f"{r['epoch_seconds']:.3f} s",
            f"{r['losses'][-1]:.5f}",
            f"{100 * r['accuracy']['test']:.1f} %",
            size(r["memory_per_worker"]),
            size(r["sent_bytes"]),
        ]
        for name, r in runs.items()
    ]
    print(f"\n{table(header, rows)}\n")
    print("memory per worker: largest resident size less that after imports. sent: bytes on all links, whole run.")
    picture = os.path.join(WORK, "curves.png")
    if draw(runs["SAGE, Cornell5"], runs["SAGE, Cornell5 "], picture):
        print(f"curves of loss and memory: {os.path.relpath(picture)}")
    one, two = runs["SAGE, Cornell5"]["losses"], runs["SAGE, Cornell5 "]["losses"]
    differences = [abs(a - b) / abs(a) for a, b in zip(one, two)]
    agree = len(one) == len(two) and all(d <= TOLERANCE for d in differences)  # no where a loss is NaN
    print(
        f"losses of {len(one)} epochs with 1 and 2 workers: largest difference {max(differences):.1e} relative, "
        f"{'they agree' if agree else f'more than the {TOLERANCE:g} allowed'}"
    )
    print(f"{time.monotonic() - begin:.0f} s in all")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
