"""Messages that change tensors in place through views of them, on the roads that tensors of edges are made on."""

from __future__ import annotations

from typing import Any, Callable

import dgl.function
import numpy as np
import torch
import torch.nn.functional as F

import sar
from tests.parity.cases_pyg import graph_index
from tests.support.graphs import Graph
from tests.support.worker import build, numpy, refusal

Message = Callable[[Any, Any, Any], Any]
MESSAGES: dict[str, Message] = {}
"""By name: what is sent of rows of sources, rows of destinations, and rows of edges, ``[edges, 4]`` each."""


def message(function: Message) -> Message:
    MESSAGES[function.__name__] = function
    return function


@message
def a_column(j: Any, i: Any, e: Any) -> Any:
    h = j * 2
    h[:, 0].mul_(3)
    return h


@message
def a_column_of_heads(j: Any, i: Any, e: Any) -> Any:
    h = j * i
    h.view(-1, 2, 2)[:, 0] += e[:, :2]
    return h


@message
def another_shape(j: Any, i: Any, e: Any) -> Any:
    h = j * 2
    v = h.view(-1, 2, 2)
    v.mul_(2)
    return h + v.flatten(1) * i


@message
def a_view_made_before(j: Any, i: Any, e: Any) -> Any:
    h = j * 2
    v, w = h[:, :2], h.view(-1, 2, 2)[:, 1]
    h.mul_(i)
    return torch.cat([v, w * 2], 1)


@message
def a_view_of_what_a_view_changed(j: Any, i: Any, e: Any) -> Any:
    h = torch.tanh(j) * e
    v, w = h[:, 1:3], h[:, 2:]
    v.mul_(i[:, :2])
    w.add_(1)
    v.exp_()
    return h * torch.cat([v, w], 1)


@message
def activation(j: Any, i: Any, e: Any) -> Any:
    h = j + i
    F.relu_(h[:, :2])
    return h * e


@message
def activation_by_argument(j: Any, i: Any, e: Any) -> Any:
    h = j + i
    F.leaky_relu(h.view(-1, 2, 2)[:, 1:], 0.1, inplace=True)
    return h * e


@message
def last_columns(j: Any, i: Any, e: Any) -> Any:
    h = j * 2
    h[..., -1:].zero_()
    h.select(1, 0).fill_(1.0)
    h.narrow(1, 1, 1).neg_()
    return h * i


@message
def transposed(j: Any, i: Any, e: Any) -> Any:
    h = (j * 2).view(-1, 2, 2)
    h.transpose(1, 2)[:, 0].mul_(3)
    h.permute(0, 2, 1).unsqueeze(1)[:, 0, 1].sub_(i[:, 1:3])
    return h.flatten(1)


@message
def a_copy_that_reshape_makes(j: Any, i: Any, e: Any) -> Any:
    h = (j * 2).view(-1, 2, 2)
    h.transpose(1, 2).reshape(-1, 4).mul_(3)
    h[:, :, 0].contiguous().mul_(7)
    h.clone()[:, 0].mul_(3)
    h[:, [0, 1]].mul_(5)
    return h.flatten(1)


@message
def filled_by_columns(j: Any, i: Any, e: Any) -> Any:
    h = torch.empty_like(j)
    h[:, :2].copy_(i[:, 2:])
    right = h[:, 2:]
    right[:] = j[:, :2]
    return h


@message
def augmented(j: Any, i: Any, e: Any) -> Any:
    h = j * 2
    h[:, 1:] *= i[:, 1:]
    h[:, 1:][:, 0] -= 2
    return h


@message
def detached(j: Any, i: Any, e: Any) -> Any:
    h = j * 2
    h.detach().mul_(2)
    return h * i


@message
def data(j: Any, i: Any, e: Any) -> Any:
    h = j * 2
    h.data[:, 1:] += 2
    return h + i


@message
def a_column_of_data(j: Any, i: Any, e: Any) -> Any:
    h = j * 2
    h.data[:, 1].add_(2)
    return h + i


@message
def without_gradients(j: Any, i: Any, e: Any) -> Any:
    h = j * 2
    with torch.no_grad():
        h.clamp_(max=1.0)
        h[:, 0].add_(e[:, 0].detach())
    return h + i


