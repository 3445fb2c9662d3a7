"""What runs on the workers to pass messages: built-in functions, Python functions, several relations."""

from __future__ import annotations

import contextlib
import gc
from typing import Any, Iterator

import numpy as np
import torch

import sar
from tests.support.worker import build, numpy, refusal, tensor


def filled(part: dict[str, Any], columns: dict[str, np.ndarray], weights: dict[str, np.ndarray]) -> tuple[Any, ...]:
    """A graph with columns of nodes and edges; floats are leaves that need gradients."""
    graph = build(part)
    nodes = {name: leaf(array) for name, array in columns.items()}
    edges = {name: leaf(array) for name, array in weights.items()}
    graph.ndata.update(nodes)
    graph.edata.update(edges)
    return graph, nodes, edges


def leaf(array: np.ndarray) -> torch.Tensor:
    made = tensor(array, array.dtype.kind == "f")
    assert made is not None
    return made


def gradients(leaves: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Gradients by name, zeros where there is none; and forgets them."""
    found = {k: numpy(torch.zeros_like(t) if t.grad is None else t.grad) for k, t in leaves.items() if t.requires_grad}
    for t in leaves.values():
        t.grad = None
    return found


def builtins(
    part: dict[str, Any],
    columns: dict[str, np.ndarray],
    weights: dict[str, np.ndarray],
    calls: list[tuple[str, list[str], str | None]],
    upstream: list[np.ndarray],
    needs: tuple[bool, bool] = (True, True),
    strided: bool = False,
) -> list[dict[str, Any]]:
    """Built-in messages with a reducer, or left on the edges: results, and gradients of all columns.

    :param needs: whether columns of nodes and of edges need gradients
    :param strided: columns of nodes are every second column of a wider tensor
    """
    graph, nodes, edges = filled(part, columns, weights)
    for leaves, needed in zip((nodes, edges), needs):
        for t in leaves.values():
            t.requires_grad_(needed)
    if strided:
        graph.ndata.update({name: torch.stack([t, torch.full_like(t, 7.0)], -1)[..., 0] for name, t in nodes.items()})
    results = []
    for (message, fields, reduce), grad in zip(calls, upstream):
        with graph.local_scope():
            send = getattr(sar.function, message)(*fields, "m")
            if reduce is None:
                graph.apply_edges(send)
                out = graph.edata["m"]
                out = out if isinstance(out, torch.Tensor) else out.materialize()
            else:
                graph.update_all(send, getattr(sar.function, reduce)("m", "out"))
                out = graph.dstdata["out"]
        assert set(graph.ndata) == set(nodes)
        if out.requires_grad:
            out.backward(torch.from_numpy(grad))
        found = {"out": numpy(out), "requires_grad": out.requires_grad}
        results.append({**found, "nodes": gradients(nodes), "edges": gradients(edges)})
    return results


def model(
    part: dict[str, Any],
    columns: dict[str, np.ndarray],
    weights: dict[str, np.ndarray],
    name: str,
    upstream: np.ndarray,
    settings: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A model of ``message_functions``: result, gradients of columns and, over all ranks, of parameters."""
    from tests.parity import message_functions

    saved = {key: getattr(sar.Config, key) for key in settings or {}}
    for key, value in (settings or {}).items():
        setattr(sar.Config, key, value)
    try:
        graph, nodes, edges = filled(part, columns, weights)
        torch.manual_seed(3)
        net = getattr(message_functions, name)(sar.function).to(torch.from_numpy(upstream).dtype)
        with graph.local_scope():
            out = net(graph)
        out.backward(torch.from_numpy(upstream))
        sar.gather_grads(net)
    finally:
        for key, value in saved.items():
            setattr(sar.Config, key, value)
    return {
        "out": numpy(out),
        "nodes": gradients(nodes),
        "edges": gradients(edges),
        "parameters": {k: numpy(p.grad) for k, p in net.named_parameters()},
        "buffers": numpy(dict(net.named_buffers())),
    }


def on_a_block(
    part: dict[str, Any],
    columns: dict[str, np.ndarray],
    weights: dict[str, np.ndarray],
    name: str,
    seeds: np.ndarray,
    upstream: np.ndarray,
) -> dict[str, Any]:
    """A model of ``message_functions`` on the edges into the seeds, whose destinations are fewer than its sources."""
    from tests.parity import message_functions
    from tests.support.worker import data_of

    (block,) = sar.construct_mfgs(data_of(part, weights), torch.from_numpy(seeds), 1)
    leaves = {name: leaf(array) for name, array in columns.items()}
    for column, values in leaves.items():
        block.srcdata[column] = values[block.input_nodes]
        block.dstdata[column] = values[block.seeds - int(part["start"][sar.rank()])]
    torch.manual_seed(3)
    net = getattr(message_functions, name)(sar.function).double()
    with block.local_scope():
        out = net(block)
    out.backward(torch.from_numpy(upstream))
    sar.gather_grads(net)
    parameters = {k: numpy(p.grad) for k, p in net.named_parameters()}
    return {"out": numpy(out), "nodes": gradients(leaves), "parameters": parameters}


def several(
    part: dict[str, Any], columns: dict[str, np.ndarray], upstream: dict[str, dict[str, np.ndarray]], ways: list[str]
) -> dict[str, Any]:
    """multi_update_all in several ways: results, gradients of columns and of parameters, by type."""
    from tests.parity import message_functions
    from tests.support import hetero
    from tests.support.worker import data_of

    graph = sar.construct_full_graph(data_of(part))
    leaves = {kind: leaf(array) for kind, array in columns.items()}
    results = {}
    for way in ways:
        torch.manual_seed(3)
        net = message_functions.Several(sar.function, hetero.TRIPLES, way).double()
        with graph.local_scope():
            graph.ndata["h"] = dict(leaves)
            out = net(graph)
        sum((out[k] * torch.from_numpy(upstream[way][k])).sum() for k in out).backward()
        sar.gather_grads(net)
        results[way] = {
            "out": numpy(out),
            "columns": gradients(leaves),
            "parameters": {k: numpy(p.grad) for k, p in net.named_parameters()},
        }
    return results


# ---- what functions are given ----------------------------------------------


def given_to_functions(part: dict[str, Any], node: np.ndarray) -> dict[str, Any]:
    """What ``edges`` and ``nodes`` say, for each edge and node: ids, sizes, shards."""
    graph = build(part)
    graph.ndata["id"] = torch.from_numpy(node)
    sar.Config.block_bytes = 1

    def message(edges: Any, sar_shard_info: Any = None) -> dict[str, torch.Tensor]:
        u, v, e = edges.edges()
        n = edges.batch_size()
        assert len(edges) == n and edges.canonical_etype == ("_N", "_E", "_N")
        assert next(iter(edges.src)) == "id" and "id" in edges.dst and len(edges.data) == 0
        info = sar_shard_info
        shard = torch.tensor([*info.src_node_range, *info.tgt_node_range, *info.edge_range])
        return {"ids": torch.stack([u, v, e], 1), "own": edges.src["id"], "shard": shard.expand(n, 6)}

    def reduce(nodes: Any) -> dict[str, torch.Tensor]:
        assert nodes.ntype == "_N" and len(nodes) == nodes.batch_size() == len(nodes.nodes())
        assert "id" in nodes.data and (nodes.data["id"] == nodes.nodes()).all()
        return {"node": nodes.nodes(), "shards": nodes.mailbox["shard"].sum(1), "n": nodes.mailbox["own"].sum(1)}

    try:
        graph.apply_edges(message)
        on_edges = dict(graph.edata)
        graph.edata.clear()
        graph.update_all(message, reduce)
        graph.update_all(message, sar.function.sum("shard", "summed"))
    finally:
        sar.Config.block_bytes = 8 << 20
    return numpy({**on_edges, **{k: graph.dstdata[k] for k in ("node", "shards", "n", "summed")}})


class Dropping(torch.nn.Module):
    """Dropout inside a message function, whose mask shows in the result and in the gradient."""

    def message(self, edges: Any) -> dict[str, torch.Tensor]:
        return {"m": torch.nn.functional.dropout(edges.src["x"], 0.5) * edges.data["w"]}

    def take(self, nodes: Any) -> dict[str, torch.Tensor]:
        return {"out": nodes.mailbox["m"].sum(1)}


def dropping(part: dict[str, Any], x: np.ndarray, w: np.ndarray, mailbox: bool, keep: bool) -> dict[str, Any]:
    """The gradient of w is the dropped row of its source, summed: with w as sum of both, out and gradient fit."""
    graph, _, edges = filled(part, {"x": x}, {"w": w})
    net = Dropping()
    sar.Config.block_bytes, sar.Config.disable_sr = 1, keep
    torch.manual_seed(sar.rank())
    before = torch.get_rng_state()
    try:
        with graph.local_scope():
            graph.update_all(net.message, net.take if mailbox else sar.function.sum("m", "out"))
            first = graph.dstdata["out"]
            graph.update_all(net.message, net.take if mailbox else sar.function.sum("m", "out"))
            second = graph.dstdata["out"]
        assert not torch.equal(before, torch.get_rng_state())
        state = torch.get_rng_state()
        first.sum().backward()
        assert torch.equal(state, torch.get_rng_state())
        torch.manual_seed(sar.rank())
        with graph.local_scope(), torch.no_grad():
            graph.update_all(net.message, net.take if mailbox else sar.function.sum("m", "out"))
            again = graph.dstdata["out"]
        assert not again.requires_grad
        torch.manual_seed(7)
        state = torch.get_rng_state()
        graph.update_all(lambda e: {"m": e.src["x"] * 2}, sar.function.sum("m", "out"))
        assert torch.equal(state, torch.get_rng_state()), "a function that draws nothing moves the generator"
    finally:
        sar.Config.block_bytes, sar.Config.disable_sr = 8 << 20, False
    return numpy({"first": first, "second": second, "again": again, "w": edges["w"].grad, "src": part["src"]})


def some_edges(part: dict[str, Any], x: np.ndarray, w: np.ndarray, chosen: np.ndarray) -> dict[str, Any]:
    """apply_edges on some edges: a Python function, then a built-in, the rest of the column kept."""
    graph, nodes, edges = filled(part, {"x": x}, {"w": w})
    at = torch.from_numpy(chosen)
    graph.apply_edges(lambda e: {"n": e.src["x"] * e.dst["x"]}, at)
    first = graph.edata["n"]
    mask = torch.zeros(len(w), dtype=torch.bool).index_fill(0, at, True)
    graph.apply_edges(sar.function.u_add_v("x", "x", "w"), mask)
    second = graph.edata["w"]
    (first.sum() + (second * second).sum()).backward()
    return {"first": numpy(first), "second": numpy(second), "nodes": gradients(nodes), "edges": gradients(edges)}


class Odd(torch.nn.Module):
    """Parameters that neither a trial nor a closure shows: declared."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2).double()
        self.batch = torch.nn.BatchNorm1d(2).double()

    @sar.message_has_parameters(lambda self: tuple(self.linear.parameters()))
    def message(self, edges: Any) -> dict[str, torch.Tensor]:
        return {"m": self.batch(self.linear(edges.src["x"]))}


def running_statistics(part: dict[str, Any], x: np.ndarray) -> dict[str, Any]:
    """Neither the trial nor the second run changes the buffers of a module."""
    graph, _, _ = filled(part, {"x": x}, {})
    net = Odd()
    assert net.message.__func__ is Odd.message
    graph.update_all(net.message, sar.function.sum("m", "out"))
    counted = net.batch.num_batches_tracked.clone()
    graph.dstdata["out"].sum().backward()
    return {"batches": int(counted), "after": int(net.batch.num_batches_tracked), "grad": numpy(net.linear.weight.grad)}


# ---- memory and errors -----------------------------------------------------


def peak(sizes: list[int], width: int, mailbox: bool) -> list[dict[str, int]]:
    """Resident bytes that messages of ``width`` float32 add to what is there, forward and backward, for each number of
    edges. All nodes get equally many; most sources are another worker's."""
    spread = torch.linspace(0, 1, width)
    sar.Config.window_bytes = 1 << 20
    try:
        graphs = [even_graph(1024, edges) for edges in sizes]
        step(graphs[0], spread, mailbox)  # what is loaded and pooled at the first time
        found = []
        for graph in graphs:
            with resident() as growth:
                step(graph, spread, mailbox)
            found.append({"growth": growth[0], "messages": graph.num_edges() * width * 4})
        return found
    finally:
        sar.Config.window_bytes = None
        graph.update_all(sar.function.copy_u("x", "m"), sar.function.sum("m", "out"))  # back to the default


def even_graph(nodes: int, edges: int) -> sar.GraphShardManager:
    own = nodes // sar.world_size()
    dst = torch.arange(own * sar.rank(), own * (sar.rank() + 1)).repeat_interleave(edges // nodes)
    src = (dst + torch.arange(len(dst)) * 7919) % nodes
    graph = build({"start": np.arange(sar.world_size() + 1) * own, "src": src.numpy(), "dst": dst.numpy()})
    graph.ndata["x"] = torch.ones(own, 1, requires_grad=True)
    return graph


def step(graph: sar.GraphShardManager, spread: torch.Tensor, mailbox: bool) -> None:
    """A Python message function forward and backward, with a Python reduce function or without."""
    reduce = (lambda n: {"out": n.mailbox["m"].mean(1)}) if mailbox else sar.function.sum("m", "out")
    with graph.local_scope():
        graph.update_all(lambda e: {"m": e.src["x"] * spread}, reduce)
        graph.dstdata["out"].sum().backward()


@contextlib.contextmanager
def resident() -> Iterator[list[int]]:
    """How far the resident size rises above what it is at the start: the kernel's own high-water mark."""

    def status(key: str) -> int:
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) << 10 for line in lines if line.startswith(key))

    gc.collect()
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")  # the peak starts anew
    before, found = status("VmRSS"), [0]
    yield found
    found[0] = status("VmHWM") - before


