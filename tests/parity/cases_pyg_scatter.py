"""Messages that are added up by torch's own functions, and maxima and minima of messages and of the nodes of graphs:
NaN, infinities, zeros and equal numbers among them. The same code for a whole graph and for the workers."""

from __future__ import annotations

import math
from typing import Any, Callable

import numpy as np
import torch
from torch import Tensor

from tests.parity.cases_pyg import graph_index, warned
from tests.parity.pyg_specs import pyg_nn
from tests.support.graphs import Graph
from tests.support.worker import numpy, refusal

INDEX: dict[str, Callable[[Any, Any], Any]] = {
    "view": lambda at, m: at.view(-1, 1).expand(-1, m.size(1)),
    "reshape": lambda at, m: at.reshape(-1, 1).expand(m.shape),
    "unsqueeze": lambda at, m: at.unsqueeze(1).expand_as(m),
    "unsqueeze_last": lambda at, m: at.unsqueeze(-1).expand(*m.shape),
    "item": lambda at, m: at[:, None].repeat(1, m.shape[-1]),
    "dots": lambda at, m: at[..., None].expand(m.size(0), m.size(1)),
    "transposed": lambda at, m: at.expand(m.size(1), -1).t(),
    "rows": lambda at, m: at[None].expand(m.size(1), at.shape[0]).transpose(0, 1),
    "permuted": lambda at, m: at.repeat(m.size(1), 1).permute(1, 0),
    "broadcast": lambda at, m: torch.broadcast_to(at.view(-1, 1), m.shape),
    "tiled": lambda at, m: at.unsqueeze(1).tile(1, m.shape[1]).contiguous(),
    "moved": lambda at, m: at.view(1, -1).expand(m.size(1), -1).movedim(0, 1).long(),
}
"""Ways to write the index of ``scatter``."""

ADDED: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "scatter_add_": lambda o, at, wide, m: o.scatter_add_(0, wide, m),
    "scatter_add": lambda o, at, wide, m: torch.scatter_add(o, 0, wide, m),
    "dim": lambda o, at, wide, m: o.scatter_add_(-2, wide, m),
    "index_add_": lambda o, at, wide, m: o.index_add_(0, at, m, alpha=2),
    "index_add": lambda o, at, wide, m: o.index_add(0, at, m),
    "index_put_": lambda o, at, wide, m: o.index_put_((at,), m, accumulate=True),
    "index_put": lambda o, at, wide, m: torch.index_put(o, (at,), m, accumulate=True),
    "counted": lambda o, at, wide, m: o.index_put_((at,), torch.ones((), dtype=o.dtype), accumulate=True),
    "sum": lambda o, at, wide, m: o.scatter_reduce_(0, wide, m, "sum"),
    "sum_alone": lambda o, at, wide, m: o.scatter_reduce(0, wide, m, "sum", include_self=False),
    "mean": lambda o, at, wide, m: o.scatter_reduce(0, wide, m, reduce="mean"),
    "mean_alone": lambda o, at, wide, m: o.scatter_reduce_(0, wide, m, "mean", include_self=False),
    "index_mean": lambda o, at, wide, m: o.index_reduce_(0, at, m, "mean", include_self=False),
    "reduce": lambda o, at, wide, m: o.scatter_(0, wide, m.detach(), reduce="add"),
    "fill": lambda o, at, wide, m: o.index_fill_(0, at, 0.5),
    "set": lambda o, at, wide, m: put(o, at, 2.0) + 0,
}
"""What is done with it at both ends of edges."""

REDUCED: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "amax": lambda o, at, wide, m: o.scatter_reduce_(0, wide, m, "amax"),
    "amin": lambda o, at, wide, m: o.scatter_reduce(0, wide, m, "amin", include_self=False),
    "prod": lambda o, at, wide, m: torch.scatter_reduce(o, 0, wide, m, "prod"),
    "index_amax": lambda o, at, wide, m: o.index_reduce_(0, at, m, "amax"),
    "multiply": lambda o, at, wide, m: o.scatter_(0, wide, m.detach(), reduce="multiply"),
}
"""And at destinations alone."""


def put(out: Tensor, index: Any, value: float) -> Tensor:
    out[index] = value
    return out


def scattered(index: Any, x: np.ndarray, first: np.ndarray, side: int) -> dict[str, Any]:
    """Results of all ways, in the tensors that they were written into, and the gradients of rows of nodes."""
    found: dict[str, Any] = {}
    ways = {f"{a} sum": (a, ADDED["scatter_add_"]) for a in INDEX}
    ways.update({b: ("view", op) for b, op in {**ADDED, **(REDUCED if side else {})}.items()})
    for name, (made, function) in ways.items():
        rows = torch.from_numpy(x).requires_grad_()
        out = torch.from_numpy(first.copy())
        at = index[side]
        message = torch.tanh(rows[index[0]] * rows[index[1]].sum(-1, keepdim=True) + 1)
        result = function(out, at, INDEX[made](at, message), message)
        if result.requires_grad:
            (result * torch.cos(torch.arange(result.shape[1]))).sum().backward()
        found[name] = numpy([result.detach(), torch.zeros_like(rows) if rows.grad is None else rows.grad])
        found[name].append(out.detach().numpy())
    return found


def on_worker(part: dict[str, Any], x: np.ndarray, first: np.ndarray, side: int) -> dict[str, Any]:
    index = graph_index(part)
    with warned() as said:
        found = scattered(index, x, first, side)
    return {**found, "said": said}


