"""Training under torch.autocast in bfloat16 against float32: time, memory and bytes sent of an epoch, in one run.

Bench graph; the models of model.py; policy pool. SAR in float32 and SAR under ``torch.autocast("cpu", torch.bfloat16)``
take turns, a few epochs each, for each number of workers; DGL and PyG alone under autocast take turns with them at one
worker. A time is the median over epochs of the slowest worker, growth that of the worker that grows most, sent the
payload of all workers in an epoch. Each ratio is to SAR in float32. How fast a product of matrices is in bfloat16 on
this machine is told beside it: without AVX-512 it is 10 to 100 times as slow as in float32, and so are epochs of DGL
and PyG; fused layers widen rows there.

    python bench/bf16.py [--models sage,gat] [--workers 1,2,8] [--rounds 4] [--epochs 2] [--parts metis]
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time

import torch

import common
from sar.cli.output import stage, table

THREADS = 2
PEERS = {"dgl": "DGL, autocast", "pyg": "PyG, autocast"}


def dense() -> float:
    """The time of a product of matrices in bfloat16 over that in float32."""
    torch.set_num_threads(THREADS)
    taken = {}
    for dtype in (torch.float32, torch.bfloat16):
        a, b = torch.randn(60_000, 256).to(dtype), torch.randn(256, 256).to(dtype)
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            a @ b
            times.append(time.perf_counter() - begin)
        taken[dtype] = min(times)
    return taken[torch.bfloat16] / taken[torch.float32]


def groups(workers: int, model: str, method: str) -> dict[str, common.Group]:
    """What takes turns."""
    found = {}
    path, extra = common.parts(workers, method), {"SAR_TRANSPORT": "shm"} if workers > 1 else {}
    for name, autocast in (("float32", "0"), ("autocast", "1")):
        words = ["sar", path, "pool", model]
        environment = {**extra, "BENCH_AUTOCAST": autocast}
        found[name] = common.Group("worker.py", words, workers, max(1, THREADS // workers), environment)
    for library in PEERS if workers == 1 else ():
        words = [library, common.reordered_graph(), "pool", model]
        found[library] = common.Group("worker.py", words, 1, THREADS, {"BENCH_AUTOCAST": "1"})
    return found


def measure(workers: int, model: str, a: argparse.Namespace) -> dict[str, dict]:
    """Times, memory and bytes of all that take turns, by name."""
    seconds: dict[str, list[float]] = {}
    result: dict[str, dict] = {}
    with contextlib.ExitStack() as stack:
        running = {}
        for name, group in groups(workers, model, a.parts).items():
            running[name] = stack.enter_context(group)
            group.answers()
        for turn in range(a.rounds + 1):  # the first is warm-up
            for name in list(running):
                try:
                    answers = running[name].ask(f"epochs {a.epochs}")
                except RuntimeError as error:  # DGL refuses layers in bfloat16
                    result[name] = {"refused": str(error).strip().splitlines()[-1]}
                    del running[name]
                    continue
                if turn:
                    seconds.setdefault(name, []).extend(max(times) for times in zip(*(x["seconds"] for x in answers)))
                result[name] = {"sent": sum(x["sent"] for x in answers), "loss": sum(x["losses"][-1] for x in answers)}
        for name, group in running.items():
            result[name]["growth"] = max(m["growth"] for m in group.ask("memory"))
            result[name]["seconds"] = statistics.median(seconds[name])
    return result


def rows_of(workers: int, model: str, found: dict[str, dict]) -> list[list[str]]:
    base, rows = found["float32"], []
    for name, one in found.items():
        words = [f"{model}, {workers} x {PEERS.get(name, name)}"]
        if "refused" in one:
            rows.append([*words, one["refused"][:60], *[""] * 5])
            continue
        words += [f"{one['seconds']:.3f}", f"{one['seconds'] / base['seconds']:.2f}"]
        words += [f"{one['growth'] / common.MIB:.0f}", f"{one['growth'] / base['growth']:.2f}"]
        sent = f"{one['sent'] / base['sent']:.2f}" if base["sent"] and name not in PEERS else ""
        rows.append([*words, sent, f"{one['loss']:.4f}"])
    return rows


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", default="sage,gat")
    p.add_argument("--workers", default="1,2,8")
    p.add_argument("--rounds", type=int, default=4)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--parts", default="metis")
    a = p.parse_args()
    machine, results, rows = common.machine(), [], []
    product = dense()
    for model in a.models.split(","):
        for workers in map(int, a.workers.split(",")):
            with stage(f"{model}, {workers} workers") as step:
                found = measure(workers, model, a)
                rows += rows_of(workers, model, found)
                step.note = f"growth {found['autocast']['growth'] / found['float32']['growth']:.2f}x"
            results.append({"model": model, "workers": workers, **found})
    print(common.machine_line(machine))
    print(f"\nA product of matrices in bfloat16 takes {product:.2f} times as long as in float32 here.\n")
    print(table(["", "epoch s", "to float32", "growth MiB", "to float32", "sent to float32", "loss"], rows))
    common.save("bf16", {"machine": machine, "dense": product, "results": results})


if __name__ == "__main__":
    main()
