"""Tensors of bfloat16 on the workers. Arrays travel as float32, since numpy has no bfloat16."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set

import dgl
import numpy as np
import torch

import sar
from sar import function as fn
from sar.autograd import expression as ex
from sar.autograd.fused import gat_columns, linear
from sar.graph.readout import graph_reduce
from tests.parity import cases_layers, cases_pyg
from tests.parity.cases_expression import Program, written
from tests.parity.one_piece import counted
from tests.support.worker import build, random_layer, refusal, settings

HALF = torch.bfloat16


class Job(NamedTuple):
    """An expression to evaluate: ``dtypes`` of its tensors; ``strided``: these are no runs of memory."""

    program: Program
    reduce: Optional[str]
    tensors: List[np.ndarray]
    dtypes: List[str]
    grad: np.ndarray
    strided: bool = False


def told(tensor: Optional[torch.Tensor]) -> Any:
    """The dtype of a tensor and its numbers, for the test to look at."""
    return None if tensor is None else (str(tensor.dtype)[6:], tensor.detach().double().numpy())


def expressions(part: Dict[str, Any], jobs: List[Job]) -> List[Dict[str, Any]]:
    """Expressions and their gradients, one after the other."""
    relation = build(part)._relations[0]
    found = []
    for job in map(Job._make, jobs):
        leaves = [torch.from_numpy(t).to(getattr(torch, d)) for t, d in zip(job.tensors, job.dtypes)]
        leaves = [leaf.requires_grad_() for leaf in leaves]
        fed = [torch.stack([x, x * 7], -1)[..., 0] for x in leaves] if job.strided else leaves
        out = ex.evaluate(relation, written(job.program, fed), job.reduce)
        out.backward(torch.from_numpy(job.grad).to(out.dtype))
        found.append({"out": told(out), "grads": [told(leaf.grad) for leaf in leaves]})
    return found


# ---- layers -----------------------------------------------------------------


class Columns:
    """GAT layers by blocks of columns, of which plain DGL has the same layer, called as cases of layers are."""

    OPTIONS: Dict[str, Dict[str, Any]] = {
        "flat": {"merge": "flatten", "activation": torch.nn.functional.elu},
        "mean": {"merge": "mean"},
        "heads": {"bias": False},
    }
    SPECS: Dict[str, Any] = {}

    @classmethod
    def make(cls, name: str, alone: bool = False) -> torch.nn.Module:
        options = {"allow_zero_in_degree": True, **cls.OPTIONS[name]}
        if not alone:
            return random_layer(lambda: sar.nn.GATConv(24, 40, 2, memory_efficient=True, **options))
        options.pop("merge", None)
        return random_layer(lambda: dgl.nn.GATConv(24, 40, 2, **options))

    @staticmethod
    def draw(graph: Any, name: str, dtype: str) -> List[Any]:
        return [np.random.default_rng(31).standard_normal((graph.num_nodes, 24)).astype(dtype)]

    @classmethod
    def call(cls, name: str, model: Any, graph: Any, given: List[Any]) -> List[Any]:
        out = model(graph, *given)
        merge = cls.OPTIONS[name].get("merge")
        return [out if out.dim() == 2 or merge is None else out.flatten(1) if merge == "flatten" else out.mean(1)]


LIBRARIES: Dict[str, Any] = {"dgl": cases_layers, "pyg": cases_pyg, "columns": Columns}
MODES = ("single", "autocast", "half", "prepared")
"""How a layer runs: in float32, under autocast, as ``layer.bfloat16()`` on rows of bfloat16, and under autocast after
``sar.prepare``."""


def run_layer(
    library: Any, name: str, mode: str, graph: Any, rows: List[Any], grads: Any = None, alone: bool = False
) -> Dict[str, Any]:
    """A layer on a graph, of DGL or PyG alone or of workers: results, gradients of rows and of parameters.

    :param library: the module of cases that has the layer
    :param grads: of the results; drawn where there are none
    """
    model = library.make(name, True) if alone and library is Columns else library.make(name)
    if not alone and getattr(library.SPECS.get(name), "norm", False):
        model = sar.convert_batchnorm(model)
    given = [torch.from_numpy(x).clone() if isinstance(x, np.ndarray) else x for x in rows]
    floats = [isinstance(x, torch.Tensor) and x.is_floating_point() for x in given]
    if mode == "half":
        model.bfloat16()
        given = [x.to(HALF) if is_float else x for x, is_float in zip(given, floats)]
    given = [x.requires_grad_() if is_float else x for x, is_float in zip(given, floats)]
    if mode == "prepared" and not alone:
        model = sar.prepare(model, graph)
    with torch.autocast("cpu", HALF, enabled=mode in ("autocast", "prepared")):
        out = list(library.call(name, model, graph, given))
    out = [o.materialize() if hasattr(o, "materialize") else o for o in out]
    results = [told(o) for o in out]
    rng = np.random.default_rng(5)
    grads = grads or [rng.standard_normal(tuple(o.shape)).astype(np.float32) for o in out]
    ends = [(o, torch.from_numpy(g).to(o.dtype)) for o, g in zip(out, grads) if o.requires_grad]
    if ends:
        torch.autograd.backward(*zip(*ends))
        if not alone:
            sar.gather_grads(model)
    return {
        "out": results,
        "grads": grads,
        "inputs": [told(x.grad) if is_float else None for x, is_float in zip(given, floats)],
        "parameters": {k: told(p.grad) for k, p in model.named_parameters()},
    }


def layers(
    part: Dict[str, Any], road: str, names: List[str], mode: str, rows: List[List[Any]], grads: List[List[np.ndarray]]
) -> List[Any]:
    """Layers of DGL or PyG, one after the other; in the place of one that fails, what it says."""
    library, graph = LIBRARIES[road], cases_pyg.graph_index(part) if road == "pyg" else build(part)
    found: List[Any] = []
    for name, own, of_own in zip(names, rows, grads):
        try:
            with counted(gat_columns._Attend) as pieces, counted(linear._Linear) as products:
                found.append(run_layer(library, name, mode, graph, own, of_own))
            found[-1].update({"by columns": len(pieces), "products": len(products)})
        except (RuntimeError, TypeError, ValueError) as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


def halved(part: Dict[str, Any], x: np.ndarray) -> Dict[str, Any]:
    """Bytes that layers send in forward, in float32 and under autocast, and what they save then that is their own."""
    graph, rows = build(part), torch.from_numpy(x)
    index, pyg, width = sar.pyg.edge_index(graph), cases_pyg.pyg_nn(), x.shape[1]
    loops = {"allow_zero_in_degree": True}
    layers: Dict[str, Any] = {
        "pyg gcn": pyg.GCNConv(width, 64),
        "pyg gat": pyg.GATConv(width, 32, heads=2),
        "pyg gatv2": pyg.GATv2Conv(width, 32, heads=2),
        "pyg sage": pyg.SAGEConv(width, 64),
        "pyg transformer": pyg.TransformerConv(width, 32, heads=2),
        "dgl graph": dgl.nn.GraphConv(width, 64, **loops),
        "dgl sage": dgl.nn.SAGEConv(width, 64, "mean"),
        "dgl gat": dgl.nn.GATConv(width, 32, 2, **loops),
    }
    found = {}
    with settings(exchange="pull"):  # all rows travel, and the first layer agrees on that
        layers["dgl graph"](graph, rows)
        for name, layer in layers.items():
            own = [sent()]
            for given, autocast in ((rows, False), (rows.to(HALF), True)):
                with torch.autocast("cpu", HALF, enabled=autocast), saved(max(len(x) * 32, 200)) as kept:
                    layer(*((given, index) if name.startswith("pyg") else (graph, given)))
                own.append(sent())
            found[name] = (own[1] - own[0], own[2] - own[1], sorted(kept))
    return found


# ---- functions in Python, batch norm, and what backward saves ---------------------


@contextlib.contextmanager
def saved(least: int) -> Iterator[Set[str]]:
    """The dtypes of the tensors of ``least`` numbers or more that autograd saves meanwhile."""
    found: Set[str] = set()

    def note(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.numel() >= max(1, least) and tensor.is_floating_point():
            found.add(str(tensor.dtype)[6:])
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        yield found


def many(part: Dict[str, Any]) -> List[float]:
    """Sum and mean of ones at node 0, by the engine and by a function in Python."""
    graph = build(part)
    graph.srcdata["x"] = torch.ones(graph.num_src_nodes(), 2, dtype=HALF)
    found: List[float] = []
    for message in (fn.copy_u("x", "m"), lambda edges: {"m": torch.erf(edges.src["x"] * 9)}):
        for reduce in (fn.sum, fn.mean):
            graph.update_all(message, reduce("m", "y"))
            found += graph.dstdata["y"][: int(sar.rank() == 0), 0].tolist()
    return found


def pairs(part: Dict[str, Any], rows: np.ndarray) -> np.ndarray:
    """The bits of what node 0 gets of two nodes. ``rows``: bits of bfloat16, of own nodes."""
    graph = build(part)
    graph.srcdata["x"] = torch.from_numpy(rows).view(HALF)
    graph.update_all(fn.copy_u("x", "m"), fn.sum("m", "y"))
    return graph.dstdata["y"].view(torch.int16).numpy()


class Net(torch.nn.Module):
    """A message function in Python that has a parameter, and batch norm with what follows it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 6).view(2, 3))
        self.norm = sar.nn.BatchNormAct(3, "elu")

    def message(self, edges: Any) -> Dict[str, torch.Tensor]:
        return {"m": torch.erf(edges.src["x"] @ self.weight.to(edges.src["x"].dtype)) * edges.data["w"]}


