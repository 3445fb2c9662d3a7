"""What runs on the workers to sum gradients while backward runs."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

import sar
import sar.function as fn
from tests.support.worker import build


class Net(nn.Module):
    """Layers over the graph; a branch that some workers leave out, one that all do, and a parameter in double."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(9, 300), nn.Linear(300, 5)
        self.some, self.none = nn.Linear(5, 5), nn.Linear(5, 5)
        self.scale = nn.Parameter(torch.ones(5, dtype=torch.float64))

    def forward(self, graph: Any, x: torch.Tensor) -> torch.Tensor:
        for layer in (self.first, self.second):
            with graph.local_scope():
                graph.srcdata["h"] = torch.tanh(layer(x))
                graph.update_all(fn.copy_u("h", "m"), fn.mean("m", "y"))
                x = graph.dstdata["y"]
        if sar.rank() % 2 == 1:
            x = self.some(x)
        return x * self.scale


def same_bits(part: dict[str, Any], bucket_bytes: int) -> str:
    graph = build(part)
    torch.manual_seed(0)
    one = Net()
    other = copy.deepcopy(one)
    torch.manual_seed(sar.rank())
    with sar.overlap_grads(other, bucket_bytes) as gradients:
        for _ in range(3):
            x = torch.randn(graph.num_nodes(), 9)
            for net in (one, other):
                net.zero_grad(set_to_none=True)
                net(graph, x).sum().backward()
            sar.gather_grads(one)
            gradients.gather()
            for (name, p), q in zip(one.named_parameters(), other.parameters()):
                assert (p.grad is None) == (q.grad is None), name
                assert p.grad is None or torch.equal(p.grad, q.grad), name
                assert (p.grad is None) == (name.startswith("none") or (sar.world_size() == 1 and "some" in name)), name
    try:
        gradients.gather()
    except RuntimeError as error:
        return str(error)
    return "no error"


def backward_twice(part: dict[str, Any]) -> str:
    graph = build(part)
    net = Net()
    with sar.overlap_grads(net) as gradients:
        x = torch.randn(graph.num_nodes(), 9)
        loss = net.second(net.first(x)).sum()
        loss.backward(retain_graph=True)
        net.scale.grad = torch.ones(5, dtype=torch.float64)
        gradients.gather()
        net.second.weight.sum().backward()
        net.second.bias.sum().backward()
        (net.first.weight.sum() + net.first.bias.sum() + net.some.weight.sum() + net.some.bias.sum()).backward()
        (net.none.weight.sum() + net.none.bias.sum() + net.scale.sum()).backward()
        net.none.weight.sum().backward()
        try:
            gradients.gather()
        except RuntimeError as error:
            return str(error)
    return "no error"
