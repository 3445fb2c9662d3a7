"""Features in memory and mapped, with and without a memory limit that is a third of them: losses, time, memory.

One worker, SAGE of three layers on a random graph. Every run is a process of its own. The limit is a control group's,
which counts the page cache too, so it needs root. It counts what the worker takes once libraries are loaded, and runs
under it begin with the file dropped from the cache. Two thirds of the features then fit nowhere, and each pass over
them reads the disk. Beside each epoch is what it read, and how long that takes if nothing else is done: the least that
an epoch can take. The rate of the disk is measured before and after each run under the limit; the higher one counts.

    python bench/mapped.py [--nodes 98304] [--features 4096] [--hidden 64] [--epochs 3] [--ratio 3] [--model sage]
        [--format sar] [--scratch DIR] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np

from memory_limit import Group, enter, limited

CLASSES = 16
NAME = "features" + 29 * "_"
"""A name that has the features begin at a multiple of 64 bytes of DGL's file, so that they are mapped as they lie."""


def make(folder: str, nodes: int, features: int, degree: int, form: str) -> tuple[str, str]:
    """A random graph in one part; returns its description and the file of its features."""
    from sar.partitioning.dataset import Dataset
    from sar.partitioning.parts import PartsOptions, write_parts

    rng = np.random.default_rng(0)
    path = os.path.join(folder, "g.npz")
    x = rng.standard_normal((nodes, features), dtype=np.float32)
    edges = rng.integers(0, nodes, (2, nodes * degree), dtype=np.int32)
    np.savez(path, **{NAME: x, "edge_index": edges, "labels": rng.integers(0, CLASSES, nodes)})
    del x
    with Dataset(path) as dataset:
        write_parts(dataset, np.zeros(nodes, np.int32), 1, folder, PartsOptions("g", "none", form))
    os.remove(path)
    files = (os.path.join(at, file) for at, _, names in os.walk(os.path.join(folder, "part0")) for file in names)
    return os.path.join(folder, "g.json"), max(files, key=os.path.getsize)


