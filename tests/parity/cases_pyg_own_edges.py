"""Messages that look at several edges."""

from __future__ import annotations

import warnings
from typing import Any, Callable

import torch
from torch import nn

import sar
from tests.parity.cases_pyg import graph_index

IN = 4


def _layer(function: Callable[[torch.Tensor], torch.Tensor], aggr: str = "mean") -> Any:
    from torch_geometric.nn import MessagePassing

    class Own(MessagePassing):
        def forward(self, x: Any, edge_index: Any) -> Any:
            return self.propagate(edge_index, x=x)

        def message(self, x_j: Any) -> Any:
            return function(x_j)

    return Own(aggr=aggr)


MIXED: dict[str, Callable[[Any], Any]] = {
    "mean": lambda m: m - m.mean(0),
    "sum": lambda m: m / (m.abs().sum() + 1),
    "amax": lambda m: m - torch.amax(m, dim=0, keepdim=True),
    "max": lambda m: m - m.max(),
    "softmax": lambda m: m.softmax(dim=0),
    "sort": lambda m: m.sort(-2)[0],
    "std": lambda m: m / (m.std(dim=(0, 1)) + 1),
    "norm": lambda m: m / (m.norm() + 1),
    "batch_norm": nn.BatchNorm1d(IN),
}
"""By the name of the function that mixes edges."""
ALONE: list[Callable[[Any], Any]] = [
    lambda m: m - m.mean(-1, keepdim=True),
    lambda m: m.softmax(-1) * m.norm(dim=-1, keepdim=True) + m.amax(1, keepdim=True),
    lambda m: torch.max(m, -m).sort(-1)[0],
    lambda m: m.unsqueeze(1).expand(-1, 3, -1).max(dim=1)[0],
    nn.BatchNorm1d(IN).eval(),
    sar.convert_batchnorm(nn.BatchNorm1d(IN)),
]
"""Messages that treat each edge by itself, or look at those of all workers."""


def warned(part: dict[str, Any]) -> dict[str, list[str]]:
    """What is warned of, by the name of the message."""
    index = graph_index(part)
    x = torch.randn(index.edges.rows("v"), IN)
    found = {}
    for name, function in [*MIXED.items(), *((str(n), function) for n, function in enumerate(ALONE))]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _layer(function)(x, index)
        found[name] = [str(w.message) for w in caught if w.category is RuntimeWarning]
    return found
