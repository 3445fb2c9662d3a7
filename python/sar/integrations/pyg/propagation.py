"""Models of torch_geometric that spread labels over the graph."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

import torch
from torch import Tensor
from torch_geometric.utils import one_hot

from sar._engine import abi, session as _session
from sar.graph.edge_index.index import SplitEdgeIndex
from sar.graph.readout import sum_over_workers

__all__ = ["METHODS"]


def _label_propagation(
    original: Any, model: Any, y: Tensor, edge_index: Any, mask: Optional[Tensor] = None, *args: Any, **kwargs: Any
) -> Tensor:
    """PyG takes the number of classes from the largest label: here, of all workers. Collective."""
    if isinstance(edge_index, SplitEdgeIndex) and y.dtype == torch.long and (y.dim() == 1 or y.shape[1:].numel() == 1):
        most = torch.tensor([int(y.max()) if y.numel() else -1])
        _session.all_reduce(most, "max", abi.TRAIN)
        y = one_hot(y.view(-1), num_classes=int(most) + 1)
    out: Tensor = original(model, y, edge_index, mask, *args, **kwargs)
    return out


def _correct(
    original: Any,
    model: Any,
    y_soft: Tensor,
    y_true: Tensor,
    mask: Tensor,
    edge_index: Any,
    edge_weight: Optional[Tensor] = None,
) -> Tensor:
    """PyG scales by the mean error of the training nodes: here, of all workers. Collective."""
    if not isinstance(edge_index, SplitEdgeIndex) or not model.autoscale:
        out: Tensor = original(model, y_soft, y_true, mask, edge_index, edge_weight)
        return out
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


METHODS: Dict[str, Callable[..., Any]] = {
    "nn.LabelPropagation.forward": _label_propagation,
    "nn.CorrectAndSmooth.correct": _correct,
}
"""Methods of torch_geometric, each replaced by a function of the original and its arguments."""
