"""Label propagation, and edges between some of the nodes: the same code for PyG and for the workers."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import torch

from tests.parity.cases_pyg import graph_index
from tests.support.worker import numpy

CLASSES = 4


def spread(kind: str, index: Any, columns: dict[str, np.ndarray]) -> Any:
    """Labels after propagation, and the gradient of the predictions where they have one.

    :param columns: ``y`` labels, ``scores`` predictions, ``mask`` training nodes, ``w`` weights of edges
    """
    import torch_geometric.nn as pyg

    y, mask, weight = (torch.from_numpy(columns[name]) for name in ("y", "mask", "w"))
    scores = torch.from_numpy(columns["scores"].copy()).requires_grad_()
    kind, _, weighted = kind.partition("-")
    weight = weight if weighted else None
    if kind.startswith("labels"):
        y = y.view(-1, 1) if kind == "labels_in_a_column" else y
        return numpy([pyg.LabelPropagation(3, 0.8)(y, index, mask, weight)])
    if kind == "scores":
        return numpy([pyg.LabelPropagation(2, 0.5)(scores, index, mask, weight, lambda out: out.clamp_(0.1, 0.9))])
    model = pyg.CorrectAndSmooth(3, 0.7, 2, 0.6, autoscale=kind != "correct_fixed", scale=1.3)
    soft = scores.softmax(-1)
    if kind == "places":
        mask = mask.nonzero().view(-1)
    out = model(soft, y[mask], mask, index, weight)
    corrected = model.correct(soft, y[mask], mask, index, weight)
    corrected.square().sum().backward()
    return numpy([out, corrected, scores.grad])


KINDS = ["labels", "labels-w", "labels_in_a_column", "scores-w", "correct", "correct-w", "correct_fixed", "places"]


def spread_on_worker(part: dict[str, Any], kind: str, columns: dict[str, np.ndarray]) -> Any:
    return spread(kind, graph_index(part), columns)


def induced(index: Any, columns: dict[str, np.ndarray]) -> Any:
    """Two sums along the edges between the nodes of a mask, one of them weighted, and which edges those are."""
    from torch_geometric import nn as pyg, utils

    mask, weight = torch.from_numpy(columns["mask"]), torch.from_numpy(columns["w"])
    scores = torch.from_numpy(columns["scores"].copy()).requires_grad_()
    kept, weight, edges = utils.subgraph(mask, index, weight, return_edge_mask=True)
    out = pyg.SimpleConv("sum")(scores, kept, weight) + pyg.SimpleConv("mean")(scores, utils.subgraph(mask, index)[0])
    out.square().sum().backward()
    return numpy([out, scores.grad, edges])


def induced_on_worker(part: dict[str, Any], columns: dict[str, np.ndarray]) -> dict[str, Any]:
    from torch_geometric.utils import dropout_node

    index = graph_index(part)
    kept, edges, stay = dropout_node(index, 0.4)
    same, every, all_ = dropout_node(index, 0.4, training=False)
    source, target = index.numbers()
    dropped = [kept.shape[1] == int(edges.sum()), not bool((edges & ~stay[target]).any())]
    own = source < len(stay)
    dropped.append(bool((edges[own] == (stay[source[own]] & stay[target[own]])).all()))
    return {"found": induced(index, columns), "same": [same is index, bool(every.all()), bool(all_.all())] + dropped}


# ---- the attention loss of SuperGATConv --------------------------------------------


def super_gat(x: np.ndarray, index: Any, kind: str, negative: Any = None) -> dict[str, Any]:
    """A forward in training and its attention loss, with gradients.

    :param negative: pairs that are no edges; drawn where there are none
    """
    import torch_geometric.nn as pyg

    from sar.integrations.pyg import super_gat

    torch.manual_seed(3)
    layer = pyg.SuperGATConv(x.shape[1], 4, heads=2, attention_type=kind, edge_sample_ratio=1.0).double()
    leaf = torch.from_numpy(x.copy()).requires_grad_()
    drawn: list[torch.Tensor] = []
    sample = super_gat._no_edges

    def keep(*given: Any) -> Any:
        pairs = sample(*given)
        ids, (columns, rows) = pairs.graph.column_nodes(), pairs.numbers()
        drawn.append(torch.stack([ids[columns], ids[rows]]))
        return pairs

    torch.manual_seed(len(x))  # workers draw different pairs
    with mock.patch.object(super_gat, "_no_edges", keep):
        out = layer(leaf, index, negative)
    loss = layer.get_attention_loss()
    (loss + out.square().sum() / 61).backward()
    parameters = {name: p.grad for name, p in layer.named_parameters()}
    return numpy({"loss": loss, "out": out, "x": leaf.grad, "parameters": parameters, "drawn": drawn})


def super_gat_on_worker(part: dict[str, Any], x: np.ndarray, kind: str) -> dict[str, Any]:
    return super_gat(x, graph_index(part), kind)
