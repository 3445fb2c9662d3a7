"""What runs on the workers to train: batch normalization, and whole models."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import torch

import sar
from sar._engine import session as _session
from tests.support.worker import build, default_dtype, numpy, tensor

# ---- batch normalization ---------------------------------------------------


def batch_norm(
    x: np.ndarray,
    grad: np.ndarray,
    affine: bool,
    weight: np.ndarray | None,
    bias: np.ndarray | None,
    needs: bool = True,
) -> dict[str, Any]:
    """DistributedBN1D with running statistics; parameter gradients over all ranks."""
    rows = tensor(x, needs)
    norm = sar.DistributedBN1D(x.shape[1], affine=affine, track_running_stats=True).to(torch.from_numpy(x).dtype)
    if norm.weight is not None and norm.bias is not None:
        with torch.no_grad():
            norm.weight.copy_(tensor(weight))
            norm.bias.copy_(tensor(bias))
    assert rows is not None
    out = norm(rows)
    out.backward(torch.from_numpy(grad))
    sar.gather_grads(norm)
    return numpy(
        {
            "out": out,
            "x": rows.grad,
            "weight": None if norm.weight is None else norm.weight.grad,
            "bias": None if norm.bias is None else norm.bias.grad,
            "mean": norm.running_mean,
            "var": norm.running_var,
        }
    )


def converted(kind: str, x: np.ndarray, grad: np.ndarray, types: np.ndarray, state: dict[str, Any]) -> dict[str, Any]:
    """A batch norm of torch or PyG that was converted: two steps of training, then eval."""
    model = sar.convert_batchnorm(torch.nn.ModuleDict({"norm": BATCH_NORMS[kind](x.shape[1])})).to(
        torch.from_numpy(x).dtype
    )
    model.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
    return normalized(model, x, grad, types)


def _of_pyg(width: int) -> Any:
    from torch_geometric.nn import HeteroBatchNorm

    return HeteroBatchNorm(width, 4)


BATCH_NORMS: dict[str, Any] = {
    **{name: getattr(torch.nn, name) for name in ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d")},
    "HeteroBatchNorm": _of_pyg,
}


def normalized(model: torch.nn.ModuleDict, x: np.ndarray, grad: np.ndarray, types: np.ndarray) -> dict[str, Any]:
    rows, norm = tensor(x, True), model["norm"]
    assert rows is not None
    more = [torch.from_numpy(types)] if hasattr(norm, "mean_var") or hasattr(norm, "of") else []
    out = None
    for _ in range(2):
        out = norm(rows, *more)
        out.backward(torch.from_numpy(grad))
    if _session.peek() is not None:
        sar.gather_grads(model)
    grads = {name: p.grad for name, p in model.named_parameters()}
    after = norm.eval()(rows.detach(), *more)
    return numpy({"out": out, "after": after, "x": rows.grad, **grads, **dict(model.named_buffers())})


def batch_norm_no_grad(x: np.ndarray) -> list[bool]:
    """Whether anything asks for a backward that no rank needs."""
    rows = torch.from_numpy(x)
    plain = sar.DistributedBN1D(x.shape[1], affine=False)(rows)
    with torch.no_grad():
        silent = sar.DistributedBN1D(x.shape[1])(rows)
    return [plain.requires_grad, silent.requires_grad]


def moments(x: np.ndarray, grad: np.ndarray) -> dict[str, Any]:
    """MeanOp and VarOp, and the gradient of what depends on both."""
    from sar.distributed_bn import mean_op, var_op

    rows = tensor(x, True)
    assert rows is not None
    mean, square = mean_op(rows), var_op(rows)
    (mean * torch.from_numpy(grad[0]) + square * torch.from_numpy(grad[1])).sum().backward()
    return numpy({"mean": mean, "square": square, "x": rows.grad})


# ---- training --------------------------------------------------------------


class Net(torch.nn.Module):
    """A 2-layer GCN, or a 3-layer SAGE with batch norm; layers of DGL as they are."""

    def __init__(self, kind: str, n_features: int, n_classes: int, dropout: float) -> None:
        import dgl.nn

        super().__init__()
        sizes = [n_features, 16, n_classes] if kind == "gcn" else [n_features, 32, 32, n_classes]
        pairs = list(zip(sizes[:-1], sizes[1:]))
        make = (lambda a, b: dgl.nn.GraphConv(a, b)) if kind == "gcn" else (lambda a, b: dgl.nn.SAGEConv(a, b, "mean"))
        self.layers = torch.nn.ModuleList([make(a, b) for a, b in pairs])
        self.norms = torch.nn.ModuleList([sar.DistributedBN1D(b) for _, b in pairs[:-1]] if kind == "sage" else [])
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, graph: Any, h: torch.Tensor) -> torch.Tensor:
        for n, layer in enumerate(self.layers):
            h = layer(graph, self.dropout(h))
            if n < len(self.layers) - 1:
                h = torch.relu(self.norms[n](h) if self.norms else h)
        return h


def fit(
    net: torch.nn.Module,
    logits: Callable[[], torch.Tensor],
    labels: torch.Tensor,
    rows: torch.Tensor,
    n_train: int,
    epochs: int,
    weight_decay: float = 0.0,
    alone: bool = False,
) -> list[float]:
    """Full-batch training with Adam: the loss of every epoch, over all workers.

    :param rows: mask of the training nodes among ``labels``; ``n_train`` of them on all workers
    :param alone: there are no workers
    """
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=weight_decay)
    net.train()
    losses = []
    for _ in range(epochs):
        loss = torch.nn.functional.cross_entropy(logits()[rows], labels[rows], reduction="sum") / n_train
        optimizer.zero_grad()
        loss.backward()
        total = loss.detach().clone()
        if not alone:
            sar.gather_grads(net)
            sar.comm.all_reduce(total, torch.distributed.ReduceOp.SUM)
        optimizer.step()
        losses.append(total.item())
    return losses


def train(
    part: dict[str, Any],
    x: np.ndarray,
    y: np.ndarray,
    masks: np.ndarray,
    model: str,
    classes: int,
    n_train: int,
    epochs: int,
    dropout: float = 0.0,
    weight_decay: float = 0.0,
    seed: int = 0,
) -> dict[str, Any]:
    """Full-batch training: the loss of every epoch, over all workers, and the test accuracy at the end."""
    features, labels = torch.from_numpy(x), torch.from_numpy(y)
    train_rows, test_rows = (torch.from_numpy(m) for m in masks)
    with default_dtype(features.dtype):
        graph = build(part)
        torch.manual_seed(seed)
        net = Net(model, x.shape[1], classes, dropout)
        sar.sync_params(net)
        torch.manual_seed(1000 + seed * sar.world_size() + sar.rank())
        losses = fit(net, lambda: net(graph, features), labels, train_rows, n_train, epochs, weight_decay)
        net.eval()
        with torch.no_grad():
            right = net(graph, features).argmax(1)[test_rows] == labels[test_rows]
        counts = torch.tensor([float(right.sum()), float(right.numel())])
        sar.comm.all_reduce(counts, torch.distributed.ReduceOp.SUM)
        return {"losses": losses, "accuracy": float(counts[0] / counts[1])}
