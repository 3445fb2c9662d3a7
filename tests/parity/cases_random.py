"""Random programs of message passing: their interpreter, which runs them on DGL and on workers alike.

A program is a dictionary of plain values (:mod:`random_programs` draws it). It works on values by name, with one row
per node of a type or per edge of a relation; each step adds one::

    {"op": "update", "rel": 0, "message": ["u_mul_e", "a", "b"], "reduce": "max", "out": "c"}
"""

from __future__ import annotations

import importlib
from typing import Any, Callable

import numpy as np
import torch
from torch import Tensor

import sar
from sar.autograd import expression
from sar.graph.edge_tensor.tensor import EdgeTensor, as_expr
from tests.support.worker import data_of

Env = dict[str, Any]

BUFFER = 3
"""Numbers in the buffer of a program: sums over rows, over edges, over some edges."""

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "leaky_relu": lambda x: torch.nn.functional.leaky_relu(x, 0.2),
    "double": lambda x: 2 * x,
    "half_more": lambda x: x / 2 + 1,
    "square": lambda x: x * x,
    "exp_tanh": lambda x: torch.exp(torch.tanh(x)),
}

# Python functions of edges: names of a source, a destination and an edge column, and a parameter (or None) for each.
MESSAGES: dict[str, Callable[..., Callable[[Any], dict[str, Tensor]]]] = {
    "source": lambda u, v, e, w: lambda edges: {"m": edges.src[u] * 3 - 1},
    "both": lambda u, v, e, w: lambda edges: {"m": torch.tanh(edges.src[u] + edges.dst[v])},
    "gate": lambda u, v, e, w: lambda edges: {"m": torch.sigmoid(edges.src[u]) * edges.data[e]},
    "all": lambda u, v, e, w: lambda edges: {"m": edges.src[u] * edges.dst[v] + edges.data[e]},
    "target": lambda u, v, e, w: lambda edges: {"m": torch.sin(edges.dst[v])},
    "edge": lambda u, v, e, w: lambda edges: {"m": edges.data[e] ** 2},
    "linear": lambda u, v, e, w: lambda edges: {"m": torch.tanh(edges.src[u] @ w)},
    "weighed": lambda u, v, e, w: lambda edges: {"m": (edges.src[u] - edges.dst[v]) @ w},
}


def _adds(buffer: Tensor, rows: Tensor) -> None:
    """A sum over the rows of all workers, up to the order of adding up."""
    buffer.add_(torch.tanh(rows.detach().to(buffer.dtype)).sum())


def _counting(u: str, v: str, e: str, w: Any, buffer: Tensor) -> Callable[[Any], dict[str, Tensor]]:
    """Counts edges, and adds up what it sees."""

    def message(edges: Any) -> dict[str, Tensor]:
        buffer[1] += len(edges)
        _adds(buffer[0], edges.src[u])
        return {"m": torch.sin(edges.src[u])}

    return message


def _writing(u: str, v: str, e: str, w: Any, buffer: Tensor) -> Callable[[Any], dict[str, Tensor]]:
    """Changes its messages in place."""

    def message(edges: Any) -> dict[str, Tensor]:
        h = edges.src[u] * 2
        h[..., 0] = edges.dst[v][..., 0]
        return {"m": h.mul_(edges.dst[v]).sub_(1)}

    return message


def _views(u: str, v: str, e: str, w: Tensor, buffer: Tensor) -> Callable[[Any], dict[str, Tensor]]:
    """Changes what it computed through views of it."""

    def message(edges: Any) -> dict[str, Tensor]:
        h = edges.src[u] * edges.dst[v]
        flat, last = h.flatten(1), h[..., -1:]
        flat[:, 0].add_(0.5)
        h.mul_(2)
        last.sub_(edges.dst[v][..., :1])
        return {"m": h + flat.view(h.shape) * 0.5}

    return message


def _branching(u: str, v: str, e: str, w: Tensor, buffer: Tensor) -> Callable[[Any], dict[str, Tensor]]:
    """Reads rows of sources, and a parameter, where an edge has a large number: on some workers alone."""

    def message(edges: Any) -> dict[str, Tensor]:
        h = torch.tanh(edges.dst[v])
        many = edges.data[e].detach().flatten(1).sum(1) > 1
        if many.any():
            buffer[2] += many.sum()
            h = h.clone()
            h[many] = torch.tanh(edges.src[u][many] @ w)
        return {"m": h}

    return message


# Such functions with side effects: they get a buffer besides.
WITH_BUFFERS: dict[str, Callable[..., Callable[[Any], dict[str, Tensor]]]] = {
    "counting": _counting,
    "writing": _writing,
    "views": _views,
    "branching": _branching,
    "wide": lambda u, v, e, w, buffer: lambda edges: {"m": torch.tanh(torch.sin(edges.src[u] @ w) @ w.mT / 32)},
}

