"""Edge tensors on the workers: every operation against the same operation on the values."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import sar
from sar.autograd import expression
from sar.graph.edge_tensor.tensor import EdgeTensor
from tests.support.worker import build, numpy, tensor

H, D = 2, 3
"""Feature shape of the edge tensor that operations are tried on."""

Operation = Callable[[Any, Any, Any], Any]

# of x [E, H, D], a parameter w [1, H, D] and a tensor of edges p [E, H, 1]
LAZY: dict[str, Operation] = {
    "number": lambda x, w, p: (2 + x * 3 - 1) / 4,
    "number_first": lambda x, w, p: 2 / (x * x + 1) - (1 - x),
    "parameter": lambda x, w, p: w * x + x / (w * w + 1) - w,
    "no_edge_dimension": lambda x, w, p: x * w[0] + x * w[0, 0] - w[0, 0, 0],
    "edges": lambda x, w, p: x * p + p - x / (p * p + 1),
    "edge_tensors": lambda x, w, p: x * x - (x + x),
    "wider": lambda x, w, p: x.sum(-1, keepdim=True) * w + x.sum(1, keepdim=True) * p,
    "leaky_relu": lambda x, w, p: F.leaky_relu(nn.LeakyReLU(0.1)(x), 0.3),
    "activations": lambda x, w, p: torch.relu(x) + F.elu(x, 0.7) + torch.sigmoid(x) + x.tanh() + F.softplus(x),
    "powers": lambda x, w, p: torch.exp(-x) + (x * x + 1).log() + torch.sqrt(x.square() + 1) + (x**2 + 0.5).pow(1.5),
    "reciprocals": lambda x, w, p: (x.abs() + 1).reciprocal() + (x**2 + 1).rsqrt() + F.silu(x),
    "clamp": lambda x, w, p: x.clamp(min=-0.3, max=0.4) + torch.clamp(x, min=0.1),
    "sum": lambda x, w, p: (x * w).sum(dim=-1).unsqueeze(-1) + x.sum(1, keepdim=True) + x.sum((1, 2), keepdim=True),
    "mean": lambda x, w, p: x.mean(-1) - torch.mean(x, dim=2),
    "shapes": lambda x, w, p: x.view(-1, H * D).reshape(len(x), D, H).flatten(1).unsqueeze(1).squeeze(1),
    "dropout_off": lambda x, w, p: F.dropout(x, 0.5, training=False) * nn.Dropout(0.5).eval()(x),
    "conversions": lambda x, w, p: x.to(w).contiguous().cpu().clone().type_as(w) * 2,
    "in_place_values": lambda x, w, p: _set(x * w),
    "in_place": lambda x, w, p: nn.ReLU(inplace=True)((x * 1).add_(w).mul_(2)),
}

VALUES: dict[str, Operation] = {
    "sum_over_edges": lambda x, w, p: (x * w).sum(0),
    "sum_of_all": lambda x, w, p: x.sum(),
    "linear": lambda x, w, p: F.linear(x, w[0]),
    "cat": lambda x, w, p: torch.cat([x, p], dim=-1),
    "index": lambda x, w, p: x[:, 0] * x[..., 1:].sum((1, 2)).unsqueeze(-1),
    "where": lambda x, w, p: torch.where(x > 0, x, w * x),
    "unbind": lambda x, w, p: x.unbind(1)[1],
    "transpose": lambda x, w, p: x.transpose(1, 2) @ x,
    "normalize": lambda x, w, p: F.normalize(x, dim=-1),
    "more_dimensions": lambda x, w, p: x * w.unsqueeze(0),
}


def _set(x: Any) -> Any:
    x[:1] = 3.0
    x[x < 0] = 0.5
    return x


def edge_tensor(graph: Any, u: torch.Tensor, v: torch.Tensor) -> EdgeTensor:
    """``u[src] - v[dst]``, not computed."""
    relation = graph._relations[0]
    return EdgeTensor(relation, expression.binary("sub", expression.load("u", u), expression.load("v", v)))


def operation(
    part: dict[str, Any], name: str, u: np.ndarray, v: np.ndarray, w: np.ndarray, p: np.ndarray
) -> dict[str, Any]:
    """One operation on an edge tensor and on its values: results and gradients of both, and whether it stayed lazy."""
    graph = build(part)
    function = {**LAZY, **VALUES}[name]
    found = {}
    for way in ("lazy", "plain"):
        given = [tensor(x, True) for x in (u, v, w, p)]
        x: Any = edge_tensor(graph, *given[:2])
        if way == "plain":
            x = x.materialize()
        out = function(x, given[2], given[3])
        stayed = isinstance(out, EdgeTensor)
        assert out.requires_grad
        value = out.materialize() if stayed else out
        assert value.shape == out.shape and value.dtype == out.dtype
        (value * value).sum().backward()
        found[way] = numpy({"out": value, "grads": [g.grad for g in given]})
        found[way + "_stayed"] = stayed
    return found


def in_update_all(part: dict[str, Any], u: np.ndarray, v: np.ndarray, w: np.ndarray) -> dict[str, Any]:
    """A chain of operations that ``update_all`` runs fused, and the same on values."""
    graph = build(part)
    found = {}
    for way in ("lazy", "plain"):
        x, y, a = (tensor(t, True) for t in (u, v, w))
        score: Any = F.leaky_relu(edge_tensor(graph, x, y), 0.2)
        score = sar.edge_softmax(graph, (score * a).sum(-1, keepdim=True))
        assert isinstance(score, EdgeTensor)
        with graph.local_scope():
            graph.srcdata["h"] = x
            graph.edata["a"] = score if way == "lazy" else score.materialize()
            graph.update_all(sar.function.u_mul_e("h", "a", "m"), sar.function.sum("m", "o"))
            out = graph.dstdata["o"]
        (out * out).sum().backward()
        found[way] = numpy({"out": out, "grads": [x.grad, y.grad, a.grad]})
    return found


def dropped(part: dict[str, Any], u: np.ndarray, v: np.ndarray, seed: int) -> dict[str, Any]:
    """Dropout twice with one seed of torch and once with another; forward and backward of one mask."""
    graph = build(part)
    x, y = tensor(u, True), tensor(v, True)
    assert x is not None and y is not None
    torch.manual_seed(seed + 100 * sar.rank())
    first = F.dropout(edge_tensor(graph, x, y), 0.4)
    second = F.dropout(edge_tensor(graph, x, y), 0.4)
    torch.manual_seed(seed + 100 * sar.rank())
    again = F.dropout(edge_tensor(graph, x, y), 0.4)
    plain = edge_tensor(graph, x, y)
    for value in (first, again, second):
        assert isinstance(value, EdgeTensor)
    fused = expression.evaluate(graph._relations[0], first.expr, "sum")
    fused.sum().backward()
    return numpy(
        {
            "seeds": [str(t.expr.seed) for t in (first, second, again)],
            "plain": plain,
            "first": first,
            "second": second,
            "again": again,
            "fused": fused,
            "u": x.grad,
            "off": nn.Dropout(0.4).eval()(plain) is plain,
        }
    )


def softmaxes(part: dict[str, Any], logits: np.ndarray, chosen: np.ndarray, grad: np.ndarray) -> dict[str, Any]:
    """``edge_softmax`` by destination, by source, and of some edges."""
    graph = build(part)
    found = {}
    for name, options in {
        "dst": {},
        "src": {"norm_by": "src"},
        "some": {"eids": torch.from_numpy(chosen)},
        "some_src": {"eids": torch.from_numpy(chosen), "norm_by": "src"},
    }.items():
        x = tensor(logits if name in ("dst", "src") else logits[chosen], True)
        g = torch.from_numpy(grad if name in ("dst", "src") else grad[chosen])
        out = sar.edge_softmax(graph, x, **options)
        out = out.materialize() if isinstance(out, EdgeTensor) else out
        out.backward(g)
        assert x is not None
        found[name] = numpy({"out": out, "grad": x.grad})
    return found


def no_in_edge(part: dict[str, Any], x: np.ndarray) -> list[str]:
    """Layers that refuse nodes without in-edges in DGL: what each says here, and whether this rank has one."""
    import dgl.nn

    graph = build(part)
    found = []
    width = x.shape[1]
    layers = dgl.nn.GATConv(width, 2, 1), dgl.nn.GraphConv(width, 2), dgl.nn.EGATConv(width, 1, 2, 2, 1)
    for layer in layers:
        more = [torch.zeros(graph.num_edges(), 1)] if isinstance(layer, dgl.nn.EGATConv) else []
        try:
            layer(graph, torch.from_numpy(x), *more)
            found.append("nothing")
        except dgl.DGLError as error:
            found.append(str(error)[:12])
    layer = dgl.nn.GATConv(width, 2, 1, allow_zero_in_degree=True)
    found.append(str(tuple(layer(graph, torch.from_numpy(x)).shape[1:])))
    own = graph.in_degrees()
    found.append(str(bool((own == 0).any())))
    return found


def stray_gradient(part: dict[str, Any], u: np.ndarray, v: np.ndarray) -> list[str]:
    """What does not ask for overrides gets values, and says so where a gradient comes back."""

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad * 2

    graph = build(part)
    x, y = tensor(u, True), tensor(v, True)
    assert x is not None and y is not None
    made = edge_tensor(graph, x, y)
    try:
        Twice.apply(made).sum().backward()
    except RuntimeError as error:
        said = str(error)
    else:
        said = "nothing"
    Twice.apply(made.materialize()).sum().backward()
    with torch.no_grad():
        silent = edge_tensor(graph, x, y) * 2
    return [said, str(x.grad is not None), str(silent.requires_grad or silent.materialize().requires_grad), repr(made)]


def typed_softmax(part: dict[str, Any], features: dict[str, np.ndarray], norm_by: str) -> dict[Any, Any]:
    """``edge_softmax`` over the edges of all relations of a node; gradients of its squares. In the order of edata."""
    from tests.support.worker import data_of

    graph = sar.construct_full_graph(data_of(part, features))
    logits = {triple: graph[triple].edata["w"].clone().requires_grad_() for triple in graph.canonical_etypes}
    out = sar.edge_softmax(graph, logits, norm_by=norm_by)
    values = {triple: o.materialize() if isinstance(o, EdgeTensor) else o for triple, o in out.items()}
    torch.autograd.backward([(v * v).sum() for v in values.values()])
    return {triple: numpy([value, logits[triple].grad]) for triple, value in values.items()}
