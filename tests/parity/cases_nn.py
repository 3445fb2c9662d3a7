"""What runs on the workers to test :mod:`sar.nn`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import sar
import sar.nn
from tests.support.worker import build, data_of, default_dtype, numpy, tensor


def sign(part: dict[str, Any], x: np.ndarray, k: int, operator: str, w: np.ndarray | None) -> list[np.ndarray]:
    made = sar.nn.sign_features(build(part), torch.from_numpy(x), k, operator, alpha=0.3, edge_weight=tensor(w))
    assert not any(t.requires_grad for t in made)
    return numpy(made)


def dropped(part: dict[str, Any], x: np.ndarray, seed: int) -> dict[str, Any]:
    """GAT with attention dropout, twice: how often a factor is dropped, and whether backward saw the same mask."""
    torch.manual_seed(seed)
    graph = build(part)
    layer = sar.nn.GATConv(x.shape[1], 3, 2, attn_drop=0.5, allow_zero_in_degree=True)
    layer.fc.weight.data.copy_(torch.from_numpy(x[:1]).expand(6, -1) if len(x) else layer.fc.weight)
    sar.sync_params(layer)
    attentions = []
    for _ in range(2):
        out, attention = layer(graph, torch.from_numpy(x), get_attention=True)
        attentions.append(attention)
        assert out.shape == (len(x), 2, 3)
    layer.eval()
    _, plain = layer(graph, torch.from_numpy(x), get_attention=True)
    return numpy({"first": attentions[0], "second": attentions[1], "plain": plain})


def over_relations(aggregate: str, library: Any, triples: list[Any], width: int) -> torch.nn.Module:
    """A HeteroGraphConv of ``dgl.nn`` or ``sar.nn`` whose layers differ from relation to relation."""
    layers: dict[Any, torch.nn.Module] = {}
    for n, triple in enumerate(triples):
        layers[triple] = [
            library.GraphConv(width, 3, norm="right"),
            library.SAGEConv(width, 3, "mean"),
            library.GraphConv(width, 3, norm="both"),
        ][n % 3]
    made: torch.nn.Module = library.HeteroGraphConv(layers, aggregate)
    return made


def hetero_layer(
    part: dict[str, Any], aggregate: str, state: list[np.ndarray], x: dict[str, np.ndarray], grad: dict[str, np.ndarray]
) -> dict[str, Any]:
    """Outputs and gradients of a layer over several relations."""
    with default_dtype(torch.float64):
        graph = sar.construct_full_graph(data_of(part))
        model = over_relations(aggregate, sar.nn, list(graph.canonical_etypes), next(iter(x.values())).shape[1])
        for parameter, value in zip(model.parameters(), state):
            parameter.data.copy_(torch.from_numpy(value))
        features = {kind: tensor(rows, True) for kind, rows in x.items()}
        out = model(graph, features)
        sum((out[kind] * torch.from_numpy(grad[kind])).sum() for kind in sorted(out)).backward()
        sar.gather_grads(model)
        return numpy(
            {
                "out": out,
                "x": {kind: rows.grad for kind, rows in features.items()},
                "parameters": [p.grad for p in model.parameters()],
            }
        )


def on_blocks(part: dict[str, Any], x: np.ndarray, seeds: np.ndarray, grad: np.ndarray) -> dict[str, Any]:
    """Two layers on blocks and on the full graph: outputs at the seeds and gradients of the input, of each."""
    with default_dtype(torch.float64):
        data, rows = data_of(part), torch.from_numpy(seeds)
        blocks = sar.construct_mfgs(data, rows + data.node_ranges[sar.rank()][0], 2)
        graph = sar.construct_full_graph(data)
        torch.manual_seed(9)
        layers = [
            sar.nn.GATConv(x.shape[1], 3, 2, residual=True, allow_zero_in_degree=True),
            sar.nn.SAGEConv(6, 4, "mean"),
        ]
        found: dict[str, Any] = {}
        for name, graphs in (("blocks", blocks), ("full", [graph, graph])):
            feature = tensor(x, True)
            assert feature is not None
            h = feature[blocks[0].input_nodes] if name == "blocks" else feature
            out = layers[1](graphs[1], layers[0](graphs[0], h).flatten(1))
            out = out if name == "blocks" else out[rows]
            (out * torch.from_numpy(grad[: len(rows)])).sum().backward()
            found[name] = {"out": out, "x": feature.grad}
        return numpy(found)
