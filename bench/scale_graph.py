"""Generator of large random graphs, written in pieces: edges and features are never held as a whole.

Nodes have communities and popularity: an edge joins a popular node to one of its own community (4 times in 5) or to any
popular node, and goes both ways. Popularity falls as rank^(1/skew - 1): skew 1 is even, 2 gives the most popular of 4 M
nodes some 25,000 of 100 M edges. A hub takes in-edges beside that. Numbers of nodes say nothing about either, and edges
come in no order, so nothing is easier here than in a real graph.

    python bench/scale_graph.py OUT.npz NODES EDGES [--features 128] [--skew 2] [--hub 0] [--seed 0]
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator

import numpy as np

COMMUNITY = 1024  # nodes
CHUNK = 1 << 20  # edges or rows at a time
INSIDE = 0.8  # edges within a community


class Numbering:
    """Rank of popularity to number of a node and back: multiplication modulo the number of nodes, no table."""

    def __init__(self, nodes: int, seed: int) -> None:
        self.nodes = nodes
        factor = int(np.random.default_rng((seed, 1)).integers(nodes // 3 + 1, max(nodes // 3 + 2, nodes)))
        while math.gcd(factor, nodes) != 1:
            factor += 1
        self.factor, self.inverse = factor, pow(factor, -1, nodes) if nodes > 1 else 0

    def number(self, rank: np.ndarray) -> np.ndarray:
        return rank * self.factor % self.nodes

    def rank(self, number: np.ndarray) -> np.ndarray:
        return number * self.inverse % self.nodes


def pairs(nodes: int, count: int, skew: float, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Runs of ``count`` pairs of node numbers in all, int32."""
    numbering = Numbering(nodes, seed)
    communities = max(1, nodes // COMMUNITY)
    largest = nodes // communities
    for at in range(0, count, CHUNK):
        n = min(CHUNK, count - at)
        rng = np.random.default_rng((seed, 2, at))
        u = np.minimum((nodes * rng.random(n) ** skew).astype(np.int64), nodes - 1)
        v = np.minimum((nodes * rng.random(n) ** skew).astype(np.int64), nodes - 1)
        near = (largest * rng.random(n) ** skew).astype(np.int64) * communities + u % communities
        v = np.where((rng.random(n) < INSIDE) & (near < nodes), near, v)
        yield numbering.number(u).astype(np.int32), numbering.number(v).astype(np.int32)


def rows(nodes: int, features: int, classes: int, seed: int) -> Iterator[dict[str, np.ndarray]]:
    """Runs of rows: labels follow communities, features labels."""
    numbering = Numbering(nodes, seed)
    communities = max(1, nodes // COMMUNITY)
    prototype = np.random.default_rng((seed, 3)).standard_normal((classes, features), dtype=np.float32)
    step = max(1, CHUNK // max(1, features // 16))
    for at in range(0, nodes, step):
        number = np.arange(at, min(at + step, nodes))
        rng = np.random.default_rng((seed, 4, at))
        label = numbering.rank(number) % communities % classes
        split = rng.random(len(number))
        x = rng.standard_normal((len(number), features), dtype=np.float32)
        x += 0.5 * prototype[label]
        yield {"x": x, "y": label, "train_mask": split < 0.5, "test_mask": split >= 0.75}


def write(
    path: str,
    nodes: int,
    edges: int,
    *,
    features: int = 128,
    classes: int = 40,
    skew: float = 2.0,
    hub: int = 0,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Writes an ``.npz`` for ``sar partition``: edge_index int32 ``[2, edges]``, x float32, y int64, masks bool.

    :param hub: of the edges, how many end in one node, from nodes in turn
    """
    count = (edges - hub) // 2
    hub = edges - 2 * count
    total, done = 3 * count + nodes, 0
    with tempfile.TemporaryDirectory(prefix="scale-", dir=os.path.dirname(path) or ".") as scratch:
        one, other = (os.path.join(scratch, name) for name in ("one", "other"))
        with open(one, "wb") as first, open(other, "wb") as second:
            for u, v in pairs(nodes, count, skew, seed):
                u.tofile(first)
                v.tofile(second)
                done += len(u)
                progress(done, total)
        center = int(Numbering(nodes, seed).number(np.array(0)))
        around = (np.arange(at, min(at + CHUNK, hub)) % nodes for at in range(0, hub, CHUNK))
        to_hub = [around, (np.full(min(CHUNK, hub - at), center) for at in range(0, hub, CHUNK))]
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            with _member(archive, "edge_index", np.int32, (2, edges)) as file:
                for way, last in zip([(one, other), (other, one)], to_hub):
                    for source in way:
                        for run in _runs(source):
                            file.write(run)
                            done += len(run) // 8
                            progress(done, total)
                    for run in last:
                        file.write(run.astype(np.int32).tobytes())
            shapes = {"x": (np.float32, (nodes, features)), "y": (np.int64, (nodes,))}
            shapes.update({name: (np.bool_, (nodes,)) for name in ("train_mask", "test_mask")})
            for name, (dtype, shape) in shapes.items():
                with _member(archive, name, dtype, shape) as file:
                    for run in rows(nodes, features if name == "x" else 1, classes, seed):
                        file.write(np.ascontiguousarray(run[name], dtype).data)
                        if name == "x":
                            done += len(run[name])
                            progress(done, total)


def _member(archive: zipfile.ZipFile, name: str, dtype: type, shape: tuple[int, ...]):
    """An array of the archive, to be written as bytes."""
    file = archive.open(zipfile.ZipInfo(name + ".npy"), "w", force_zip64=True)
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file


def _runs(path: str) -> Iterable[bytes]:
    with open(path, "rb") as file:
        yield from iter(lambda: file.read(4 * CHUNK), b"")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("nodes", type=int)
    p.add_argument("edges", type=int)
    p.add_argument("--features", type=int, default=128)
    p.add_argument("--skew", type=float, default=2.0)
    p.add_argument("--hub", type=int, default=0)
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    write(a.out, a.nodes, a.edges, features=a.features, skew=a.skew, hub=a.hub, seed=a.seed)


if __name__ == "__main__":
    main()