def mistakes(part: dict[str, Any]) -> dict[str, str]:
    """What is said about functions that return what they must not, by name of the mistake; the same on all workers."""
    fn = sar.function
    n = len(part["start"]) and int(part["start"][sar.rank() + 1] - part["start"][sar.rank()])
    send = fn.copy_u("x", "m")

    def box(nodes: Any) -> Any:
        return {"out": nodes.mailbox["m"].sum(1)}

    calls: dict[str, Any] = {
        "unknown source": lambda g: g.update_all(lambda e: {"m": e.src["q"]}, fn.sum("m", "out")),
        "unknown destination": lambda g: g.update_all(lambda e: {"m": e.dst["q"]}, box),
        "unknown edge": lambda g: g.apply_edges(lambda e: {"m": e.data["q"]}),
        "wrong key": lambda g: g.update_all(lambda e: {"k": e.src["x"], "l": e.src["x"]}, fn.sum("m", "out")),
        "wrong message": lambda g: g.update_all(send, fn.sum("k", "out")),
        "no dictionary": lambda g: g.update_all(lambda e: e.src["x"], fn.sum("m", "out")),
        "no tensor": lambda g: g.update_all(lambda e: {"m": 3}, fn.sum("m", "out")),
        "rows": lambda g: g.update_all(lambda e: {"m": e.src["x"][:1]}, fn.sum("m", "out")),
        "scalar": lambda g: g.apply_edges(lambda e: {"m": e.src["x"].sum()}),
        "reduced rows": lambda g: g.update_all(send, lambda n: {"out": n.mailbox["m"].sum(0)}),
        "mailbox key": lambda g: g.update_all(send, lambda n: {"out": n.mailbox["k"].sum(1)}),
        "node column": lambda g: g.update_all(send, lambda n: {"out": n.data["q"]}),
        "apply": lambda g: g.update_all(send, fn.sum("m", "out"), lambda n: {"out": n.data["out"][:0].sum()}),
        "own error": lambda g: g.update_all(lambda e: {"m": e.src["x"] @ torch.ones(9, 9)}, fn.sum("m", "out")),
        "reducer": lambda g: g.update_all(send, "sum"),
        "message": lambda g: g.update_all(None, fn.sum("m", "out")),
        "relation": lambda g: g.update_all(send, fn.sum("m", "out"), etype="likes"),
        "cross": lambda g: g.multi_update_all({"_E": (send, fn.sum("m", "out"))}, "prod"),
        "tuple": lambda g: g.multi_update_all({"_E": send}, "sum"),
        "edges": lambda g: g.apply_edges(lambda e: {"m": e.src["x"]}, torch.tensor([1 << 40])),
    }
    graph = build(part)
    graph.ndata["x"] = torch.ones(n, 2)
    return {name: refusal(call, graph) for name, call in calls.items()}


def changes_shape(part: dict[str, Any], kind: str) -> None:
    """A reduce function whose results depend on how many messages a node has, or a message function whose results
    depend on the rank."""
    graph = build(part)
    graph.ndata["x"] = torch.ones(int(np.diff(part["start"])[sar.rank()]), 2)
    if kind == "mailbox":
        box = lambda n: {"out": n.mailbox["m"].sum(1)[:, : 1 + n.mailbox["m"].shape[1] % 2]}  # noqa: E731
        graph.update_all(sar.function.copy_u("x", "m"), box)
    else:
        graph.update_all(lambda e: {"m": e.src["x"][:, : 1 + sar.rank()]}, sar.function.sum("m", "out"))
