"""What runs on the workers to sum gradients."""

from __future__ import annotations

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


def own_sums(net: nn.Module) -> dict[str, Any]:
    """Each gradient summed over the workers by itself, ``None`` where no worker has it."""
    found = {}
    for name, p in net.named_parameters():
        exists = torch.tensor([p.grad is not None], dtype=torch.uint8)
        sar.comm.all_reduce(exists, "max")
        found[name] = torch.zeros_like(p) if p.grad is None else p.grad.clone()
        sar.comm.all_reduce(found[name], "sum")
        found[name] = found[name] if exists else None
    return found


def same(net: nn.Module, expected: dict[str, Any]) -> None:
    for name, p in net.named_parameters():
        assert (p.grad is None) == (expected[name] is None), name
        assert p.grad is None or torch.equal(p.grad, expected[name]), name


def sums(part: dict[str, Any]) -> None:
    graph = build(part)
    net = Net()
    sar.sync_params(net)
    torch.manual_seed(sar.rank())
    net(graph, torch.randn(graph.num_nodes(), 9)).sum().backward()
    expected = own_sums(net)
    sar.gather_grads(net)
    same(net, expected)
    for name, p in net.named_parameters():
        assert (p.grad is None) == (name.startswith("none") or (sar.world_size() == 1 and "some" in name)), name


def backward_twice(part: dict[str, Any]) -> None:
    """What two passes add up is summed over the workers once."""
    graph = build(part)
    net = Net()
    for _ in range(2):
        net(graph, torch.randn(graph.num_nodes(), 9)).sum().backward()
    expected = own_sums(net)
    sar.gather_grads(net)
    same(net, expected)


def synced(lazy: str) -> list[Any]:
    """Buffers and parameters after sync_params, of a model with lazy modules before or after their first forward."""

    class WithBuffers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.LazyLinear(3)
            self.register_buffer("scale", torch.full((2,), float(sar.rank() + 1)))
            self.register_buffer("hidden", torch.tensor(sar.rank() + 5), persistent=False)
            self.register_buffer("own", torch.full((1,), float(sar.rank())))
            self._ddp_params_and_buffers_to_ignore = ["own"]

    torch.manual_seed(sar.rank())
    model = WithBuffers()
    if lazy == "after" or (lazy == "some" and sar.rank() == 0):
        model.linear(torch.ones(1, 4))
    sar.sync_params(model)
    return [t.detach().numpy() for t in (*model.parameters(), *model.buffers())]


def frozen(name: str) -> None:
    """One rank wants no gradient of a parameter."""
    net = Net()
    sar.sync_params(net)
    if sar.rank() == sar.world_size() - 1:
        net.get_parameter(name).requires_grad_(False)
    net.first(torch.ones(1, 9)).sum().backward()
    sar.gather_grads(net)


def rows_in_a_buffer() -> None:
    """A buffer of other shapes on other workers."""
    model = nn.Linear(2, 2)
    model.register_buffer("degrees", torch.ones(3 + sar.rank()))
    sar.sync_params(model)