# Python functions of nodes: the column of messages, of nodes, and a parameter.
REDUCERS: dict[str, Callable[..., Callable[[Any], dict[str, Tensor]]]] = {
    "logsumexp": lambda n, w: lambda nodes: {"o": nodes.mailbox["m"].logsumexp(1)},
    "squares": lambda n, w: lambda nodes: {"o": (nodes.mailbox["m"] ** 2).mean(1)},
    "with_node": lambda n, w: lambda nodes: {"o": nodes.mailbox["m"].sum(1) * nodes.data[n]},
    "linear": lambda n, w: lambda nodes: {"o": nodes.mailbox["m"].sum(1) @ w},
}


def interpret(side: Any, program: dict[str, Any], env: Env) -> None:
    """Runs the steps; ``side`` is :class:`Workers` or DGL's counterpart of it. Results are added to ``env``."""
    for step in program["steps"]:
        made = side.known(step)
        env[step["out"]] = STEPS[step["op"]](side, step, env) if made is None else made


def _fill(side: Any, step: Any, env: Env) -> tuple[Any, tuple[str, str, str]]:
    """Gives the graph the columns that a step names."""
    triple = side.triples[step["rel"]]
    names = {"u": step.get("u", []), "v": step.get("v", []), "e": step.get("e", [])}
    for name in names["u"]:
        side.graph.nodes[triple[0]].data[name] = env[name]
    for name in names["v"]:
        side.graph.nodes[triple[2]].data[name] = env[name]
    for name in names["e"]:
        side.graph.edges[triple].data[name] = env[name]
    return side.graph, triple


def _message(side: Any, step: Any, env: Env) -> Any:
    name, *rest = step["message"]
    if name in MESSAGES:
        u, v, e, w = rest
        return MESSAGES[name](u, v, e, env.get(w))
    if name in WITH_BUFFERS:
        u, v, e, w = rest
        return WITH_BUFFERS[name](u, v, e, env.get(w), env["buffer"])
    return getattr(side.function, name)(*rest, "m")


def _reducer(side: Any, step: Any, env: Env) -> Any:
    if isinstance(step["reduce"], str):
        return getattr(side.function, step["reduce"])("m", "o")
    name, node, w = step["reduce"]
    return REDUCERS[name](node, env.get(w))


def update(side: Any, step: Any, env: Env) -> Any:
    with side.graph.local_scope():
        graph, triple = _fill(side, step, env)
        graph.update_all(_message(side, step, env), _reducer(side, step, env), etype=triple)
        return graph.nodes[triple[2]].data["o"]


def edges(side: Any, step: Any, env: Env) -> Any:
    with side.graph.local_scope():
        graph, triple = _fill(side, step, env)
        graph.apply_edges(_message(side, step, env), etype=triple)
        return graph.edges[triple].data["m"]


def softmax(side: Any, step: Any, env: Env) -> Any:
    return side.softmax(side.graph[side.triples[step["rel"]]], env[step["a"]], step["norm"])


def attend(side: Any, step: Any, env: Env) -> Any:
    """Attention as layers write it: scores of edges, activations, softmax, a weighted sum."""
    with side.graph.local_scope():
        graph, triple = _fill(side, step, env)
        graph.apply_edges(_message(side, step, env), etype=triple)
        weights = graph.edges[triple].data["m"]
        for name in step["chain"]:
            weights = ACTIVATIONS[name](weights)
        graph.edges[triple].data["w"] = side.softmax(graph[triple], weights, step["norm"])
        value = step["value"]
        message = side.function.copy_e("w", "m") if value is None else side.function.u_mul_e(value, "w", "m")
        graph.update_all(message, side.function.sum("m", "o"), etype=triple)
        return graph.nodes[triple[2]].data["o"]


def blocks(side: Any, step: Any, env: Env) -> Any:
    return side.blocks(step, env[step["a"]])


def activate(side: Any, step: Any, env: Env) -> Any:
    return ACTIVATIONS[step["f"]](env[step["a"]])


def combine(side: Any, step: Any, env: Env) -> Any:
    a, b = env[step["a"]], env[step["b"]]
    return a + b if step["f"] == "add" else a * b


def multiply(side: Any, step: Any, env: Env) -> Any:
    return env[step["a"]] @ env[step["w"]]


def multi(side: Any, step: Any, env: Env) -> Any:
    with side.graph.local_scope():
        functions = {}
        for part in step["parts"]:
            _, triple = _fill(side, part, env)
            functions[triple] = (_message(side, part, env), _reducer(side, part, env))
        side.graph.multi_update_all(functions, step["cross"])
        return side.graph.nodes[triple[2]].data["o"]


