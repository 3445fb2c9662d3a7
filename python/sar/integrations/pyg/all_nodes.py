"""Layers that look at all nodes of a graph: WLConv numbers their colours, and models that spread labels count classes
and errors."""

from __future__ import annotations

from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.utils import one_hot

from sar.distributed.agreement import largest_of_all, summed
from sar.graph.edge_index.rows import lift
from sar.graph.readout import rows_of_all, sum_over_workers

from .over_nodes import node_batch


@torch.no_grad()
def wl_conv(original: Any, layer: Any, x: Tensor, edge_index: Any) -> Tensor:
    """PyG numbers colours as it meets them. Here they are met in the order of ranks, and every worker has the table."""
    if edge_index.flipped:
        raise NotImplementedError("WLConv looks at the in-edges of nodes: give it the edge index that is not flipped")
    if x.dim() > 1:
        assert (x.sum(dim=-1) == 1).sum() == x.size(0)
        x = x.argmax(dim=-1)
    assert x.dtype == torch.long
    colours = lift(x, 0, edge_index.end(0))
    rows = edge_index.end(1).numbers()
    order = colours.argsort()
    order = order[rows[order].argsort(stable=True)]
    degrees = torch.bincount(rows, minlength=len(x)).tolist()
    found = [hash((own, *others.tolist())) for own, others in zip(x.tolist(), colours[order].split(degrees))]
    fresh = [key for key in dict.fromkeys(found) if key not in layer.hashmap]
    for key in rows_of_all(torch.tensor(fresh, dtype=torch.long)).tolist():
        layer.hashmap.setdefault(key, len(layer.hashmap))
    return torch.tensor([layer.hashmap[key] for key in found], dtype=torch.long)


def wl_histogram(original: Any, layer: Any, x: Tensor, batch: Optional[Tensor] = None, norm: bool = False) -> Tensor:
    """Counts the colours of the nodes of all workers. Collective."""
    found = node_batch("WLConv.histogram", x, 0, batch)
    if found is None:
        return original(layer, x, batch, norm)
    colours = len(layer.hashmap)
    out = summed(torch.bincount(found.as_subclass(Tensor) * colours + x, minlength=colours * found.graphs))
    out = out.view(found.graphs, colours)
    return F.normalize(out.float(), dim=-1, eps=0) if norm else out


def label_propagation(
    original: Any, model: Any, y: Tensor, edge_index: Any, mask: Optional[Tensor] = None, *args: Any, **kwargs: Any
) -> Tensor:
    """PyG takes the number of classes from the largest label: here, of all workers. Collective."""
    if y.dtype == torch.long and (y.dim() == 1 or y.shape[1:].numel() == 1):
        y = one_hot(y.view(-1), num_classes=largest_of_all(int(y.max()) + 1 if y.numel() else 0))
    return original(model, y, edge_index, mask, *args, **kwargs)


def correct(
    original: Any,
    model: Any,
    y_soft: Tensor,
    y_true: Tensor,
    mask: Tensor,
    edge_index: Any,
    edge_weight: Optional[Tensor] = None,
) -> Tensor:
    """PyG scales by the mean error of the training nodes: here, of all workers. Collective."""
    if not model.autoscale:
        return original(model, y_soft, y_true, mask, edge_index, edge_weight)
    own = int(mask.sum()) if mask.dtype == torch.bool else len(mask)
    if len(y_true) != own:
        raise ValueError(f"{len(y_true)} labels were given for {own} training nodes of this worker")
    if y_true.dtype == torch.long and y_true.shape[1:].numel() == 1:
        y_true = one_hot(y_true.view(-1), num_classes=y_soft.size(-1), dtype=y_soft.dtype)
    error = torch.zeros_like(y_soft)
    error[mask] = y_true - y_soft[mask]
    smoothed = model.prop1(error, edge_index, edge_weight=edge_weight, post_step=lambda x: x.clamp_(-1.0, 1.0))
    picked = error[mask].abs().sum().double()
    total = sum_over_workers(torch.stack([picked, picked.new_tensor(float(own))]))
    scale = (total[0] / total[1]).to(y_soft.dtype) / smoothed.abs().sum(dim=1, keepdim=True)
    scale[scale.isinf() | (scale > 1000)] = 1.0
    return y_soft + scale * smoothed