@message
def detached_for_good(j: Any, i: Any, e: Any) -> Any:
    h = (j * 2).detach()
    h[:, 1:].add_(i[:, 1:])
    return h


@message
def result_given(j: Any, i: Any, e: Any) -> Any:
    h = torch.zeros_like(j.detach())
    torch.add(i.detach(), j.detach(), out=h)
    return h * j


@message
def unknown_function(j: Any, i: Any, e: Any) -> Any:
    """The values of this worker's edges, through which what is written shows as well."""
    h = j * 2
    torch.as_strided(h, (len(h), 4), (4, 1)).mul_(3)
    return h + i


@message
def views_of_values(j: Any, i: Any, e: Any) -> Any:
    """Views of the values of all edges see what is written into the tensor, and the other way round."""
    h = j * 2
    v, w = torch.as_strided(h, (len(h), 2), (4, 1)), h.view(-1, 2, 2)
    w[:, 1].mul_(i[:, :2])
    h.mul_(3)
    return torch.cat([v, w[:, 1]], 1) * i + h


@message
def a_clone_whose_values_are_seen(j: Any, i: Any, e: Any) -> Any:
    """Backward of tanh needs its result as it was."""
    h, g = torch.tanh(i).clone(), torch.tanh(j).clone()
    v = torch.as_strided(h, (len(h), 2), (4, 1))
    h[h > 0.5] = 0.25
    g[g > 0.5] = 0.25
    h.mul_(2)
    return torch.cat([v, g[:, 2:]], 1) * i + h


@message
def a_clone_of_edges(j: Any, i: Any, e: Any) -> Any:
    h = e.clone()
    torch.as_strided(h, (len(h), 2), (4, 1)).mul_(3)
    return h + e


@message
def eval_dropout(j: Any, i: Any, e: Any) -> Any:
    h = j * 2
    F.dropout(h, 0.5, training=False).mul_(i)
    return h


@message
def changed_again_after_it_was_read(j: Any, i: Any, e: Any) -> Any:
    """What is made of values before they change keeps them, whoever has seen these values."""
    h = j * 2
    g = h + e
    torch.as_strided(h, (len(h), 1), (4, 1))
    h.mul_(3)
    k = (h - i) * 2
    h.mul_(5)
    torch.as_strided(h, (len(h), 4), (4, 1)).mul_(7)
    return g + k + h


@message
def changed_without_gradients_after_it_was_read(j: Any, i: Any, e: Any) -> Any:
    h = j * i
    torch.as_strided(h, (len(h), 1), (4, 1))
    h.add_(e)
    g = h + i
    with torch.no_grad():
        h.mul_(3)
    return g


def _expanded(j: Any, i: Any, e: Any) -> Any:
    return j.sum(1, keepdim=True).expand(-1, 4).mul_(2)


def _without_its_gradient(j: Any, i: Any, e: Any) -> Any:
    h = j * 2
    h.detach().add_(i)
    return h


CHANGED = r"changed in place before they were.*clone\(\)"


def _shared_after_use(j: Any, i: Any, e: Any) -> Any:
    s = torch.ones(4, dtype=j.dtype)
    h = j * s
    s.mul_(2)
    return h + i


def _argument_after_use(j: Any, i: Any, e: Any) -> Any:
    s = torch.ones(4, dtype=j.dtype)
    h = F.layer_norm(j + i, (4,), s)
    s.mul_(2)
    return h


def _values_after_use(j: Any, i: Any, e: Any) -> Any:
    h = (j * 2).clone()
    v = torch.as_strided(h, (len(h), 4), (4, 1))
    h.mul_(3)
    g = h * i
    v.mul_(2)
    return g


REFUSED: dict[str, tuple[Message, str]] = {
    "expanded": (_expanded, "cannot be changed in place|single memory location"),
    "shared": (_shared_after_use, CHANGED),
    "argument": (_argument_after_use, CHANGED),
    "values": (_values_after_use, CHANGED),
    "gradients lost": (_without_its_gradient, r"clone\(\) the view before it is changed"),
}
"""Messages that are refused, and what the error says."""


