"""What nodes and their neighbours are like: degree profiles and homophily."""

from __future__ import annotations

from typing import Any, Tuple

import torch
from torch import Tensor

from sar.distributed.agreement import all_or_none, largest_of_all, summed
from sar.graph.edge_index.index import edge_index
from sar.graph.edge_index.rows import lift
from sar.graph.edge_tensor.tensor import values
from sar.graph.queries import edge_ends
from sar.links.edges import graph_of

from .adjacency import Adjacency

METHODS = ("edge", "node", "edge_insensitive")


@torch.no_grad()
def degree_profile(adjacency: Adjacency) -> Tensor:
    """See :func:`sar.transforms.degree_profile`: float64."""
    degrees = adjacency.degrees(out=True)
    least, most, mean, square = adjacency.over_out_edges(degrees).unbind(1)
    deviation = (square - mean.square()).clamp_(min=0).sqrt_()
    return torch.stack([degrees, least, most, mean, deviation], 1)


@torch.no_grad()
def homophily(edges: Any, y: Tensor, method: str) -> float:
    """See :func:`sar.transforms.homophily`."""

    def check() -> Any:
        graph = graph_of(edges)
        own = graph._relations[0].num_dst
        flat = y.squeeze(-1) if y.dim() > 1 else y
        if method not in METHODS:
            raise ValueError(f"homophily: method is {method!r}; give one of {', '.join(map(repr, METHODS))}")
        if flat.shape != (own,):
            raise ValueError(f"homophily: a label for each of this worker's {own} nodes is wanted, not {list(y.shape)}")
        if method == "edge_insensitive" and (flat.is_floating_point() or (own and int(flat.min()) < 0)):
            raise ValueError("homophily: classes are whole numbers from 0 for method='edge_insensitive'")
        return graph, flat

    graph, flat = all_or_none("sar.transforms.homophily", check)
    relation = graph._relations[0]
    rows = edge_ends(relation)[1]
    same = (values(lift(flat, 0, edge_index(graph).end(0))) == flat[rows]).double()
    if method == "edge":
        return _quotient(same.sum(), len(same))
    if method == "node":
        degrees = relation.degrees(out=False).clamp(min=1)
        return _quotient((torch.bincount(rows, same, minlength=len(flat)) / degrees).sum(), len(flat))
    return _insensitive(same, rows, flat.long())


def _quotient(total: Tensor, count: int) -> float:
    """Of sums over all workers; NaN where there is nothing."""
    total, rows = summed(torch.stack([total, torch.tensor(float(count), dtype=torch.float64)]))
    return float(total / rows)


def _insensitive(same: Tensor, rows: Tensor, y: Tensor) -> float:
    count = largest_of_all(int(y.max()) + 1 if len(y) else 0)
    if count < 2:
        raise ValueError(f"homophily: method='edge_insensitive' compares classes, and there is {count}")
    columns: Tuple[Tensor, ...] = (
        torch.bincount(y[rows], same, minlength=count),
        torch.bincount(y[rows], minlength=count).double(),
        torch.bincount(y, minlength=count).double(),
    )
    agree, ends, nodes = summed(torch.stack(columns))
    return float((agree / ends.clamp(min=1) - nodes / nodes.sum()).clamp(min=0).sum() / (count - 1))