def received(nodes: Any) -> Dict[str, torch.Tensor]:
    return {"y": nodes.mailbox["m"].logsumexp(1)}


def mixed(part: Dict[str, Any], x: np.ndarray, w: np.ndarray, grad: np.ndarray, reduce: str) -> Dict[str, Any]:
    """Functions of edges and nodes, batch norm, readouts: results, gradients, and the dtypes of what is saved."""
    graph, net = build(part), Net()
    rows = torch.from_numpy(x).to(HALF).requires_grad_()
    graph.srcdata["x"], graph.edata["w"] = rows, torch.from_numpy(w).to(HALF)
    with saved(3 * len(x)) as kept:
        receive: Any = received if reduce == "logsumexp" else getattr(fn, reduce)("m", "y")
        graph.update_all(net.message, receive)
        y = graph.dstdata["y"]
        normed = net.norm(y) * 1
    normed.backward(torch.from_numpy(grad).to(HALF))
    sar.gather_grads(net)
    found = {"y": y, "normed": normed, "x": rows.grad, "weight": net.weight.grad, "scale": net.norm.weight.grad}
    for op in ("sum", "mean", "max"):
        found[f"{op} of nodes"] = graph_reduce(graph.batch_num_nodes(), y.detach(), op)
    return {**{k: told(v) for k, v in found.items()}, "saved": sorted(kept)}


