"""Autograd on the result of batch norm, as on any other tensor, against torch's batch norm."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sar import DistributedBN1D
from tests.support.graphs import close

Step = Callable[[nn.Sequential, Tensor], list[Tensor]]


def networks() -> Iterator[nn.Sequential]:
    """Linear, batch norm, ReLU, linear: with torch's batch norm, then with ours."""
    theirs = nn.BatchNorm1d(6, track_running_stats=False)
    for norm in (theirs, DistributedBN1D(6, distributed=False)):
        torch.manual_seed(1)
        network = nn.Sequential(nn.Linear(5, 6), norm, nn.ReLU(), nn.Linear(6, 3)).double()
        with torch.no_grad():
            norm.weight.copy_(torch.linspace(-1, 2, 6))
            norm.bias.copy_(torch.linspace(1, -0.5, 6))
        yield network


def same(step: Step) -> None:
    results = []
    for network in networks():
        torch.manual_seed(2)
        x = torch.randn(20, 5, dtype=torch.double, requires_grad=True)
        extra = step(network, x)
        assert all(type(t) is Tensor for t in extra)
        # the gradient of the bias before batch norm is nothing but rounding
        ended = [p.grad for name, p in network.named_parameters() if name != "0.bias"]
        results.append([x.grad, *ended, *extra])
    theirs, ours = results
    assert len(theirs) == len(ours)
    for n, (mine, wanted) in enumerate(zip(ours, theirs)):
        close(mine.detach().numpy(), wanted.detach().numpy(), f"number {n}", 100)


def normalized(network: nn.Sequential, x: Tensor) -> Tensor:
    return network[1](network[0](x))


def rest(network: nn.Sequential, h: Tensor) -> Tensor:
    return network[3](h).square().sum()


def test_hooks_and_gradients_after_relu() -> None:
    """Of the normalized rows, asked for when ReLU was applied already."""

    def step(network: nn.Sequential, x: Tensor) -> list[Tensor]:
        h = normalized(network, x)
        r, seen = torch.relu(h), []
        h.register_hook(lambda grad: seen.append(grad))
        h.retain_grad()
        loss = rest(network, r)
        (grad,) = torch.autograd.grad(loss, h, retain_graph=True)
        loss.backward()
        return [grad, h.grad, *seen]

    same(step)


def test_a_hook_changes_the_gradient() -> None:
    def step(network: nn.Sequential, x: Tensor) -> list[Tensor]:
        h = normalized(network, x)
        h.register_hook(lambda grad: grad * 2 + 1)
        rest(network, torch.relu(h)).backward()
        return []

    same(step)


def test_hooks_of_nodes_and_modules() -> None:
    def step(network: nn.Sequential, x: Tensor) -> list[Tensor]:
        seen: list[Tensor] = []
        h = normalized(network, x)
        torch.autograd.graph.register_multi_grad_hook([h], lambda grads: seen.append(grads[0] + 0))
        h.grad_fn.register_prehook(lambda grads: seen.append(grads[0] * 1))
        rest(network, torch.relu(h) + 0.5 * h).backward()
        for module in network:
            module.register_full_backward_hook(lambda m, into, out: seen.append(out[0] + 0))
        network(x).square().sum().backward()
        return seen

    same(step)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("inside", ["batch norm", "batch norm and ReLU"])
def test_checkpoint(inside: str, reentrant: bool) -> None:
    def step(network: nn.Sequential, x: Tensor) -> list[Tensor]:
        if inside == "batch norm":
            h = torch.relu(checkpoint(lambda x: normalized(network, x), x, use_reentrant=reentrant))
        else:
            h = checkpoint(lambda x: torch.relu(normalized(network, x)), x, use_reentrant=reentrant)
        rest(network, h).backward()
        return []

    same(step)


@pytest.mark.parametrize("what", ["all", "up to batch norm", "batch norm", "after batch norm"])
def test_compile(what: str) -> None:
    def step(network: nn.Sequential, x: Tensor) -> list[Tensor]:
        torch._dynamo.reset()
        if what == "all":
            loss = torch.compile(network, backend="eager")(x).square().sum()
        elif what == "up to batch norm":
            loss = rest(network, F.relu(torch.compile(lambda x: normalized(network, x), backend="eager")(x)))
        elif what == "batch norm":
            loss = rest(network, F.relu(torch.compile(network[1], backend="eager")(network[0](x))))
        else:
            loss = torch.compile(lambda h: rest(network, torch.relu(h)), backend="eager")(normalized(network, x))
        loss.backward()
        return []

    same(step)


CHANGES: dict[str, Callable[[Tensor], object]] = {
    "data": lambda h: h.data.mul_(2),
    "rows of data": lambda h: h.data[:5].zero_(),
    "numpy": lambda h: h.detach().numpy().__imul__(2),
    "detached": lambda h: h.detach().mul_(2),
}


@pytest.mark.parametrize("change", CHANGES)
def test_values_changed_past_autograd(change: str) -> None:
    """What reads the rows afterwards sees the change, ReLU too."""

    def step(network: nn.Sequential, x: Tensor) -> list[Tensor]:
        h = normalized(network, x)
        CHANGES[change](h)
        rest(network, torch.relu(h)).backward()
        return []

    same(step)


@pytest.mark.parametrize("change", ["data", "numpy"])
def test_rows_after_relu_changed_past_autograd(change: str) -> None:
    def step(network: nn.Sequential, x: Tensor) -> list[Tensor]:
        h = torch.relu(normalized(network, x))
        CHANGES[change](h)
        rest(network, h).backward()
        return []

    same(step)


def test_first_gradients_of_a_graph_that_is_kept() -> None:
    def step(network: nn.Sequential, x: Tensor) -> list[Tensor]:
        network(x).square().sum().backward(create_graph=True)
        return []

    same(step)


@pytest.mark.parametrize("after", ["ReLU", "no ReLU"])
def test_double_backward(after: str) -> None:
    for network in list(networks())[1:]:
        x = torch.randn(20, 5, dtype=torch.double, requires_grad=True)
        h = normalized(network, x)
        loss = rest(network, torch.relu(h) if after == "ReLU" else h)
        (grad,) = torch.autograd.grad(loss, x, create_graph=True)
        with pytest.raises(RuntimeError, match="batch norm cannot be differentiated twice"):
            grad.square().sum().backward()