REFUSED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "__setitem__": lambda o, at, m: _augmented(o, at, m),
    "index_copy_": lambda o, at, m: o.index_copy_(0, at, m),
    "scatter_": lambda o, at, m: o.scatter_(0, at.view(-1, 1).expand_as(m), m),
    "index_put_": lambda o, at, m: o.index_put_((at,), m),
}


def _augmented(o: Any, at: Any, m: Any) -> None:
    o[at] += m


def refused(part: dict[str, Any]) -> dict[str, str]:
    """What says that one of several edges would win."""
    index, said = graph_index(part), {}
    x = torch.randn(index.edges.rows("v"), 3)
    for name, function in REFUSED.items():
        said[name] = refusal(function, torch.zeros(index.edges.rows("v"), 3), index[1], x[index[0]] * 2)
    return said


def softmaxes(index: Any, x: np.ndarray) -> dict[str, list[np.ndarray]]:
    """Softmaxes that are spelled out, step by step, and what is written into the logits in between."""
    from torch_geometric.utils import scatter

    found: dict[str, list[np.ndarray]] = {}
    row, col = index
    for name in ("as it is", "in blocks", "twice", "logits changed"):
        rows = torch.from_numpy(x).requires_grad_()
        logits = rows[row] * rows[col] if name != "in blocks" else (rows[row] * rows[col]).flip(-1)
        most = scatter(logits.detach(), col, 0, len(x), "max")
        shifted = logits - most[col]
        if name == "logits changed":
            logits.mul_(2)
        power = shifted.exp()
        total = scatter(power, col, 0, len(x), "sum") + 1e-16
        weight = power / total[col]
        assert type(weight) is torch.Tensor or weight.computation.op == "softmax"  # type: ignore[attr-defined]
        weight = weight * (power / total[col]) if name == "twice" else weight
        out = scatter(weight * rows[row] + logits, col, 0, len(x), "sum")
        (out * torch.arange(1.0, 1 + out.shape[1])).sum().backward()
        assert rows.grad is not None
        found[name] = numpy([out, rows.grad])
    return found


def softmaxes_on_worker(part: dict[str, Any], x: np.ndarray) -> dict[str, list[np.ndarray]]:
    return softmaxes(graph_index(part), x)


WIDTH, GRAPHS = 4, 5
FEW = (0.0, -1.0, 2.0, math.inf, -math.inf, math.nan)
SHARES = (0.3, 0.3, 0.334, 0.03, 0.03, 0.006)

# what is reduced of rows of sources, of destinations, and of edges
MESSAGES: dict[str, Callable[[Any, Any, Any], torch.Tensor]] = {
    "sources": lambda j, i, e: j,
    "both ends": lambda j, i, e: j + i,
    "edges": lambda j, i, e: e,
    "edges at sources": lambda j, i, e: e,
    "weighted": lambda j, i, e: j * e,
    "in blocks": lambda j, i, e: j.flip(-1),
    "values": lambda j, i, e: (j.flip(-1) + 0).data + e,
}


def draw(graph: Graph, dtype: str) -> dict[str, np.ndarray]:
    """Rows of nodes and edges, gradients and graphs of nodes. The first column is of sources that win with 0."""
    rng = np.random.default_rng(71)
    x, e = (rng.choice(FEW, (n, WIDTH), p=SHARES).astype(dtype) for n in (graph.num_nodes, len(graph.src)))
    x[:, 0] = rng.choice([0.0, -1.0], graph.num_nodes)
    e[:, 0] = rng.choice([0.5, 1.0], len(graph.src))
    grad = rng.integers(1, 9, (graph.num_nodes, WIDTH)).astype(dtype)
    return {"x": x, "e": e, "grad": grad, "batch": rng.choice([0, 1, 2, 4], graph.num_nodes)}


def of_messages(edge_index: Any, message: str, op: str, columns: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The result, that without gradients, and the gradients of nodes and edges."""
    from torch_geometric.utils import scatter

    x, e = (torch.from_numpy(columns[name].copy()).requires_grad_() for name in ("x", "e"))

    def reduced() -> torch.Tensor:
        row, col = edge_index
        if message == "edges":
            return scatter(e, col, 0, len(x), op)
        if message == "edges at sources":
            return scatter(e, row, 0, len(x), op)
        return scatter(MESSAGES[message](x[row], x[col], e), col, 0, len(x), op)

    out = reduced()
    out.backward(torch.from_numpy(columns["grad"]))
    with torch.no_grad():
        plain = reduced()
    return numpy([out, plain, *(torch.zeros_like(t) if t.grad is None else t.grad for t in (x, e))])


def of_nodes(op: str, batched: bool, columns: dict[str, np.ndarray], share: float = 1.0) -> list[np.ndarray]:
    """The same of nodes of graphs; of all nodes, without gradients of maxima that several have."""
    x = torch.from_numpy(columns["x"].copy()).requires_grad_()
    if batched:
        pool = getattr(pyg_nn().aggr, f"{op.capitalize()}Aggregation")()
        out = pool(x, torch.from_numpy(columns["batch"]), dim_size=GRAPHS)
    else:
        out = pyg_nn().global_max_pool(x, None)
    out.backward(torch.from_numpy(columns["of graphs"][: len(out)] * np.asarray(share, columns["x"].dtype)))
    assert x.grad is not None
    return numpy([out, x.grad] if batched else [out])


def of_messages_on_worker(part: dict[str, Any], message: str, op: str, columns: Any) -> list[np.ndarray]:
    return of_messages(graph_index(part), message, op, columns)


def of_nodes_on_worker(part: dict[str, Any], op: str, batched: bool, columns: Any, share: float) -> list[np.ndarray]:
    edge_index = graph_index(part)
    found = of_nodes(op, batched, columns, share)
    del edge_index
    return found