def written_under_autocast(part: Dict[str, Any], x: np.ndarray) -> Dict[str, Any]:
    """What attention saves, and what a linear map of edges gives that is computed after autocast."""
    graph, rows = build(part), torch.from_numpy(x).to(HALF).requires_grad_()
    with saved(x.size) as kept:
        score = ex.total(ex.binary("mul", ex.load("u", rows), ex.load("v", rows)), -1, keepdim=True)
        ex.evaluate(graph._relations[0], ex.binary("mul", ex.load("u", rows), ex.softmax(score)), "sum")
    linear, made = torch.nn.Linear(x.shape[1], 2), []

    def message(edges: Any) -> Dict[str, torch.Tensor]:
        with torch.autocast("cpu", HALF):
            made.append(linear(torch.erf(edges.src["x"].float())))
        return {"m": made[0].float()}

    graph.srcdata["x"] = rows
    graph.update_all(message, fn.sum("m", "y"))
    with torch.autocast("cpu", HALF):
        graph.dstdata["y"].sum().backward()
    return {
        "saved": sorted(kept),
        "kinds": [str(t.dtype)[6:] for t in (made[0], graph.dstdata["y"], linear.weight.grad)],
    }


def refused(part: Dict[str, Any], x: np.ndarray) -> List[str]:
    """What messages in float16 say, and the dtype of what is made of float16 in float32."""
    graph, rows = build(part), torch.from_numpy(x).half()
    graph.srcdata["x"] = rows
    message, wide = (lambda edges: {"m": edges.src["x"] * 2}), (lambda edges: {"m": edges.src["x"].float()})
    found = [
        refusal(graph.update_all, fn.copy_u("x", "m"), fn.sum("m", "y")),
        refusal(ex.load, "u", rows),
        refusal(graph.update_all, message, fn.sum("m", "y")),
        refusal(sar.nn.BatchNormAct(x.shape[1]), rows),
    ]
    graph.update_all(wide, fn.sum("m", "y"))
    return [*found, str(graph.dstdata["y"].dtype)]


def rounded_rows(part: Dict[str, Any], x: np.ndarray, w: np.ndarray, dtypes: List[Optional[str]]) -> Dict[str, Any]:
    """What is made of rows of float32 that are rounded when messages read them, and what is sent for a sum and its
    backward, with the setting and without it. ``dtypes``: what each rank sets."""
    graph = build(part)
    rank = sar.comm.rank()
    found: Dict[str, Any] = {}
    for setting in (dtypes[rank], None):
        sar.Config.wire_dtype, sar.Config.exchange = setting, "pull"  # all rows travel
        try:
            ex.evaluate(graph._relations[0], ex.load("u", torch.from_numpy(x)), "sum")  # the first one agrees on that
            rows, weights = torch.from_numpy(x).requires_grad_(), torch.from_numpy(w).requires_grad_()
            before = sent()
            total = ex.evaluate(graph._relations[0], ex.load("u", rows), "sum")
            found["forward", setting] = sent() - before
            weighted = ex.evaluate(
                graph._relations[0], ex.binary("mul", ex.load("u", rows), ex.load("e", weights)), "mean"
            )
            spread = ex.evaluate(graph._relations[0], ex.unary("elu", ex.load("u", rows), 1.0), "sum")
            graph.srcdata["x"] = rows
            graph.update_all(lambda edges: {"m": torch.erf(edges.src["x"])}, fn.sum("m", "y"))
            written_in_python = graph.dstdata["y"]
            fused = dgl.nn.SAGEConv(x.shape[1], 2, "mean", bias=False)
            torch.nn.init.eye_(fused.fc_neigh.weight)
            torch.nn.init.zeros_(fused.fc_self.weight)
            results = (total, weighted, spread, written_in_python, fused(graph, rows))
            sum(r.square().sum() for r in results).backward()
            found["results", setting] = [told(r) for r in results]
            found["gradients", setting] = [told(rows.grad), told(weights.grad)]
            assert sar.stats()["wire_dtype"] == setting
        finally:
            sar.Config.wire_dtype, sar.Config.exchange = None, "auto"
    return found


