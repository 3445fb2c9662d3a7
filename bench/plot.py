"""Draws what run.py measured: time and memory of a worker against the number of workers.

python bench/plot.py [NAME ...]      reads bench/out/NAME.json (default: epoch), writes bench/out/NAME.png
"""

from __future__ import annotations

import json
import os
import statistics
import sys

import matplotlib

import common

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


def draw(name: str) -> str:
    with open(os.path.join(common.OUT, f"{name}.json"), encoding="utf-8") as file:
        content = json.load(file)
    policies = content["policies"]
    figure, axes = plt.subplots(len(policies), 2, figsize=(10, 4 * len(policies)), squeeze=False)
    for (left, right), measured in zip(axes, policies):
        peer, rows = measured["peer"], measured["rows"]
        seconds = statistics.median(r["peer_seconds"] for r in rows)
        left.axhline(seconds, color="black", linestyle="--", label="DGL alone")
        right.axhline(peer["growth"] / common.MIB, color="black", linestyle="--", label="DGL alone")
        for row in rows:
            if row["library"] == "pyg":
                left.axhline(row["seconds"], color="gray", linestyle=":", label="PyG alone")
                right.axhline(row["growth"] / common.MIB, color="gray", linestyle=":", label="PyG alone")
        ours = [r for r in rows if r["library"] == "sar"]
        one = [r for r in ours if r["transport"] == "-"]
        for transport, method in sorted({(r["transport"], r["parts"]) for r in ours if r["transport"] != "-"}):
            line = [r for r in ours if (r["transport"], r["parts"]) == (transport, method)]
            line = sorted([*one, *line], key=lambda r: r["workers"])
            workers = [r["workers"] for r in line]
            left.plot(workers, [r["seconds"] for r in line], marker="o", label=f"{transport}, {method} parts")
            growth = [r["growth"] / common.MIB for r in line]
            right.plot(workers, growth, marker="o", label=f"{transport}, {method} parts")
        left.set(title=f"epoch, allocator {peer['policy']}", xlabel="workers", ylabel="seconds", ylim=0)
        title = f"memory of a worker, allocator {peer['policy']}"
        right.set(title=title, xlabel="workers", ylabel="growth, MiB", ylim=0)
        for axis in (left, right):
            axis.set_xscale("log", base=2)
            axis.legend(fontsize=8)
    model = content.get("model", "sage") + (f", dropout {content['dropout']:g}" if content.get("dropout") else "")
    figure.suptitle(f"{model}: {common.machine_line(content['machine'])}", fontsize=7)
    figure.tight_layout()
    path = os.path.join(common.OUT, f"{name}.png")
    figure.savefig(path, dpi=120)
    return path


if __name__ == "__main__":
    for given in sys.argv[1:] or ["epoch"]:
        print(f"wrote {os.path.relpath(draw(given))}")
