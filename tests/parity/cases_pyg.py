"""Layers of ``torch_geometric.nn``, as they are, on workers and alone, and what else scripts do."""

from __future__ import annotations

import contextlib
import sys
import warnings
from typing import Any, Iterator

import numpy as np
import torch
from torch import nn

import sar
from sar.autograd.fused import gat, linear, scaled_product
from sar.graph.edge_index import edges, reduce
from sar.graph.edge_tensor.tensor import EdgeTensor
from tests.parity.cases_exchange import sent
from tests.parity.observed_models import fused
from tests.parity.one_piece import counted
from tests.parity.pyg_aggregations import CASES
from tests.parity.pyg_own_layers import OWN
from tests.parity.pyg_specs import IN, OUT, REFUSED, SPECS, TYPES, E, mlp, pyg_nn
from tests.support.graphs import Graph
from tests.support.worker import build, default_dtype, numpy, random_layer, refusal, settings

KNOWN = {**SPECS, **CASES, **OWN}


def graph_index(part: dict[str, Any]) -> Any:
    return sar.pyg.edge_index(build(part))


# ---- running ---------------------------------------------------------------


def make(name: str, seed: int = 11) -> nn.Module:
    return random_layer(KNOWN[name].make, seed)


def draw(graph: Graph, name: str, dtype: str) -> list[np.ndarray]:
    """Rows of nodes and edges of the whole graph, as the arguments name them."""
    rng = np.random.default_rng(31)
    made: list[np.ndarray] = []
    for kind, *shape in rows(name):
        if kind == "n":
            made.append(rng.standard_normal((graph.num_nodes, *shape)).astype(dtype))
        elif kind in ("e", "+"):
            values = rng.standard_normal((len(graph.src), *shape))
            made.append((np.abs(values) + 0.2 if kind == "+" else values).astype(dtype))
        elif kind == "01":
            made.append(rng.random((len(graph.src), *shape)).astype(dtype))
        elif kind == "nt":
            made.append(rng.integers(0, TYPES, graph.num_nodes))
        else:
            types = rng.integers(0, TYPES, len(graph.src))
            made.append(np.sort(types) if kind == "set" else types)
    return made


def rows(name: str) -> list[tuple[Any, ...]]:
    """The arguments that are rows of nodes or edges, in order."""

    def found(given: Any) -> list[tuple[Any, ...]]:
        if isinstance(given, list):
            return [row for each in given for row in found(each)]
        return [given] if isinstance(given, tuple) else []

    return found(list(KNOWN[name].args))


def call(name: str, model: nn.Module, edge_index: Any, given: list[torch.Tensor]) -> list[torch.Tensor]:
    """Runs the layer: its results."""
    left = iter(given)

    def filled(arg: Any) -> Any:
        if arg is E:
            return edge_index
        if isinstance(arg, list):
            return tuple(filled(each) for each in arg)
        return next(left) if isinstance(arg, tuple) else arg

    spec = KNOWN[name]
    made = [filled(arg) for arg in spec.args]
    plain = len(made) - len(spec.names)
    out = model(*made[:plain], **dict(zip(spec.names, made[plain:])))
    return list(out) if isinstance(out, (tuple, list)) else [out]


def leaves(inputs: list[np.ndarray]) -> list[torch.Tensor]:
    return [torch.from_numpy(x).clone().requires_grad_(x.dtype.kind == "f") for x in inputs]