def drop(path: str) -> None:
    """Takes a file out of the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def disk_rate(path: str) -> float:
    """Bytes a second of reading a file that is not in the cache, in pieces of 8 MiB."""
    drop(path)
    begin = time.perf_counter()
    with open(path, "rb", buffering=0) as file:
        while file.read(8 << 20):
            pass
    return os.path.getsize(path) / (time.perf_counter() - begin)


def bytes_read() -> int:
    """What this process had the disk read so far."""
    with open("/proc/self/io", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("read_bytes"))


def work(path: str, features: str, model: str, hidden: int, epochs: int, group: str) -> None:
    """Trains and prints what was found, as JSON. ``group``: the control group to enter, or nothing."""
    import torch
    import torch.nn.functional as F

    import sar
    from sar.distributed.network import free_port

    sar.initialize_comms(0, 1, "127.0.0.1", "sar", master_port_number=free_port())
    warm = torch.nn.Linear(4096, hidden)  # first products and steps load what stays
    warm(torch.ones(3100, 4096)).sum().backward()
    torch.optim.Adam(warm.parameters()).step()
    del warm
    if group:
        enter(group)
    sar.Config.features = features
    begin = time.perf_counter()
    data = sar.load_dgl_partition_data(path, 0)
    loaded = time.perf_counter() - begin
    graph = sar.construct_full_graph(data)
    x, y = data.node_features[f"_N/{NAME}"], data.node_features["_N/labels"]
    data.node_features.clear()
    torch.manual_seed(0)
    widths = [x.shape[1], hidden, hidden, CLASSES]
    convs = [
        sar.nn.GATConv(i, o, 1, allow_zero_in_degree=True) if model == "gat" else sar.nn.SAGEConv(i, o, "mean")
        for i, o in zip(widths, widths[1:])
    ]
    layers = torch.nn.ModuleList(convs)
    optimizer = torch.optim.Adam(layers.parameters(), 1e-3)
    losses, seconds, read, system = [], [], [], []
    for _ in range(epochs):
        begin, before, kernel = time.perf_counter(), bytes_read(), os.times().system
        h = x
        for layer in layers:
            h = layer(graph, h if h is x else F.relu(h)).flatten(1)
        loss = F.cross_entropy(h, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
        read.append(bytes_read() - before)
        system.append(os.times().system - kernel)
        losses.append(loss.item().hex())
    own = {}
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(("RssAnon", "RssFile")):
                own[line.split(":")[0]] = int(line.split()[1]) << 10
    found = {"losses": losses, "load": loaded, "seconds": seconds, "read": read, "system": system}
    found.update(purposes=sar.memory_stats(), **own)
    found["faults"] = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    print(json.dumps(found))


def run(given: argparse.Namespace, path: str, features: str, group: Group | None = None) -> dict:
    """One process; ``{"status": code}`` where it was killed."""
    words = [sys.executable, __file__, "--work", path, "--in", features, "--model", given.model]
    words += ["--hidden", str(given.hidden), "--epochs", str(given.epochs)]
    words += ["--group", "" if group is None else group.folder]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=False)
    found = json.loads(done.stdout) if done.returncode == 0 else {}
    return {"status": done.returncode, "group_peak": None if group is None else group.most(), **found}


def bench(given: argparse.Namespace, folder: str) -> dict:
    """All runs."""
    path, file = make(folder, given.nodes, given.features, given.degree, given.format)
    size = given.nodes * given.features * 4
    limit = size // given.ratio
    found: dict = {"features": size, "limit": limit, "disk": [disk_rate(file)]}
    found["memory"] = run(given, path, "memory")
    found["mapped"] = run(given, path, "mapped")
    try:
        for name in ("mapped", "memory"):
            with limited(limit) as group:
                drop(file)
                found[f"{name}, limited"] = run(given, path, name, group)
            found["disk"].append(disk_rate(file))
    except OSError as error:
        print(f"without a limit: no control group can be made here ({error})", file=sys.stderr)
    return found


def show(found: dict) -> None:
    rates = " ".join(f"{rate / 2**20:.0f}" for rate in found["disk"])
    print(
        f"features {found['features'] / 2**20:.0f} MiB, limit {found['limit'] / 2**20:.0f} MiB, disk {rates} MiB/s "
        "before, between and after the runs under the limit"
    )
    base = found["memory"]
    before = np.median(base["seconds"][1:])
    for name in ("memory", "mapped", "mapped, limited", "memory, limited"):
        one = found.get(name)
        if one is None:
            continue
        if one["status"]:
            print(f"{name}: ended with {one['status']}")
            continue
        epoch, read = np.median(one["seconds"][1:]), np.median(one["read"][1:])
        print(
            f"{name}: load {one['load']:.1f} s, epoch {epoch:.2f} s ({epoch / before:.2f}x), losses "
            f"{'the same' if one['losses'] == base['losses'] else 'differ'}, anonymous {one['RssAnon'] / 2**20:.0f} MiB"
            + (f", most in the group {one['group_peak'] / 2**20:.0f} MiB" if one["group_peak"] else "")
        )
        if name == "mapped, limited":
            alone = read / max(found["disk"])
            print(
                f"    an epoch reads {read / 2**20:.0f} MiB, {read / found['features']:.2f} times the features: "
                f"{alone:.2f} s of the disk alone, so that none takes less than {max(alone, before) / before:.2f}x; "
                f"{np.median(one['system'][1:]):.2f} s of a processor are the kernel's"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description="Features in memory and mapped")
    for name, default in (
        ("nodes", 98304),
        ("features", 4096),
        ("hidden", 64),
        ("degree", 10),
        ("epochs", 3),
        ("ratio", 3),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--format", choices=("dgl", "sar"), default="dgl")
    parser.add_argument("--model", choices=("sage", "gat"), default="sage")
    parser.add_argument("--scratch")
    parser.add_argument("--json", help="write what was found there")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--group", help=argparse.SUPPRESS)
    parser.add_argument("--in", dest="place", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.work, given.place, given.model, given.hidden, given.epochs, given.group)
        return
    with tempfile.TemporaryDirectory(dir=given.scratch) as folder:
        found = bench(given, folder)
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
    show(found)


if __name__ == "__main__":
    main()
