"""What scripts of PyG do beside calling layers: drawing edges, explaining predictions, walks."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import torch
from torch import Tensor
from torch_geometric.data.data import BaseData

from sar.graph.edge_index.index import SplitEdgeIndex
from sar.graph.edge_index.lifted import LiftedTensor
from sar.graph.edge_index.numbers import SplitNumbers
from sar.graph.subgraph import edges_kept_at_random

__all__ = ["METHODS", "dropout_edge", "needs_whole_graph"]


def _any_split(args: Any, kwargs: Any) -> bool:
    """Whether an argument is the edge index of a split graph, a dictionary of them, a row of one, or data with one."""
    found: List[Any] = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, BaseData):
            found += [store.get("edge_index") for store in value.edge_stores]
        else:
            found += value.values() if isinstance(value, dict) else [value]
    return any(isinstance(value, SplitNumbers) for value in found)


def dropout_edge(
    original: Any, edge_index: Any, p: float = 0.5, force_undirected: bool = False, training: bool = True
) -> Tuple[Tensor, Tensor]:
    """The same edges stay whatever the number of workers, where the partition has original ids. Collective."""
    if not isinstance(edge_index, SplitEdgeIndex):
        found: Tuple[Tensor, Tensor] = original(edge_index, p, force_undirected, training)
        return found
    if not 0 <= p <= 1:
        raise ValueError(f"Dropout probability has to be between 0 and 1 (got {p})")
    if force_undirected:
        raise NotImplementedError(
            "dropout_edge(force_undirected=True) on a graph split over workers: the edges of one worker end at its own "
            "nodes, and their reverse edges are elsewhere. Leave force_undirected out, and edges stay one by one"
        )
    if not training or p == 0:
        return edge_index, torch.ones(edge_index.edges.num_edges, dtype=torch.bool)
    mask = edges_kept_at_random(edge_index.edges.relation, p)
    chosen: Tensor = edge_index[:, mask]
    return chosen, mask


def needs_whole_graph(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Refuses a function for split graphs."""
    if _any_split(args, kwargs):
        raise NotImplementedError(
            f"{original.__module__}.{original.__qualname__} needs the edges of the whole graph, which are on several "
            "workers: apply it before the graph is partitioned"
        )
    return original(*args, **kwargs)


def _has_self_loops(original: Any, store: Any) -> bool:
    index = store.get("edge_index")
    if not isinstance(index, SplitEdgeIndex):
        return bool(original(store))
    return index.edges.square and not index.edges.loops().none


def _explain_message(original: Any, layer: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(inputs, LiftedTensor):
        raise NotImplementedError(EXPLAIN)
    return original(layer, inputs, *args, **kwargs)


def _explainer(original: Any, explainer: Any, *args: Any, **kwargs: Any) -> Any:
    if _any_split(args, kwargs):
        raise NotImplementedError(EXPLAIN)
    return original(explainer, *args, **kwargs)


def _walks(original: Any, model: Any, *args: Any, **kwargs: Any) -> None:
    if _any_split(args, kwargs):
        raise NotImplementedError(
            f"{type(model).__name__} draws random walks over the whole graph, whose edges are on several workers: "
            "train it before the graph is partitioned, and give its embeddings as columns of nodes"
        )
    original(model, *args, **kwargs)


EXPLAIN = (
    "explanations of predictions weigh the messages of single edges, and a graph split over workers holds none: save "
    "the model's state_dict, and explain it on one process, on the subgraph around a node "
    "(torch_geometric.utils.k_hop_subgraph)"
)

METHODS: Dict[str, Callable[..., Any]] = {
    "nn.MessagePassing.explain_message": _explain_message,
    "explain.Explainer.__call__": _explainer,
    "data.storage.EdgeStorage.has_self_loops": _has_self_loops,
    "transforms.RandomLinkSplit.forward": needs_whole_graph,
    "nn.Node2Vec.__init__": _walks,
    "nn.MetaPath2Vec.__init__": _walks,
}
"""Methods of torch_geometric, each replaced by a function of the original and its arguments."""
