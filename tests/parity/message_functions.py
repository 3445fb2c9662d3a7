"""Models with Python message and reduce functions, which run on workers and, as they are, on DGL's whole graph.

Each is made with a library's functions ``fn`` and runs on any graph that passes messages; ``forward`` returns what is
compared.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

WIDTH = 5


class Model(nn.Module):
    """``forward(graph, columns)`` sets what it reads and returns destination results, or edge results."""

    on_edges = False

    def __init__(self, fn: Any) -> None:
        super().__init__()
        self.fn = fn

    def message(self, edges: Any) -> dict[str, torch.Tensor]:
        raise NotImplementedError

    def forward(self, graph: Any) -> torch.Tensor:
        graph.update_all(self.message, self.fn.sum("m", "out"))
        return graph.dstdata["out"]


class Plain(Model):
    """Source, destination and edge columns; no parameters."""

    def message(self, edges: Any) -> dict[str, torch.Tensor]:
        return {"m": torch.tanh(edges.src["x"] - edges.dst["y"]) * edges.data["w"], "unused": edges.src["x"]}


class Parameters(Model):
    """Parameters of the module that the function is a method of; mean."""

    def __init__(self, fn: Any) -> None:
        super().__init__(fn)
        self.both = nn.Linear(3 * WIDTH, 4)
        self.gate = nn.Linear(WIDTH, 1, bias=False)

    def message(self, edges: Any) -> dict[str, torch.Tensor]:
        joined = torch.cat([edges.src["x"], edges.dst["y"], edges.data["w"]], dim=1)
        return {"m": torch.relu(self.both(joined)) * torch.sigmoid(self.gate(edges.src["x"]))}

    def forward(self, graph: Any) -> torch.Tensor:
        graph.update_all(self.message, self.fn.mean("m", "out"))
        return graph.dstdata["out"]


class Extremum(Model):
    """max and min of coarse values: many ties."""

    how = "max"

    def message(self, edges: Any) -> dict[str, torch.Tensor]:
        return {"m": (edges.src["x"] * 2).round() + edges.data["w"].round()}

    def forward(self, graph: Any) -> torch.Tensor:
        graph.update_all(self.message, getattr(self.fn, self.how)("m", "out"))
        return graph.dstdata["out"]


class Minimum(Extremum):
    how = "min"


class Captured(Model):
    """A lambda that uses a result of earlier operations, a parameter, and a constant."""

    def __init__(self, fn: Any) -> None:
        super().__init__(fn)
        self.matrix = nn.Parameter(torch.linspace(-1, 1, WIDTH * 3).view(WIDTH, 3))
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 3))

    def forward(self, graph: Any) -> torch.Tensor:
        made = torch.softmax(self.matrix, 0) * self.scale
        shift = torch.arange(3.0).to(made.dtype)
        graph.update_all(lambda edges: {"m": edges.src["x"] @ made * self.scale + shift}, self.fn.sum("m", "out"))
        return graph.dstdata["out"]


class CapturedByReducer(Captured):
    """The same of nodes, which come in batches of equal degree."""

    def forward(self, graph: Any) -> torch.Tensor:
        made = torch.softmax(self.matrix, 0) * self.scale
        reduce = lambda nodes: {"out": nodes.mailbox["m"].sum(1) @ made * self.scale}  # noqa: E731
        graph.update_all(self.fn.copy_u("x", "m"), reduce)
        return graph.dstdata["out"]


class DestinationOnly(Model):
    """Nothing of the source."""

    def message(self, edges: Any) -> dict[str, torch.Tensor]:
        return {"m": edges.dst["y"] * edges.data["w"].sum(1, keepdim=True)}


class Typed(Model):
    """Integer columns pick parameters; one that few edges use, so that a trial may not show it."""

    def __init__(self, fn: Any) -> None:
        super().__init__(fn)
        self.kinds = nn.ModuleList([nn.Linear(WIDTH, 2) for _ in range(3)])

    def message(self, edges: Any) -> dict[str, torch.Tensor]:
        out = edges.src["x"].new_zeros(edges.batch_size(), 2)
        for kind in torch.unique(edges.data["kind"]).tolist():
            at = (edges.data["kind"] == kind).nonzero().view(-1)
            out = out.index_add(0, at, self.kinds[kind](edges.src["x"][at]))
        return {"m": out * edges.src["label"].view(-1, 1)}


class OnEdges(Model):
    """apply_edges, two results, one of which update_all sums."""

    on_edges = True

    def __init__(self, fn: Any) -> None:
        super().__init__(fn)
        self.linear = nn.Linear(WIDTH, 2)

    def message(self, edges: Any) -> dict[str, torch.Tensor]:
        h = self.linear(edges.src["x"] * edges.dst["y"])
        return {"h": h, "s": h.sum(1) + edges.data["w"][:, 0]}

    def forward(self, graph: Any) -> torch.Tensor:
        graph.apply_edges(self.message)
        graph.update_all(self.fn.u_mul_e("x", "s", "m"), self.fn.sum("m", "out"))
        return torch.cat([graph.edata["h"], graph.edata["s"].unsqueeze(1)], 1)


class Integers(Model):
    """Counts without gradients."""

    def forward(self, graph: Any) -> torch.Tensor:
        graph.update_all(lambda edges: {"m": (edges.src["x"] > 0).float()}, self.fn.sum("m", "out"))
        return graph.dstdata["out"] * graph.dstdata["y"]


class Lazy(Model):
    """A Python function reads a column that apply_edges left uncomputed, and a built-in one that a function made."""

    def forward(self, graph: Any) -> torch.Tensor:
        graph.apply_edges(self.fn.u_sub_v("x", "y", "l"))
        graph.edata["l"] = torch.tanh(graph.edata["l"])
        graph.apply_edges(lambda edges: {"k": edges.data["l"] * edges.src["x"]})
        graph.update_all(self.fn.e_sub_v("k", "y", "m"), self.fn.min("m", "out"))
        return graph.dstdata["out"]


class Picky(Model):
    """Fails on rows of zeros, which a worker without nodes tries it on."""

    def __init__(self, fn: Any) -> None:
        super().__init__(fn)
        self.table = nn.Parameter(torch.linspace(-1, 1, 3 * WIDTH).view(3, WIDTH))

    def message(self, edges: Any) -> dict[str, torch.Tensor]:
        return {"m": nn.functional.embedding(edges.src["grade"] - 1, self.table) * edges.dst["y"]}

    def reduce(self, nodes: Any) -> dict[str, torch.Tensor]:
        return {"m": nodes.mailbox["m"].prod(1) + nn.functional.embedding(nodes.data["grade"] - 1, self.table)}

    def forward(self, graph: Any) -> torch.Tensor:
        graph.update_all(self.message, self.fn.sum("m", "out"))
        graph.update_all(self.message, self.reduce)
        return graph.dstdata["out"] + graph.dstdata["m"]


class Mailbox(Model):
    """A Python reduce function with a built-in message, columns of nodes, and apply_node_func."""

    def reduce(self, nodes: Any) -> dict[str, torch.Tensor]:
        box = nodes.mailbox["m"]
        return {"out": box.std(1, unbiased=False) + box.max(1).values * nodes.data["y"], "n": box[:, 0]}

    def forward(self, graph: Any) -> torch.Tensor:
        graph.update_all(
            self.fn.u_mul_e("x", "w", "m"), self.reduce, lambda nodes: {"out": nodes.data["out"] + nodes.data["n"]}
        )
        return graph.dstdata["out"]


class Lstm(Model):
    """The order of messages counts."""

    def __init__(self, fn: Any) -> None:
        super().__init__(fn)
        self.lstm = nn.LSTM(WIDTH, 3, batch_first=True)

    def reduce(self, nodes: Any) -> dict[str, torch.Tensor]:
        _, (h, _) = self.lstm(nodes.mailbox["m"])
        return {"out": h[0]}

    def forward(self, graph: Any) -> torch.Tensor:
        graph.update_all(self.fn.copy_u("x", "m"), self.reduce)
        return graph.dstdata["out"]


class Both(Model):
    """Python message and Python reduce function."""

    def __init__(self, fn: Any) -> None:
        super().__init__(fn)
        self.send, self.take = nn.Linear(WIDTH, 3), nn.Linear(3, 3)

    def message(self, edges: Any) -> dict[str, torch.Tensor]:
        return {"m": torch.relu(self.send(edges.src["x"] + edges.data["w"])), "k": edges.dst["y"]}

    def reduce(self, nodes: Any) -> dict[str, torch.Tensor]:
        return {"out": self.take(nodes.mailbox["m"]).logsumexp(1) + nodes.mailbox["k"].mean((1, 2)).unsqueeze(1)}

    def forward(self, graph: Any) -> torch.Tensor:
        graph.update_all(self.message, self.reduce)
        return graph.dstdata["out"]


class Counting(Model):
    """Counts kinds of edges and calls in buffers, and changes its messages in place."""

    def __init__(self, fn: Any) -> None:
        super().__init__(fn)
        self.register_buffer("kinds", torch.zeros(3))
        self.register_buffer("calls", torch.zeros(1))

    def message(self, edges: Any) -> dict[str, torch.Tensor]:
        self.kinds.index_add_(0, edges.data["kind"], torch.ones_like(edges.data["kind"], dtype=self.kinds.dtype))
        if len(edges):
            self.calls += 1
        h = edges.src["x"] * 2
        h[:, 0] = edges.dst["y"][:, 1]
        return {"m": h.mul_(edges.data["w"])}


class CountingMailbox(Counting):
    """A reduce function that counts messages."""

    def __init__(self, fn: Any) -> None:
        super().__init__(fn)
        self.register_buffer("degrees", torch.zeros(64))

    def reduce(self, nodes: Any) -> dict[str, torch.Tensor]:
        n, degree = nodes.mailbox["m"].shape[:2]
        self.degrees[degree % 64] += n
        return {"out": nodes.mailbox["m"].prod(1)}

    def forward(self, graph: Any) -> torch.Tensor:
        graph.update_all(self.message, self.reduce)
        return graph.dstdata["out"]


class Branching(Model):
    """Reads rows of sources where there are edges of a kind that few workers have, and a layer of its own for them."""

    def __init__(self, fn: Any) -> None:
        super().__init__(fn)
        self.often, self.seldom = nn.Linear(WIDTH, 3), nn.Linear(WIDTH, 3)

    def message(self, edges: Any) -> dict[str, torch.Tensor]:
        out = self.often(edges.src["x"])
        seldom = edges.data["kind"] == 2
        if seldom.any():
            out = out.clone()
            out[seldom] = self.seldom(edges.src["x"][seldom])
        return {"m": torch.tanh(out)}

    def forward(self, graph: Any) -> torch.Tensor:
        graph.update_all(self.message, self.fn.max("m", "out"))
        return graph.dstdata["out"]


class Wide(Model):
    """A wide layer; a part without gradients."""

    def __init__(self, fn: Any) -> None:
        super().__init__(fn)
        self.layers = nn.Sequential(nn.Linear(2 * WIDTH, 1024), nn.ReLU(), nn.Linear(1024, 4))

    def message(self, edges: Any) -> dict[str, torch.Tensor]:
        with torch.no_grad():
            scale = (edges.src["x"] * edges.dst["y"]).sum(1, keepdim=True).sigmoid()
        return {"m": self.layers(torch.cat([edges.src["x"], edges.dst["y"] - edges.src["x"]], 1)) * scale}


MODELS = [
    Plain,
    Parameters,
    Extremum,
    Minimum,
    Captured,
    CapturedByReducer,
    DestinationOnly,
    Typed,
    OnEdges,
    Integers,
    Lazy,
    Picky,
    Mailbox,
    Lstm,
    Both,
    Counting,
    CountingMailbox,
    Branching,
    Wide,
]


class Several(nn.Module):
    """multi_update_all on a graph of several types: ``way`` says how."""

    def __init__(self, fn: Any, triples: list[tuple[str, str, str]], way: str) -> None:
        super().__init__()
        self.fn, self.triples, self.way = fn, triples, way
        self.linears = nn.ModuleList([nn.Linear(6, 6) for _ in triples])

    def functions(self, reducers: list[str]) -> dict[Any, tuple[Any, ...]]:
        """Built-in functions for each relation, backwards, so that the order of relations is another."""
        pairs = reversed(list(enumerate(self.triples)))
        made = [getattr(self.fn, reducer)("m", "o") for reducer in reducers]
        return {triple: (self.fn.copy_u("h", "m"), made[n % len(made)]) for n, triple in pairs}

    def written(self) -> dict[Any, tuple[Any, ...]]:
        """Python functions: messages with parameters, a reduce function, apply_node_func of a relation."""
        found: dict[Any, tuple[Any, ...]] = {}
        for linear, triple in zip(self.linears, self.triples):
            send = lambda edges, linear=linear: {"m": torch.tanh(linear(edges.src["h"]) + edges.dst["h"])}  # noqa: E731
            found[triple] = (send, self.fn.mean("m", "o"))
        found["cites"] = (found.pop(("paper", "cites", "paper"))[0], lambda nodes: {"o": nodes.mailbox["m"].prod(1)})
        rest = found["writes"] = found.pop(("author", "writes", "paper"))
        found["writes"] = (*rest, lambda nodes: {"o": nodes.data["o"] * nodes.data["h"], "extra": nodes.data["h"]})
        return found

    def forward(self, graph: Any) -> dict[str, torch.Tensor]:
        fn, way = self.fn, self.way
        if way == "written":
            graph.multi_update_all(self.written(), "sum", lambda nodes: {"o": nodes.data["o"] + nodes.data["h"]})
        elif way == "function":
            graph.multi_update_all(self.functions(["sum"]), lambda given: sum(t * (i + 1) for i, t in enumerate(given)))
        elif way.startswith("all "):
            graph.update_all(fn.copy_u("h", "m"), getattr(fn, way[4:])("m", "o"))
        elif way == "edges":
            graph.apply_edges(fn.u_mul_v("h", "h", "w"))
            calls = {t: (fn.copy_e("w", "m"), fn.sum("m", "o")) for t in self.triples}
            graph.multi_update_all(calls, "max")
        else:
            cross, *reducers = way.split()
            graph.multi_update_all(self.functions(reducers), cross)
        return {kind: graph.nodes[kind].data["o"] for kind in ("author", "field", "paper", "venue")}


WAYS = [f"{cross} {how}" for cross in ("sum", "mean", "max", "min", "stack") for how in ("sum", "max", "min mean max")]
WAYS += ["written", "function", "edges", "all sum", "all max", "all min"]