def expr(side: Any, step: Any, env: Env) -> Any:
    return side.evaluate(step["rel"], step["tree"], step["reduce"], env)


STEPS: dict[str, Callable[[Any, Any, Env], Any]] = {
    "update": update,
    "edges": edges,
    "softmax": softmax,
    "attend": attend,
    "blocks": blocks,
    "activate": activate,
    "combine": combine,
    "multiply": multiply,
    "multi": multi,
    "expr": expr,
}


# ---- on workers --------------------------------------------------------------


class Workers:
    """A program's graph, and what runs on it."""

    function = sar.function

    def __init__(self, part: dict[str, Any], triples: list[tuple[str, str, str]]) -> None:
        self.data = data_of(part)
        self.graph = sar.construct_full_graph(self.data)
        self.triples = triples

    @staticmethod
    def known(step: Any) -> Any:
        """The result of a step that is not run."""
        return None

    @staticmethod
    def softmax(graph: Any, value: Any, norm_by: str) -> Any:
        # the package has a function and a module of this name
        return importlib.import_module("sar.edge_softmax").edge_softmax(graph, value, norm_by=norm_by)

    def blocks(self, step: Any, h: Tensor) -> Tensor:
        """Layers on the blocks of some nodes; rows of the others are 0."""
        low, high = self.data.node_ranges[sar.rank()]
        seeds = torch.tensor([n for n in step["seeds"] if low <= n < high], dtype=torch.int64)
        made = sar.construct_mfgs(self.data, seeds, step["layers"], step["keep"])
        whole = torch.zeros_like(h)
        h = h[made[0].input_nodes]
        for block in made:
            with block.local_scope():
                block.srcdata["h"] = h
                message = self.function.copy_u("h", "m")
                if step["keep"]:
                    block.dstdata["d"] = h[: block.num_dst_nodes()]
                    message = self.function.u_add_v("h", "d", "m")
                block.update_all(message, getattr(self.function, step["reduce"])("m", "o"))
                h = torch.tanh(block.dstdata["o"])
        return whole.index_copy(0, made[-1].seeds - low, h)

    def evaluate(self, rel: int, tree: Any, reduce: str | None, env: Env) -> Any:
        relation = self.graph._relation(self.triples[rel])
        return expression.evaluate(relation, self._expr(tree, env), reduce)

    def _expr(self, tree: Any, env: Env) -> expression.Expr:
        op, *rest = tree
        if op == "load":
            return as_expr(env[rest[1]], rest[0])
        if op == "param":
            return expression.param(env[rest[0]])
        if op == "binary":
            return expression.binary(rest[0], self._expr(rest[1], env), self._expr(rest[2], env))
        if op == "unary":
            return expression.unary(rest[0], self._expr(rest[1], env), rest[2])
        if op == "total":
            return expression.total(self._expr(rest[0], env), rest[1], rest[2])
        assert op == "softmax"
        return expression.softmax(self._expr(rest[0], env))


def programs(batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs programs one after the other, forward and backward; outputs and gradients of each. Every other pushes."""
    results = []
    try:
        for number, one in enumerate(batch):
            sar.Config.exchange = ("auto", "push")[number % 2]
            results.append(_run(**one))
    finally:
        sar.Config.exchange = "auto"
    return results


def _run(
    program: dict[str, Any],
    part: dict[str, Any],
    triples: list[tuple[str, str, str]],
    leaves: dict[str, np.ndarray],
    wants: list[str],
    strided: list[str],
    grads: dict[str, np.ndarray],
) -> dict[str, Any]:
    env: Env = {name: torch.from_numpy(x.copy()).requires_grad_(name in wants) for name, x in leaves.items()}
    given = dict(env)
    env["buffer"] = torch.zeros(BUFFER, dtype=torch.float64)
    for name in strided:  # the same values, every second one of a larger tensor
        env[name] = torch.stack([env[name], env[name].detach()], dim=-1)[..., 0]
    interpret(Workers(part, triples), program, env)
    outputs = {name: env[name] for name in grads}
    loss = sum((out * torch.from_numpy(grads[name])).sum() for name, out in outputs.items())
    if isinstance(loss, Tensor) and loss.requires_grad:
        loss.backward()
    values = {name: out.materialize() if isinstance(out, EdgeTensor) else out for name, out in outputs.items()}
    return {
        "buffer": env["buffer"].numpy().copy(),
        "out": {name: value.detach().numpy().copy() for name, value in values.items()},
        "grad": {name: None if t.grad is None else t.grad.numpy().copy() for name, t in given.items()},
    }
