"""Small things that scripts of PyG do: results as they lie in memory, a scatter of their own, refusals."""

from __future__ import annotations

import inspect
from typing import Any, Callable

import numpy as np
import torch
from torch import nn

import sar
from tests.parity import cases_pyg_hetero
from tests.support.worker import build, numpy, refusal, tensor

WIDTH = 4


def along_second(edges: Any, x: torch.Tensor) -> torch.Tensor:
    """GCN over nodes in dimension 1, and what a script that looks at memory sees of it."""
    from torch_geometric.nn import GCNConv

    torch.manual_seed(5)
    layer = GCNConv(WIDTH, 3, node_dim=1).to(x.dtype)
    out = layer(torch.stack([x, 2 * x]), edges)
    assert out.is_contiguous()
    out.view(-1)
    return out[0] + out[1]


def own_scatter(how: str, kept: bool = False) -> Callable[[Any, torch.Tensor], torch.Tensor]:
    """A layer that scatters by itself, without the number of nodes. ``kept``: by PyG's function itself, which a script
    has kept since before it was replaced."""

    def run(edges: Any, x: torch.Tensor) -> torch.Tensor:
        from torch_geometric.nn import MessagePassing
        from torch_geometric.utils import scatter

        class Own(MessagePassing):
            def forward(self, x: torch.Tensor, edge_index: Any) -> torch.Tensor:
                return self.propagate(edge_index, x=x)

            def message(self, x_j: torch.Tensor) -> torch.Tensor:
                return x_j.tanh()

            def aggregate(self, inputs: Any, index: Any) -> torch.Tensor:
                function = inspect.unwrap(scatter) if kept else scatter
                return function(inputs, index, dim=self.node_dim, reduce=how)

        return Own()(x, edges)

    return run


SAME: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "node_dim": along_second,
    **{f"scatter {how}": own_scatter(how) for how in ("sum", "mean", "max")},
    **{f"scatter {how}, kept": own_scatter(how, kept=True) for how in ("sum", "mean")},
}


def same(name: str, edges: Any, x: torch.Tensor, grad: np.ndarray) -> dict[str, Any]:
    """Result and gradient."""
    out = SAME[name](edges, x)
    out.backward(torch.from_numpy(grad)[: len(out), : out.shape[1]])
    return numpy({"out": out, "grad": x.grad})


def on_worker(part: dict[str, Any], name: str, x: np.ndarray, grad: np.ndarray) -> dict[str, Any]:
    rows = tensor(x, True)
    assert rows is not None
    return same(name, sar.pyg.edge_index(build(part)), rows, grad)


def refusals(part: dict[str, Any], hetero: dict[str, Any]) -> dict[str, str]:
    """What is refused, and what it says."""
    from torch_geometric import nn as pyg

    graph = build(part)
    edges, x = sar.pyg.edge_index(graph), torch.randn(graph.num_nodes(), WIDTH)
    layers = {"SAGEConv": pyg.SAGEConv(WIDTH, 2), "GCNConv": pyg.GCNConv(WIDTH, 2), "GATConv": pyg.GATConv(WIDTH, 2)}
    loss = {name: lambda t, f=layer: f(t, edges).square().sum(0) for name, layer in layers.items()}
    wrong: dict[str, Callable[[], Any]] = {
        **{
            f"vectorized {name}": lambda f=f: torch.autograd.functional.jacobian(f, x, vectorize=True)
            for name, f in loss.items()
        },
        "vmap": lambda: torch.func.vmap(lambda t: layers["GCNConv"](t, edges))(torch.stack([x, x])),
        "func.grad": lambda: torch.func.grad(lambda t: loss["SAGEConv"](t).sum())(x),
        "sparse SAGEConv": lambda: layers["SAGEConv"](x.to_sparse(), edges),
        "sparse GINConv": lambda: pyg.GINConv(nn.Linear(WIDTH, 2))(x.to_sparse(), edges),
        "sparse column": lambda: graph.ndata.update(h=x.to_sparse()),
    }
    of_types = cases_pyg_hetero.data_of(hetero)
    typed = sar.construct_full_graph(of_types)
    triple = next(t for t in typed.canonical_etypes if t[0] != t[2])
    index = sar.pyg.edge_index(typed[triple])
    both = [torch.randn(index.edges.rows(side), 3) for side in "uv"]
    mlp = nn.Linear(2 * 3, 3)
    wrong |= {
        "loops GATConv": lambda: pyg.GATConv((3, 3), 2)(tuple(both), index),
        "loops GATv2Conv": lambda: pyg.GATv2Conv((3, 3), 2)(tuple(both), index),
        "loops FeaStConv": lambda: pyg.FeaStConv(3, 2)(tuple(both), index),
        "loops PointNetConv": lambda: pyg.PointNetConv(mlp)(tuple(both), tuple(both), index),
        "loops PPFConv": lambda: pyg.PPFConv(nn.Linear(7, 3))(tuple(both), tuple(both), tuple(both), index),
        "loops PointTransformerConv": lambda: pyg.PointTransformerConv((3, 3), 3)(tuple(both), tuple(both), index),
    }
    said = {name: refusal(call) for name, call in wrong.items()}
    # what a linear map has made dense is as before
    dense, sparse = layers["GCNConv"](x, edges), layers["GCNConv"](x.to_sparse(), edges)
    assert torch.allclose(dense, sparse, atol=1e-6)
    return said
