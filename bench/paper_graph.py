"""Graphs of the shape of ogbn-papers100M as the SAR paper trains on it (111,059,956 nodes, edges in both directions,
128 features, 172 classes): one part of many, made without the whole graph, and small whole ones.

What a part is like: popularity of nodes falls as rank^-1/2, so its most popular node has some tens of thousands of
edges. A share of the in-edges, ``cut``, begins in other parts, any of them alike; the others join popular nodes to one
of their community (4 times in 5) or any. Where a partitioner has cut, the edges between two parts join few nodes of
either: ``READS`` of them read a halo row, as many as METIS leaves on the graph of bench/large.py. In random parts
(``cut`` None) they join any nodes, by their popularity. Halo rows are numbered first among their owner's nodes.
"""

from __future__ import annotations

import json
import os

import numpy as np
import torch

import scale_graph

NODES, EDGES = 111_059_956, 2 * 1_615_685_872
FEATURES, CLASSES = 128, 172
LABELLED = 0.014  # of the nodes: 1.5 M of 111 M have a label
READS = 2.5
SKEW = 2.0


def columns(count: int, seed: int) -> dict[str, np.ndarray]:
    """Node arrays: random features and labels, and a mask of training nodes."""
    rng = np.random.default_rng((seed, 1))
    return {
        "features": rng.standard_normal((count, FEATURES), dtype=np.float32),
        "labels": np.concatenate([[CLASSES - 1], rng.integers(0, CLASSES, count - 1)]),
        "train_mask": rng.random(count) < LABELLED,
    }


def whole(path: str, nodes: int, edges: int, seed: int = 0) -> None:
    """Writes an ``.npz`` for ``sar partition``."""
    u, v = (np.concatenate(ends) for ends in zip(*scale_graph.pairs(nodes, edges // 2, SKEW, seed)))
    made = columns(nodes, seed)
    np.savez(path, edge_index=np.stack([np.concatenate([u, v]), np.concatenate([v, u])]), **made)


def part(folder: str, parts: int, cut: float | None, shrink: int = 1, seed: int = 0) -> dict:
    """Writes part 0 of ``parts`` in DGL's format as ``folder/paper.json``; what it has. The graph has 1/``shrink`` of
    the paper's nodes and edges."""
    import dgl

    starts = np.arange(parts + 1) * (NODES // shrink) // parts
    own, edges = int(starts[1]), EDGES // shrink // parts
    rng = np.random.default_rng((seed, 2))
    remote = int(edges * ((parts - 1) / parts if cut is None else cut))
    number = scale_graph.Numbering(own, seed).number
    local = [np.concatenate(ends) for ends in zip(*scale_graph.pairs(own, (edges - remote) // 2, SKEW, seed))]
    sources, targets = [np.concatenate(local)], [np.concatenate(local[::-1])]
    del local
    halo_ids, halo = [], 0
    for peer, count in enumerate(rng.multinomial(remote, np.ones(parts - 1) / (parts - 1)), start=1):
        pool = int(starts[peer + 1] - starts[peer]) if cut is None else 1 + int(_pool(count))
        at, place = np.unique(_popular(rng, pool, count), return_inverse=True)
        sources.append((own + halo + place).astype(np.int32))
        into = _popular(rng, own, count) if cut is None else _popular(rng, own, pool)[_popular(rng, pool, count)]
        targets.append(number(into).astype(np.int32))
        halo_ids.append(np.arange(starts[peer], starts[peer] + len(at)))
        halo += len(at)
    src, dst = (torch.from_numpy(np.concatenate(ends)) for ends in (sources, targets))
    del sources, targets
    edges = len(src)
    degree = np.bincount(dst.numpy(), minlength=own)
    graph = dgl.graph((src, dst), num_nodes=own + halo)
    del src, dst
    graph.ndata[dgl.NID] = torch.from_numpy(np.concatenate([np.arange(own), *halo_ids]))
    graph.ndata["inner_node"] = (torch.arange(own + halo) < own).to(torch.uint8)
    graph.edata[dgl.EID] = torch.arange(edges)
    graph.edata["inner_edge"] = torch.ones(edges, dtype=torch.uint8)
    os.makedirs(os.path.join(folder, "part0"), exist_ok=True)
    dgl.save_graphs(os.path.join(folder, "part0", "graph.dgl"), [graph])
    del graph
    arrays = {f"_N/{name}": torch.from_numpy(a) for name, a in columns(own, seed).items()}
    dgl.data.utils.save_tensors(os.path.join(folder, "part0", "node_feat.dgl"), arrays)
    dgl.data.utils.save_tensors(os.path.join(folder, "part0", "edge_feat.dgl"), {})
    _describe(os.path.join(folder, "paper.json"), starts, edges)
    return {"nodes": own, "edges": edges, "halo": halo, "cut": remote / edges, "most_in_edges": int(degree.max())}


def _popular(rng: np.random.Generator, nodes: int, count: int) -> np.ndarray:
    """So many ranks of popularity among ``nodes``."""
    return np.minimum((nodes * rng.random(count) ** SKEW).astype(np.int64), nodes - 1)


def _pool(count: int) -> float:
    """Of how many nodes ``count`` draws by popularity meet count / READS different ones."""
    low, high = 1.0, float(count)
    for _ in range(40):
        n = (low + high) / 2
        # node x of n is drawn count * d(sqrt(x / n)) times
        x = (np.arange(1000) + 0.5) / 1000
        met = n * -np.expm1(-count / n * 0.5 / np.sqrt(x)).mean()
        low, high = (n, high) if met < count / READS else (low, n)
    return low


def _describe(path: str, starts: np.ndarray, edges: int) -> None:
    parts = len(starts) - 1
    description = {
        "graph_name": "paper",
        "num_nodes": int(starts[-1]),
        "num_edges": edges * parts,
        "part_method": "generated",
        "num_parts": parts,
        "halo_hops": 1,
        "node_map": {"_N": [[int(a), int(b)] for a, b in zip(starts, starts[1:])]},
        "edge_map": {"_N:_E:_N": [[edges * p, edges * (p + 1)] for p in range(parts)]},
        "ntypes": {"_N": 0},
        "etypes": {"_N:_E:_N": 0},
    }
    for p in range(parts):
        files = ("node_feats", "node_feat.dgl"), ("edge_feats", "edge_feat.dgl"), ("part_graph", "graph.dgl")
        description[f"part-{p}"] = {key: f"part{p}/{name}" for key, name in files}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(description, file)
