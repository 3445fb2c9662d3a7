"""Negative pairs, and metrics of scores, on a worker."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import torch

import sar
from sar.links import structured as of_edges
from tests.links.cases_fetch import built
from tests.support.worker import numpy, refusal


def original_pairs(index: Any, ids: np.ndarray, everyone: np.ndarray) -> np.ndarray:
    """Both ends of each edge of this worker by original ids."""
    columns, rows = index.numbers()
    return np.stack([everyone[index.graph.column_nodes()[columns].numpy()], ids[rows.numpy()]])


def negatives(
    part: dict[str, Any], ids: np.ndarray, everyone: np.ndarray, seeds: list[int], batch: Any = None, **how: Any
) -> list[np.ndarray]:
    """The pairs of this worker for each seed, by original ids, in the order given.

    :param everyone: original ids of the nodes of all workers
    """
    index = sar.pyg.edge_index(built(part, ids))
    found = []
    for seed in seeds:
        if batch is None:
            made = sar.negative_sampling(index, seed=seed, **how)
        else:
            made = sar.batched_negative_sampling(index, torch.from_numpy(batch), seed=seed, **how)
        assert type(made) is type(index) and made.shape == (2, len(made.numbers()[0]))
        found.append(original_pairs(made, ids, everyone))
    return found


def structured(
    part: dict[str, Any], ids: np.ndarray, everyone: np.ndarray, x: np.ndarray, seeds: list[int], loops: bool
) -> list[np.ndarray]:
    """Triples by original ids, and rows of the third."""
    index, x_own = sar.pyg.edge_index(built(part, ids)), torch.from_numpy(x)
    found = []
    for seed in seeds:
        i, j, k = sar.structured_negative_sampling(index, contains_neg_self_loops=loops, seed=seed)
        assert torch.equal(x_own[k], x_own.index_select(0, k))
        ends = [(x_own[i] * 1).materialize(), (x_own[j] * 1).materialize(), x_own[k]]
        third = everyone[k.numpy()]
        found.append(np.stack([numpy(end[:, 0]) for end in ends] + [third]).astype(np.int64))
    return found


def as_graph(part: dict[str, Any], ids: np.ndarray) -> Any:
    """Given a graph, a graph comes: DGL's way of scoring, and the same by PyG's. The seed is rank 0's."""
    graph = built(part, ids)
    torch.manual_seed(sar.rank())
    other, again = sar.negative_sampling(graph), sar.negative_sampling(graph, seed=3)
    assert type(other) is type(graph) and "h" not in graph.ndata
    z = torch.randn(graph.num_nodes(), 5, dtype=torch.float64, generator=torch.Generator().manual_seed(sar.rank()))
    again.ndata["h"] = z
    again.apply_edges(sar.function.u_dot_v("h", "h", "s"))
    index = sar.negative_sampling(sar.pyg.edge_index(graph), seed=3)
    scores = (z[index[0]] * z[index[1]]).sum(-1)
    both = torch.cat([again.edata["s"].view(-1), scores])  # scores of two graphs, in one tensor
    assert type(both) is torch.Tensor and torch.equal(both[: len(both) // 2], both[len(both) // 2 :])
    return [other.num_edges(), other.num_edges_global(), graph.num_edges_global()]


def wrong(part: dict[str, Any], ids: np.ndarray) -> dict[str, str]:
    index, first = sar.pyg.edge_index(built(part, ids)), sar.rank() == 0
    tried = {
        "nodes": lambda: sar.negative_sampling(index, 7 if first else None),
        "method": lambda: sar.negative_sampling(index, method="quick" if first else "dense"),
        "batch": lambda: sar.batched_negative_sampling(index, torch.from_numpy(ids % 2)),
        "complete": lambda: sar.structured_negative_sampling(complete(part), contains_neg_self_loops=False),
        "no graph": lambda: sar.negative_sampling(torch.zeros(2, 3).long()),
        "PyG's": lambda: __import__("torch_geometric.utils").utils.negative_sampling(index),
        "scores": lambda: sar.link_metrics(torch.full((2,), float("nan") if first else 0.0), torch.zeros(2)),
        "shapes": lambda: sar.link_metrics(torch.zeros(2), torch.zeros(3 if first else 2, 5)),
    }
    with mock.patch.object(of_edges, "_MOST", 20):  # rounds, each of them collective
        return {name: refusal(call) for name, call in tried.items()}


def complete(part: dict[str, Any]) -> Any:
    """A graph of two nodes, which are joined."""
    starts = np.minimum(part["start"], 2) if sar.world_size() > 1 else np.array([0, 2])
    starts[-1] = 2
    own = np.arange(starts[sar.rank()], starts[sar.rank() + 1])
    return sar.pyg.edge_index(built({"start": starts, "src": 1 - own, "dst": own}, own))


def metrics(positive: np.ndarray, negative: np.ndarray, hits: list[int]) -> dict[str, float | None]:
    found: dict[str, float | None] = sar.link_metrics(torch.from_numpy(positive), torch.from_numpy(negative), hits)
    return found


def both_ways(part: dict[str, Any], ids: np.ndarray, z: np.ndarray) -> dict[str, Any]:
    """Scores of edges in the engine, and of pairs by the same and by fetch, with gradients."""
    index = sar.pyg.edge_index(built(part, ids))
    found = {}
    for way in ("engine", "fetch"):
        leaf = torch.from_numpy(z.copy()).requires_grad_()
        pairs = sar.negative_sampling(index, seed=9)
        columns, rows = pairs.numbers()
        if way == "engine":
            scores = (leaf[pairs[0]] * leaf[pairs[1]]).sum(-1)
        else:
            scores = (sar.fetch(leaf, pairs.graph.column_nodes()[columns]) * leaf[rows]).sum(-1)
        torch.sigmoid(scores).log().sum().backward()
        found[way] = [numpy(scores * 1), numpy(leaf.grad)]
    return found
