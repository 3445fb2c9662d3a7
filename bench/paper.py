"""The paper's graph (ogbn-papers100M): one real worker of 64 or 128, its peers replayed. See paper_graph.py, replay.py.

    python bench/paper.py check                       4 real workers against one real and three replayed ones, small
    python bench/paper.py run --parts 64 --models sage --cut 0.2 --epochs 1 [--shrink 16] [--random]
    python bench/paper.py --way efficient run --parts 64 --models gat128

``--way`` is one of model.WAYS.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from typing import Any

import common
import paper_graph
import scale
from model import WAYS
from record import joined
from sar._engine import abi
from sar.cli.output import Failure, stage, table
from sar.profiling.plan import estimate
from sar.profiling.plan.layers import costs_of
from sar.profiling.plan.step import training_step
from sar.units import size

LAYERS = {
    "sage": ["sage:256", "bn", "relu", "sage:256", "bn", "relu", f"sage:{paper_graph.CLASSES}"],
    "gat128": ["gat:4x128", "elu", "gat:4x128", "elu", f"gat:4x{paper_graph.CLASSES}", "mean:4"],
}
EFFICIENT = ["gat-flatten:4x128", "gat-flatten:4x128", f"gat-mean:4x{paper_graph.CLASSES}"]
"""The layers of gat128 in the way of that name."""
# GB that the paper reports for a worker of its own package, by model and workers
PAPER = {("sage", 64): 47, ("sage", 128): 25, ("gat128", 64): 35, ("gat128", 128): 19.5}


def small(folder: str, parts: int, nodes: int, edges: int) -> str:
    """A small graph in parts, cut by numbers of nodes: the path of the description."""
    path = os.path.join(folder, f"small-{nodes}-{edges}.npz")
    paper_graph.whole(path, nodes, edges)
    out = os.path.join(folder, f"small-{nodes}-{edges}-{parts}")
    words = ["--parts", str(parts), "--method", "random", "--name", "small", "--out", out]
    subprocess.run([sys.executable, "-m", "sar", "partition", path, *words], check=True, stdout=subprocess.DEVNULL)
    return os.path.join(out, "small.json")


def record(folder: str, model: str, way: str, epochs: int) -> str:
    """The calls of a worker that trains so many epochs, by two workers and by three on a small graph: the path of the
    record."""
    paths = [os.path.join(folder, f"{model}-{workers}.json") for workers in (2, 3)]
    for workers, path in zip((2, 3), paths):
        parts = small(folder, workers, 3001, 30_001)
        extra = {"BENCH_RECORD": path, "BENCH_WAY": way}
        with common.Group("worker.py", ["sar", parts, "pool", model], workers, 1, extra) as group:
            train(group, epochs)
    joined(*paths)
    return paths[0]


def train(group: common.Group, epochs: int) -> dict[str, Any]:
    """What rank 0 tells of an epoch to begin with and ``epochs`` more."""
    group.answers()
    group.ask("links")
    first = group.ask("epochs 1")[0]
    more = group.ask(f"epochs {epochs}")[0] if epochs else first
    return {"first": first, **more, "memory": group.ask("memory")[0], "links": group.ask("links")[0]}


def replayed(parts: str, world: int, model: str, way: str, epochs: int, script: str, threads: int) -> dict[str, Any]:
    """Rank 0 trains, the others are replayed."""
    words, ranks = ["sar", parts, "pool", model], range(1)
    per_process = ranks_of_a_process(world)
    with common.Group("worker.py", words, world, threads, {"BENCH_WAY": way}, ranks=ranks) as group:
        others = [
            subprocess.Popen(
                [sys.executable, os.path.join(common.HERE, "replay.py"), parts, script]
                + [str(first), str(min(world, first + per_process) - 1)],
                env=group.job,
            )
            for first in range(1, world, per_process)
        ]
        try:
            found = train(group, epochs)
            found["replay_peak"] = max(_peak(process.pid) for process in others)
            group.send("end")
            if any([process.wait(120) for process in others]):
                raise Failure("a replayed rank ended with an error; it is above")
        finally:
            for process in others:
                process.kill()
    return found


def ranks_of_a_process(world: int) -> int:
    """How many ranks one process replays: each has 4 descriptors for every peer, and is to have room for some more."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    processes = -(-(world - 1) * (4 * world + 64) // hard)
    return -(-(world - 1) // processes)


def _peak(process: int) -> int:
    """The largest resident size of a process so far."""
    with open(f"/proc/{process}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))


def check(arguments: argparse.Namespace) -> None:
    """Four real workers against one."""
    rows = []
    with scale.scratch(arguments.scratch, 1 << 30) as folder:
        parts = small(folder, 4, arguments.nodes, arguments.nodes * 29)
        for model in arguments.models:
            way = arguments.way
            script = record(folder, model, way, 1)
            with common.Group("worker.py", ["sar", parts, "pool", model], 4, 1, {"BENCH_WAY": way}) as group:
                real = train(group, 1)
            found = replayed(parts, 4, model, way, 1, script, 1)
            for word in ("growth", "total"):
                rows.append([model, word, *(size(x["memory"][word]) for x in (real, found))])
            for name, counts in real["links"].items():
                rows += [[model, f"{name} {k}", n, found["links"][name][k]] for k, n in counts.items()]
    print(table(["model", "", "4 real workers", "3 replayed"], rows))


def run(arguments: argparse.Namespace) -> None:
    """One worker of the paper's graph, for each model."""
    world, cut = arguments.parts, None if arguments.random else arguments.cut
    if arguments.autocast:
        os.environ["BENCH_AUTOCAST"] = "1"  # for the workers
    with scale.scratch(arguments.scratch, 10 << 30) as folder:
        scripts = {model: record(folder, model, arguments.way, arguments.epochs) for model in arguments.models}
        with stage("generating the part"):
            words = [folder, world, cut, arguments.shrink]
            made = json.loads(_apart(f"import json, paper_graph; print(json.dumps(paper_graph.part(*{words!r})))"))
        for model, script in scripts.items():
            plan = planned(made, world, layers_of(model, arguments.way), 2 if arguments.autocast else 4)
            if plan["peak"] + scale.IDLE > scale.available():
                raise Failure(f"this takes about {size(plan['peak'])}, and {size(scale.available())} are available")
            with stage(f"{model}, {arguments.way}, one worker of {world}"):
                parts = os.path.join(folder, "paper.json")
                found = replayed(parts, world, model, arguments.way, arguments.epochs, script, arguments.threads)
            report(arguments, model, found | {"part": made, "plan": plan, "machine": common.machine()})


def _apart(code: str) -> str:
    """Runs code in a process of its own, whose memory is then gone."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=common.HERE, check=True, stdout=subprocess.PIPE, text=True).stdout


def layers_of(model: str, way: str) -> list[str]:
    """The layers that ``sar plan`` is told; those of ``remat`` it does not know, and says what plain ones take."""
    return EFFICIENT if way == "efficient" and model == "gat128" else LAYERS[model]


def planned(made: dict, world: int, layers: list[str], item: int) -> dict[str, int]:
    """What ``sar plan`` says of the worker, whose peers' files are not there. ``item``: bytes of a number of a row."""
    features = made["nodes"] * (item * paper_graph.FEATURES + 8 + 1)
    part = estimate.Part(made["nodes"], made["edges"], made["halo"], features)
    window = abi.default_window(world, made["nodes"])
    width = paper_graph.FEATURES
    step = training_step(costs_of(layers, width), width, item, world)
    return estimate.estimate_worker(0, part, made["halo"], world, step, 4, window, 2)._asdict()


def report(arguments: argparse.Namespace, model: str, found: dict[str, Any]) -> None:
    """The figures as a table, and all of them as JSON."""
    made, memory, plan, world = found["part"], found["memory"], found["plan"], arguments.parts
    parts = "random parts" if arguments.random else f"{made['cut']:.0%} of edges cut"
    rows = [
        ["workers", world],
        ["nodes, in-edges of the worker", f"{made['nodes']:,}, {made['edges']:,}"],
        ["halo rows", f"{made['halo']:,} ({parts})"],
        ["memory in an epoch, beside an idle worker's", size(memory["total"])],
        ["resident, all", size(memory["resident"])],
        ["while loading and constructing", size(memory["loading"])],
        ["sar plan", f"{size(plan['peak'])} (measured {memory['total'] / plan['peak']:.2f} of it)"],
        ["sent in an epoch", f"{size(found['sent'])} ({found['sent'] / plan['sent_per_epoch']:.2f} of sar plan's)"],
        ["epoch, wall clock on all cores with the replay", f"{min(found['seconds']):.1f} s"],
        ["epoch, the worker's processor time", f"{found['processor']:.1f} s"],
        ["memory of the replay, its largest process", size(found["replay_peak"])],
    ]
    theirs = PAPER.get((model, world))
    if theirs and arguments.shrink == 1:
        share = memory["resident"] / theirs / 1e9
        rows.append(["the paper's package", f"{theirs} GB (resident here {share:.2f} of it)"])
    print(table([f"{model}, {arguments.way}", ""], rows))
    kind = "random" if arguments.random else "cut"
    name = model if arguments.way == "plain" else f"{model}-{arguments.way}"
    kind += "-bf16" if arguments.autocast else ""
    common.save(f"paper-{name}-{world}-{kind}" + (f"-{arguments.shrink}" if arguments.shrink > 1 else ""), found)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--scratch", help="directory for the graph (default: the system's for temporary files)")
    p.add_argument("--way", choices=WAYS, default="plain", help="of the model: model.WAYS (plain)")
    commands = p.add_subparsers(required=True)
    c = commands.add_parser("check", help="4 real workers against one real and three replayed ones")
    c.add_argument("--nodes", type=int, default=40_000)
    c.add_argument("--models", nargs="+", choices=LAYERS, default=list(LAYERS))
    c.set_defaults(run=check)
    r = commands.add_parser("run", help="one worker of the paper's graph")
    r.add_argument("--parts", type=int, default=64)
    r.add_argument("--models", nargs="+", choices=LAYERS, default=list(LAYERS))
    r.add_argument("--cut", type=float, default=0.2, help="share of in-edges that begin in other parts (0.2)")
    r.add_argument("--random", action="store_true", help="parts at random")
    r.add_argument("--shrink", type=int, default=1, help="a graph with so many times fewer nodes and edges")
    r.add_argument("--epochs", type=int, default=1, help="after the first one")
    r.add_argument("--autocast", action="store_true", help="under torch.autocast in bfloat16, on features in bfloat16")
    r.add_argument("--threads", type=int, default=max(1, (os.cpu_count() or 1) // 2), help="of worker and of replay")
    r.set_defaults(run=run)
    arguments = p.parse_args()
    try:
        arguments.run(arguments)
    except Failure as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
