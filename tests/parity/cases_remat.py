"""What runs on the workers to compute again in backward."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import nn

import sar
import sar.function as fn
from sar.nn.batchnormact import ACTIVATIONS, BatchNormAct
from tests.support.worker import build, numpy


class Kept:
    """Bytes that autograd keeps between the passes, each storage once; parameters do not count."""

    def __init__(self, module: nn.Module) -> None:
        self.own = {p.untyped_storage().data_ptr() for p in module.parameters()}
        self.storages: dict[int, int] = {}

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.own:
            self.storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    def unpack(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def bytes(self) -> int:
        return sum(self.storages.values())


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = sar.DistributedBN1D(width, track_running_stats=True)
        self.drop = nn.Dropout(0.3)

    def forward(self, graph: Any, h: torch.Tensor) -> torch.Tensor:
        with graph.local_scope():
            graph.srcdata["h"] = h
            graph.update_all(fn.copy_u("h", "m"), fn.mean("m", "n"))
            return self.drop(torch.relu(self.norm(self.linear(graph.dstdata["n"]) + h)))


def remat_layers(part: dict[str, Any], x: np.ndarray, grad: np.ndarray) -> list[dict[str, Any]]:
    """Two layers as they are, and with remat: outputs, gradients, running statistics, bytes kept, operations."""
    graph = build(part)
    torch.manual_seed(1)
    plain = nn.ModuleList([Layer(x.shape[1]) for _ in range(2)]).to(torch.from_numpy(x).dtype)
    again = copy.deepcopy(plain)
    for layer in again:
        sar.remat(layer)
    results = []
    for layers in (plain, again):
        kept = Kept(layers)
        h = rows = torch.from_numpy(x.copy()).requires_grad_()
        torch.manual_seed(2)
        with torch.autograd.graph.saved_tensors_hooks(kept.pack, kept.unpack):
            for layer in layers:
                h = layer(graph, h)
        h.backward(torch.from_numpy(grad))
        sar.gather_grads(layers)
        results.append(
            {
                **numpy({"out": h, "x": rows.grad, "kept": {"bytes": torch.tensor(kept.bytes())}}),
                "parameters": numpy({name: p.grad for name, p in layers.named_parameters()}),
                "state": numpy(dict(layers.state_dict())),
            }
        )
    return results


def fused(x: np.ndarray, grad: np.ndarray, activation: str, share: float, needs: bool) -> list[dict[str, Any]]:
    """Batch norm, activation and dropout as one, and one after another with the mask that the first drew."""
    dtype = torch.from_numpy(x).dtype
    one = BatchNormAct(x.shape[1], activation, share, track_running_stats=True).to(dtype)
    with torch.no_grad():
        one.weight.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(5))
        one.bias.uniform_(-0.5, 0.5, generator=torch.Generator().manual_seed(6))
    apart = sar.DistributedBN1D(x.shape[1], track_running_stats=True).to(dtype)
    apart.load_state_dict(one.state_dict())
    results = []
    mask = None
    for norm in (one, apart):
        kept = Kept(norm)
        rows = torch.from_numpy(x.copy()).requires_grad_(needs)
        torch.manual_seed(3)
        with torch.autograd.graph.saved_tensors_hooks(kept.pack, kept.unpack):
            out = norm(rows)
            if norm is one:
                mask = (out != 0).to(dtype) / (1 - share)
            else:
                function = ACTIVATIONS[activation]
                out = out if function is None else function(out)
                out = out * mask if share else out
        out.backward(torch.from_numpy(grad))
        sar.gather_grads(norm)
        results.append(
            {
                **numpy({"out": out, "x": rows.grad if needs else rows, "weight": norm.weight.grad}),
                **numpy({"bias": norm.bias.grad, "mean": norm.running_mean}),
                "kept": kept.bytes(),
                "zeros": int((out == 0).sum()),
            }
        )
    return results