def sent(road: str, graph: Any, x: torch.Tensor, e: torch.Tensor, send: Message) -> torch.Tensor:
    """The sum of messages at each node; ``graph`` is a plain one of DGL or PyG, or one of ours."""
    if road == "pyg":
        from torch_geometric.utils import scatter

        row, col = graph
        out: torch.Tensor = scatter(send(x[row], x[col], e), col, 0, len(x), "sum")
        return out
    fn = sar.function if isinstance(graph, sar.GraphShardManager) else dgl.function
    with graph.local_scope():
        graph.ndata["x"], graph.edata["e"] = x, e
        if road == "functions":
            graph.update_all(lambda b: {"m": send(b.src["x"], b.dst["x"], b.data["e"])}, fn.sum("m", "out"))
        else:
            graph.apply_edges(fn.copy_u("x", "j"))
            graph.apply_edges(fn.v_mul_e("x", "e", "i"))
            graph.edata["m"] = send(graph.edata["j"], graph.edata["i"], e)
            graph.update_all(fn.copy_e("m", "m"), fn.sum("m", "out"))
        result: torch.Tensor = graph.dstdata["out"]
    return result


def results(road: str, graph: Any, names: list[str], x: np.ndarray, e: np.ndarray) -> dict[str, list[np.ndarray]]:
    """Results, gradients, and results without gradients, by message."""
    found = {}
    for name in names:
        leaves = [torch.from_numpy(t.copy()).requires_grad_() for t in (x, e)]
        out = sent(road, graph, *leaves, MESSAGES[name])
        if out.requires_grad:
            (out * torch.cos(out.detach())).sum().backward()
        grads = [torch.zeros_like(t) if t.grad is None else t.grad for t in leaves]
        with torch.no_grad():
            plain = sent(road, graph, *leaves, MESSAGES[name])
        with torch.inference_mode():
            inferred = sent(road, graph, *leaves, MESSAGES[name]).clone()
        found[name] = numpy([out, *grads, plain, inferred])
    return found


def whole(road: str, graph: Graph) -> Any:
    ends = torch.from_numpy(graph.src), torch.from_numpy(graph.dst)
    return torch.stack(ends) if road == "pyg" else dgl.graph(ends, num_nodes=graph.num_nodes)


def on_worker(part: dict[str, Any], road: str, names: list[str], x: np.ndarray, e: np.ndarray) -> dict[str, Any]:
    graph = graph_index(part) if road == "pyg" else build(part)
    return results(road, graph, names, x, e)


def refused(part: dict[str, Any], road: str, x: np.ndarray, e: np.ndarray) -> dict[str, str]:
    graph = graph_index(part) if road == "pyg" else build(part)
    found = {}
    for name, (send, _) in REFUSED.items():
        leaves = [torch.from_numpy(t.copy()).requires_grad_() for t in (x, e)]
        found[name] = refusal(sent, road, graph, *leaves, send)
    return found


def edge_column(graph: Any, x: np.ndarray, e: np.ndarray) -> list[np.ndarray]:
    """A message function that changes the user's own column of edges: what it sends, and the column."""
    w = torch.from_numpy(e.copy())
    graph.srcdata["x"], graph.edata["w"] = torch.from_numpy(x.copy()), w
    if isinstance(graph, sar.GraphShardManager):
        graph.dstdata["x"] = graph.srcdata["x"]

    def send(edges: Any) -> dict[str, Any]:
        found = edges.data["w"]
        before = found + 1
        found.mul_(2)
        found[:, 0] += 1
        edges.data["w"].add_(edges.dst["x"])
        return {"m": before * found + edges.src["x"]}

    fn = sar.function if isinstance(graph, sar.GraphShardManager) else dgl.function
    graph.update_all(send, fn.sum("m", "out"))
    found: list[np.ndarray] = numpy([graph.dstdata["out"], graph.edata["w"], w])
    return found


def edge_column_on_worker(part: dict[str, Any], x: np.ndarray, e: np.ndarray) -> list[np.ndarray]:
    return edge_column(build(part), x, e)