def step(
    name: str,
    edge_index: Any,
    inputs: list[np.ndarray],
    grads: list[np.ndarray] | None,
    state: Any,
    dtype: str,
    dropout: float = 0.0,
    constant: bool = False,
) -> dict[str, Any]:
    """Results, all gradients, and buffers; gradients of inputs are 0 where inputs are constant.

    :param grads: of the results; drawn where there are none
    """
    with default_dtype(getattr(torch, dtype)):
        model = make(name)
        if state is not None and KNOWN[name].norm:
            model = sar.convert_batchnorm(model)
        if state is not None:
            model.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
        saved = numpy(model.state_dict())
        if dropout:
            model.dropout = dropout
            torch.manual_seed(6)
        given = [x.detach() if constant else x for x in leaves(inputs)]
        out = call(name, model, edge_index, given)
        rng = np.random.default_rng(12)
        grads = grads or [rng.standard_normal(tuple(o.shape)).astype(dtype) for o in out]
        found = numpy([o.detach().clone() for o in out])
        torch.autograd.backward(out, [torch.from_numpy(g) for g in grads])
    parameters = {k: torch.zeros_like(p) if p.grad is None else p.grad for k, p in model.named_parameters()}
    return {
        "state": saved,
        "grads": grads,
        "out": found,
        "inputs": numpy([torch.zeros_like(x) if constant else x.grad for x in given]),
        "parameters": numpy(parameters),
        "buffers": numpy(dict(model.named_buffers())),
    }


@contextlib.contextmanager
def noted() -> Iterator[set[str]]:
    """How messages are computed: "blocks" of edges, or "values" of all edges that are no weights of a softmax."""
    found: set[str] = set()
    run, materialize = reduce.run, EdgeTensor.materialize

    def in_blocks(*args: Any) -> torch.Tensor:
        found.add("blocks")
        return run(*args)

    def values(self: Any) -> torch.Tensor:
        if sys._getframe(1).f_code.co_name != "expr":
            found.add("values")
        return materialize(self)

    EdgeTensor.materialize = values  # type: ignore[method-assign]
    edges.run = reduce.run = in_blocks
    try:
        yield found
    finally:
        EdgeTensor.materialize = materialize  # type: ignore[method-assign]
        edges.run = reduce.run = run


@contextlib.contextmanager
def warned() -> Iterator[list[str]]:
    """What is warned of edges of one worker."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield said
    said += [f"{w.filename}:{w.lineno}: {w.message}" for w in caught if "edges" in str(w.message)]


def layer(
    part: dict[str, Any],
    name: str,
    state: Any,
    dtype: str,
    inputs: list[np.ndarray],
    grads: list[np.ndarray],
    separate: tuple[int, ...] = (),
    dropout: float = 0.0,
    constant: bool = False,
    exchange: str = "auto",
) -> dict[str, Any]:
    """The same on a worker; of parameters it has a part of the gradient. ``separate``: ranks whose layers run their own
    steps; ``dropout``: of attention; ``pieces``: how many layers ran in one piece, or computed a linear map again;
    ``sent``: bytes of rows and gradients; ``warned``: that edges are those of one worker."""
    edge_index = graph_index(part)
    pieces_of = {"gcn": scaled_product._Product, "gat": gat._Scores}
    pieces_of.update(dict.fromkeys(("gatv2", "transformer"), linear._Linear))
    piece = pieces_of.get(name.partition("_")[0], scaled_product._SageMean)
    before = sent()
    one_by_one = fused(sar.rank() not in separate)
    with noted() as how, one_by_one, counted(piece) as pieces, warned() as said, settings(exchange=exchange):
        found = step(name, edge_index, inputs, grads, state, dtype, dropout, constant)
    way = "values" if "values" in how else "blocks" if how else "fused"
    told = {"how": way, "pieces": len(pieces), "sent": int((sent() - before).sum()), "warned": said}
    return {**found, **told}


def refused(part: dict[str, Any], name: str) -> str:
    """What a layer says that is not run."""
    edge_index = graph_index(part)
    rows = edge_index.edges.rows("v")
    x = torch.randn(rows, IN)
    return refusal(lambda: REFUSED[name].make()(x, edge_index))


# ---- what else scripts do ------------------------------------------------------


def from_files(path: str, names: list[str], state: dict[str, np.ndarray]) -> dict[str, Any]:
    """A partition as PyG's data, and a GCN and a GAT on it: result and gradients by original node."""
    data = sar.pyg.load(path)
    model = pyg_nn().Sequential(
        "x, e", [(pyg_nn().GCNConv(5, 8), "x, e -> x"), (pyg_nn().GATConv(8, 3, heads=2), "x, e -> x")]
    )
    model.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
    sar.sync_params(model)
    out = model(data.x, data.edge_index)
    mask = data.train_mask
    loss = torch.nn.functional.cross_entropy(out[mask], data.y[mask].long(), reduction="sum")
    loss.backward()
    sar.gather_grads(model)
    sizes = [data.num_nodes, data.num_edges, data.num_features, int(data.edge_index.numel()), data.edge_attr.shape[0]]
    columns = sorted(name for name in names if name in data)
    grads = {k: p.grad for k, p in model.named_parameters()}
    return numpy({"n_id": data.n_id, "out": out, "grads": grads, "sizes": sizes, "columns": columns})


