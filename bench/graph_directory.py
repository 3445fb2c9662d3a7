"""Writes a large random graph as a graph directory, in blocks: the graph of scale_graph.py, without repeated edges.

    python bench/graph_directory.py OUT NODES EDGES [--skew 2] [--features 0] [--seed 0]

EDGES counts both directions; repeated edges are dropped, so a few fewer are written.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable

import numpy as np

import scale_graph

BLOCK = 1 << 23  # entries that are sorted at a time


def write(
    path: str,
    nodes: int,
    edges: int,
    *,
    features: int = 0,
    classes: int = 40,
    skew: float = 2.0,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Makes the directory ``path``. It holds 4 bytes an edge, and 16 a node, while it works.

    :return: the number of edges
    """
    relation = os.path.join(path, "edges", "_N___E___N")
    table = os.path.join(path, "nodes", "_N")
    os.makedirs(relation)
    os.makedirs(table)
    count = edges // 2
    ends = np.empty((2, count), np.int32)
    at = 0
    for u, v in scale_graph.pairs(nodes, count, skew, seed):
        ends[:, at : at + len(u)] = u, v
        at += len(u)
        progress(at, 3 * count)
    degrees = np.bincount(ends[0], minlength=nodes) + np.bincount(ends[1], minlength=nodes)
    before = np.concatenate([[0], np.cumsum(degrees)])
    indptr, total, lo = np.zeros(nodes + 1, np.int64), 0, 0
    source = os.path.join(relation, "source.npy")
    with open(source + ".raw", "wb") as raw:
        while lo < nodes:
            hi = max(lo + 1, int(np.searchsorted(before, before[lo] + BLOCK, "right")) - 1)
            keys = [_keys(ends, lo, hi, nodes, *way) for way in ((0, 1), (1, 0))]
            block = np.unique(np.concatenate(keys))
            (block % nodes).astype(np.int32).tofile(raw)
            indptr[lo + 1 : hi + 1] = total + np.cumsum(np.bincount(block // nodes - lo, minlength=hi - lo))
            total, lo = total + len(block), hi
            progress(count + 2 * int(before[lo]) // 2, 3 * count)
    del ends
    np.save(os.path.join(relation, "indptr.npy"), indptr)
    _with_header(source + ".raw", source, (total,), np.int32)
    made = {"indptr": _entry(path, os.path.join(relation, "indptr.npy"), "int64", [nodes + 1])}
    made["source"] = _entry(path, source, "int32", [total])
    described = {}
    if features:
        described = _features(path, table, nodes, features, classes, seed)
    name = os.path.basename(os.path.abspath(path))
    edge_type = {"type": ["_N", "_E", "_N"], "count": total, "symmetric": True, **made, "features": {}}
    node_types = {"_N": {"count": nodes, "ids": None, "features": described}}
    description = {"format": "SAR graph 1", "name": name, "node_types": node_types, "edge_types": [edge_type]}
    with open(os.path.join(path, "graph.json"), "w", encoding="utf-8") as file:
        json.dump(description, file, indent=1)
    return total


def _keys(ends: np.ndarray, lo: int, hi: int, nodes: int, into: int, out: int) -> np.ndarray:
    """``destination * nodes + source`` of the pairs whose end ``into`` is in [lo, hi)."""
    found = []
    for at in range(0, ends.shape[1], BLOCK):
        here = ends[into, at : at + BLOCK]
        chosen = (here >= lo) & (here < hi)
        found.append(here[chosen].astype(np.int64) * nodes + ends[out, at : at + BLOCK][chosen])
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _features(path: str, table: str, nodes: int, features: int, classes: int, seed: int) -> dict:
    kinds = {"features": ("x", "float32", [nodes, features]), "labels": ("y", "int64", [nodes])}
    kinds |= {name: (name, "uint8", [nodes]) for name in ("train_mask", "test_mask")}
    files = {name: os.path.join(table, f"{name}.npy") for name in kinds}
    arrays = {
        name: np.lib.format.open_memmap(files[name], "w+", np.dtype(dtype), tuple(shape))
        for name, (_, dtype, shape) in kinds.items()
    }
    at = 0
    for run in scale_graph.rows(nodes, features, classes, seed):
        for name, (key, *_) in kinds.items():
            arrays[name][at : at + len(run[key])] = run[key]
        at += len(run["y"])
    return {name: _entry(path, files[name], dtype, shape) for name, (_, dtype, shape) in kinds.items()}


def _with_header(raw: str, path: str, shape: tuple[int, ...], dtype: type) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    with open(path, "wb") as file, open(raw, "rb") as data:
        np.lib.format.write_array_header_1_0(file, header)
        while block := data.read(1 << 24):
            file.write(block)
    os.remove(raw)


def _entry(path: str, file: str, dtype: str, shape: list[int]) -> dict:
    return {"file": os.path.relpath(file, path), "dtype": dtype, "shape": shape}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("nodes", type=int)
    p.add_argument("edges", type=int)
    p.add_argument("--features", type=int, default=0)
    p.add_argument("--skew", type=float, default=2.0)
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    print(write(a.out, a.nodes, a.edges, features=a.features, skew=a.skew, seed=a.seed), "edges")


if __name__ == "__main__":
    main()
