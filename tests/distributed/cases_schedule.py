"""What runs on the workers to test that operations pair with those of the same layers and passes."""

from __future__ import annotations

import copy
import threading
from typing import Any

import torch
from torch import nn

import sar
import sar.nn
from sar.distributed.comm_thread import comm_thread
from tests.support.worker import build

WIDTH = 4


class Own(nn.Module):
    """A layer as users write them, with a message function in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, graph: Any, x: torch.Tensor) -> torch.Tensor:
        with graph.local_scope():
            graph.srcdata["h"] = self.linear(x)
            graph.update_all(lambda e: {"m": torch.tanh(e.src["h"])}, sar.function.sum("m", "y"))
            return graph.dstdata["y"]


class Norm(sar.DistributedBN1D):
    """Batch norm with the arguments of a layer."""

    def forward(self, graph: Any, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)


LAYERS = {
    "SAGEConv": lambda: sar.nn.SAGEConv(WIDTH, WIDTH, "mean"),
    "GATConv": lambda: sar.nn.GATConv(WIDTH, WIDTH, 1, allow_zero_in_degree=True),
    "GraphConv": lambda: sar.nn.GraphConv(WIDTH, WIDTH, allow_zero_in_degree=True),
    "Own": Own,
    "Norm": lambda: Norm(WIDTH),
}


class Branches(nn.Module):
    """Two layers of one kind side by side."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.left, self.right = LAYERS[kind](), LAYERS[kind]()

    def forward(self, graph: Any, x: torch.Tensor, order: str = "left right") -> list[torch.Tensor]:
        found = {name: getattr(self, name)(graph, x) for name in order.split()}
        return [found["left"], found["right"]]


def model_on(part: dict[str, Any], kind: str) -> tuple[Any, Branches, torch.Tensor]:
    graph, model = build(part), Branches(kind)
    sar.sync_params(model)
    torch.manual_seed(1)
    return graph, model, torch.randn(graph.num_nodes(), WIDTH, requires_grad=True)


def ordered(part: dict[str, Any], kind: str, forward: str, backward: str) -> None:
    """Two losses. ``forward`` and ``backward``: the order on this rank."""
    graph, model, x = model_on(part, kind)
    losses = dict(zip(("left", "right"), (out.square().sum() for out in model(graph, x, forward))))
    for name in backward.split():
        losses[name].backward(retain_graph=True)
    sar.gather_grads(model)


def graphs_ordered(part: dict[str, Any], first: bool) -> None:
    """Two graphs, in another order on each rank; nothing is known of layers."""
    graphs = [build(part), build(part)]
    layer = sar.nn.GraphConv(WIDTH, WIDTH, allow_zero_in_degree=True)
    for graph in graphs if first else graphs[::-1]:
        layer(graph, torch.ones(graph.num_nodes(), WIDTH))


def with_others(part: dict[str, Any], looks: bool) -> list[float]:
    """What one rank does for itself and does not change the schedule: copies, wrappers, compiled and traced parts."""
    graph, model, x = model_on(part, "SAGEConv")

    class Wrapped(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, *args: Any) -> Any:
            return self.inner(*args)

    expected = [float(out.double().sum()) for out in model(graph, x)]
    copied = copy.deepcopy(model)
    renamed = copy.copy(model)
    renamed._modules = {**model._modules}
    renamed.left = Wrapped(model.left)
    renamed.right = Wrapped(copy.deepcopy(model.right))
    own = copy.copy(model)
    run = Branches.forward
    own.forward = lambda g, h: run(own, g, h)  # type: ignore[method-assign]
    compiled = torch.compile(copy.copy(model), backend="eager")
    for other in (copied, renamed, Wrapped(model), own, compiled):
        found = (other if looks else model)(graph, x)
        assert [float(out.double().sum()) for out in found] == expected
        sum(out.sum() for out in found).backward()
        sar.gather_grads(other if looks else model)
    return expected


# ---- threads ---------------------------------------------------------------------


def train(graph: Any, model: nn.Module, x: torch.Tensor, steps: int, caught: list[BaseException]) -> None:
    try:
        for _ in range(steps):
            sum(out.sum() for out in model(graph, x)).backward()
    except BaseException as error:
        caught.append(error)


def threads(part: dict[str, Any], locked: bool) -> None:
    """Two threads of a worker with a model; with a lock around forward and backward, and workers in step, they take
    turns."""
    graph, model, x = model_on(part, "Own")
    caught: list[BaseException] = []
    if not locked:
        both = [threading.Thread(target=train, args=(graph, model, x.detach(), 40, caught)) for _ in range(2)]
    else:
        turn = threading.Condition()
        done = [0]

        def step(number: int) -> None:
            for n in range(3):
                with turn:
                    turn.wait_for(lambda n=n: done[0] == 2 * n + number or caught)
                    train(graph, model, x.detach(), 1, caught)
                    done[0] += 1
                    turn.notify_all()

        both = [threading.Thread(target=step, args=(number,)) for number in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    if caught:  # the thread that came second has the error; the other one's operation ends with it
        raise next((error for error in caught if isinstance(error, sar.ScheduleError)), caught[0])


def one_after_the_other(part: dict[str, Any]) -> None:
    """A thread that waits for another one may use what it uses."""
    graph, model, x = model_on(part, "SAGEConv")
    found: list[torch.Tensor] = []

    def own() -> None:
        found.append(model(graph, x)[0])

    class Elsewhere(nn.Module):
        def forward(self, h: torch.Tensor) -> torch.Tensor:
            comm_thread.submit_task("forward", lambda: model(graph, h))
            return comm_thread.get_result()[0]

    for _ in range(3):
        own()
        found.append(Elsewhere()(x))
        thread = threading.Thread(target=own)
        thread.start()
        thread.join()
    assert len(found) == 9 and all(torch.equal(f, found[0]) for f in found)
    sum(f.sum() for f in found).backward()


def backward_of_one(part: dict[str, Any]) -> float:
    """A message that sends nothing, differentiated on one rank alone, and operations after it."""
    graph = build(part)
    graph.edata["w"] = torch.ones(graph.num_edges(), 2, requires_grad=sar.rank() == 0)
    graph.update_all(lambda edges: {"m": torch.tanh(edges.data["w"])}, sar.function.max("m", "o"))
    if sar.rank() == 0:
        graph.dstdata["o"].sum().backward()
    again = build(part)
    again.ndata["x"] = torch.ones(again.num_nodes(), 1)
    again.update_all(sar.function.copy_u("x", "m"), sar.function.sum("m", "o"))
    return float(again.ndata["o"].sum())