def watched(part: dict[str, Any], x: np.ndarray, looks: bool) -> dict[str, Any]:
    """Layers of which one rank prints what passes through them, by hooks and in the message."""
    edge_index = graph_index(part)
    torch.manual_seed(3)
    layers = [pyg_nn().GATConv(IN, IN, heads=1), _Shown(looks), pyg_nn().EdgeConv(mlp(2 * IN, IN), aggr="mean")]
    shown: list[str] = []
    if looks:
        for layer in (layers[0], layers[2]):
            layer.register_message_forward_pre_hook(lambda m, given: shown.append(repr(given)))
            layer.register_message_forward_hook(lambda m, given, out: shown.append(f"{out.shape} {out!r}"))
            layer.register_aggregate_forward_pre_hook(lambda m, given: shown.append(str(given)))
    h = given = torch.from_numpy(x.copy()).float().requires_grad_()
    for layer in layers:
        h = layer(h, edge_index)
    h.square().sum().backward()
    return numpy({"out": h, "x": given.grad, "shown": len(shown) + len(layers[1].shown)})


def _shown_class() -> Any:
    from torch_geometric.nn import MessagePassing

    class Shown(MessagePassing):
        def __init__(self, looks: bool) -> None:
            super().__init__(aggr="mean")
            self.looks, self.shown = looks, []
            self.linear = nn.Linear(IN, IN)

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return self.propagate(edge_index, x=x)

        def message(self, x_i: torch.Tensor, x_j: torch.Tensor) -> torch.Tensor:
            made = self.linear(x_j - x_i).relu()
            if self.looks:
                self.shown.append(f"{made} {made.shape} {x_j!r}")
            return made

    return Shown


def _Shown(looks: bool) -> Any:
    torch.manual_seed(4)
    return _shown_class()(looks)


def said(part: dict[str, Any]) -> list[str]:
    """What goes wrong, and what it says."""
    edge_index = graph_index(part)
    from torch_geometric.utils import scatter, to_undirected  # as they are replaced

    looped = edge_index.of(edge_index.edges.with_loops())
    rows = edge_index.edges.rows("v")
    x = torch.randn(rows + 1, IN)
    message = torch.randn(rows, 2)[edge_index[0]]
    found = []
    for wrong in (
        lambda: pyg_nn().SAGEConv(IN, OUT)(x, edge_index),
        lambda: pyg_nn().GCNConv(IN, OUT)(x, edge_index),
        lambda: to_undirected(edge_index),
        lambda: scatter(message, looped[1]),
        lambda: message + torch.randn(rows, 2)[looped[1]],
        lambda: torch.cat([edge_index, torch.zeros(2, 1, dtype=torch.int64)], 1),
    ):
        found.append(refusal(wrong))
    return found