def sent() -> int:
    """Payload of this worker so far."""
    return sum(link["sent_payload"] for link in sar.stats()["links"])


def differing(part: Dict[str, Any], dtype: str, form: str) -> str:
    """What ranks say whose rows have different dtypes."""
    graph = build(part)
    graph.srcdata["x"] = torch.ones(graph.num_src_nodes(), 3, dtype=getattr(torch, dtype))
    if form == "python":
        return refusal(graph.update_all, lambda edges: {"m": torch.erf(edges.src["x"])}, fn.sum("m", "y"))
    layers: Dict[str, Any] = {
        "sage": lambda: dgl.nn.SAGEConv(40, 8, "mean"),
        "gat": lambda: dgl.nn.GATConv(40, 48, 1, allow_zero_in_degree=True),
        "columns": lambda: sar.nn.GATConv(40, 48, 1, allow_zero_in_degree=True, memory_efficient=True),
        "pyg gcn": lambda: cases_pyg.pyg_nn().GCNConv(40, 48),
    }
    if form in layers:  # one rank alone is under autocast
        rows = torch.ones(graph.num_src_nodes(), 40)
        given = (rows, sar.pyg.edge_index(graph)) if form == "pyg gcn" else (graph, rows)
        with torch.autocast("cpu", HALF, enabled=dtype == "bfloat16"):
            return refusal(layers[form](), *given)
    if form == "sum":
        return refusal(graph.update_all, fn.copy_u("x", "m"), fn.sum("m", "y"))
    x = ex.load("u", graph.srcdata["x"])
    return refusal(ex.evaluate, graph._relations[0], ex.unary("tanh", x), "sum")


class Sage(torch.nn.Module):
    """Two layers of ``sar.nn``, with what comes between them."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        layers = {
            "sage": lambda a, b: sar.nn.SAGEConv(a, b, "mean"),
            "gcn": lambda a, b: sar.nn.GraphConv(a, b, allow_zero_in_degree=True),
            "gat": lambda a, b: sar.nn.GATConv(a, b, 1, allow_zero_in_degree=True),
        }
        self.first, self.norm, self.last = layers[kind](6, 8), sar.nn.BatchNormAct(8), layers[kind](8, 6)

    def forward(self, graph: Any, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(self.first(graph, x).flatten(1))
        return self.last(graph, h).flatten(1)


def trained(part: Dict[str, Any], x: np.ndarray, kind: str, prepare: bool, memoize: bool) -> Dict[str, Any]:
    """Losses of a model under autocast, and what its last step saves."""
    graph, rows = build(part), torch.from_numpy(x).to(HALF)
    torch.manual_seed(3)
    model = Sage(kind)
    sar.sync_params(model)
    if memoize:
        sar.memoize(rows)
    if prepare:
        model = sar.prepare(model, graph)
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.05), []
    for _ in range(4):
        with torch.autocast("cpu", HALF), saved(max(6 * len(x), 200)) as kept:
            out = model(graph, rows)
        loss = (out.float() - rows.float()).square().mean(1).sum() / 61
        optimizer.zero_grad()
        loss.backward()
        sar.gather_grads(model)
        optimizer.step()
        total = loss.detach().double().view(1)
        sar.comm.all_reduce(total)
        losses.append(float(total))
    sar.clear_memoized()
    kinds = {str(p.grad.dtype)[6:] for p in model.parameters() if p.grad is not None}
    return {"losses": losses, "saved": sorted(kept), "gradients": sorted(kinds), "out": str(out.dtype)[6:]}


def compiled(part: Dict[str, Any], x: np.ndarray) -> List[str]:
    """The dtypes that a prepared model gives under autocast, compiled and as it is, if the numbers are equal."""
    graph, rows = build(part), torch.from_numpy(x)
    model = sar.prepare(Sage("sage"), graph)
    with torch.autocast("cpu", HALF):
        results = [run(graph, rows) for run in (model, torch.compile(model, backend="aot_eager"))]
    torch.testing.assert_close(*results)
    return [str(r.dtype)[6:] for r in results]