def numbers(part: dict[str, Any]) -> dict[str, Any]:
    """The numbers of an edge index, and what functions of torch make of it."""
    edge_index = graph_index(part)
    row, col = edge_index
    again = torch.stack([row, col])
    flipped = torch.stack([col, row])
    kept = edge_index[:, edge_index[0] != edge_index[1]]
    return numpy(
        {
            "edge_index": edge_index.numbers(),
            "column_nodes": edge_index.graph.column_nodes(),
            "flipped": edge_index.flip(0).numbers(),
            "same": [again.edges is edge_index.edges, flipped.flipped, flipped.flip(0).flipped],
            "kept": kept.numbers(),
            "sizes": [tuple(edge_index.shape), edge_index.size(1), edge_index.numel(), len(row), row.numel()],
            "shown": [repr(edge_index), repr(row)],
            "type": [str(edge_index.dtype), edge_index.long() is edge_index, edge_index.to("cpu") is edge_index],
        }
    )


def colours(index: Any, first: np.ndarray) -> dict[str, Any]:
    """Colours of WLConv after one and two steps, of numbers and of one-hot rows, and their histograms."""
    layers = [pyg_nn().WLConv() for _ in range(2)]
    found = []
    for _ in range(2):  # the second time the layers know the colours
        x = torch.from_numpy(first)
        for n, layer in enumerate(layers):
            x = layer(torch.nn.functional.one_hot(x, TYPES) if n == 0 else x, index)
            found.append(x)
    graphs = torch.from_numpy(first) % 2
    histograms = [layers[1].histogram(x, *more) for more in ((), (None, True), (graphs,), (graphs, True))]
    return numpy({"colours": torch.stack(found, 1), "histograms": histograms})


def colours_on_worker(part: dict[str, Any], first: np.ndarray) -> dict[str, Any]:
    return colours(graph_index(part), first)


def equilibrium(part: dict[str, Any]) -> str:
    """What the aggregation says that is not run."""
    edge_index = graph_index(part)
    layer = pyg_nn().SimpleConv(aggr=pyg_nn().aggr.EquilibriumAggregation(IN, OUT, [4]))
    return refusal(layer, torch.randn(edge_index.edges.rows("v"), IN), edge_index)


def held(part: dict[str, Any], x: Any) -> dict[str, Any]:
    """Functions of PyG that are not replaced, and that a script may hold under any name."""
    from torch_geometric import utils
    from torch_geometric.utils import assortativity, coalesce, softmax as attention

    index = graph_index(part)
    row, col = index
    x = torch.from_numpy(x).requires_grad_()
    logits = x[row] * x[col]
    weights = attention(logits, col)
    most = utils.scatter(logits, row, dim=0, reduce="max")
    most.square().sum().backward()
    plain, _ = utils.remove_self_loops(index)
    texts = [refusal(function, index) for function in (coalesce, utils.to_undirected, assortativity)]
    return numpy(
        {
            "softmax": weights.computation.op,
            "sums": utils.scatter(weights, col, dim=0),
            "by_source": utils.scatter(attention(logits, row), row, dim=0),
            "most": most,
            "grad": x.grad,
            "degrees": [utils.degree(end) for end in (row, col)],
            "loops": [utils.contains_self_loops(i) for i in (index, plain)],
            "kept": plain is utils.remove_self_loops(index)[0] or plain.edges is index.edges.without_loops(),
            "texts": texts,
            "same": not any(hasattr(f, "__wrapped__") for f in (attention, utils.scatter, coalesce, utils.degree)),
        }
    )


def plain_models(part: dict[str, Any]) -> list[str]:
    """What torch.compile says to models of PyG on plain tensors beside split graphs. Rank 0 runs them alone."""
    graph_index(part)
    if sar.rank():
        return []
    x, edges, failed = torch.randn(9, 4), torch.randint(0, 9, (2, 30)), []
    for name in ("GIN", "GAT"):  # tests/unit/test_not_ours.py has more
        model = getattr(pyg_nn(), name)(4, 8, 2, 3)
        torch._dynamo.reset()
        try:
            same = torch.equal(torch.compile(model, fullgraph=True, backend="eager")(x, edges), model(x, edges))
            failed += [] if same else [f"{name}: other results"]
        except Exception as error:  # noqa: BLE001
            failed.append(f"{name}: {error}")
    return failed
