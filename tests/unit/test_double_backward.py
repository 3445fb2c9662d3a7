"""Differentiating twice: an error that names the operation and its layer, never other numbers."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
import torch

import sar
import sar.function as fn
import sar.nn
from sar.autograd.fetch import fetch
from sar.distributed import network
from sar.graph.readout import graph_reduce
from sar.graph.reversed import ReversedGraph
from tests.support.graphs import make
from tests.support.worker import build

N, E = 61, 400
PACKAGE = Path(sar.__file__).parent


@pytest.fixture(scope="module")
def graph() -> Iterator[Any]:
    sar.initialize_comms(0, 1, "127.0.0.1", "sar", master_port_number=network.free_port())
    yield build(make("random", 1).part(0))
    sar.comm.shutdown()


def update(graph: Any, x: torch.Tensor, w: torch.Tensor, message: Any, reduce: Any = None) -> torch.Tensor:
    graph.ndata["x"], graph.edata["w"] = x, w
    graph.update_all(message, fn.sum("m", "o") if reduce is None else reduce)
    found: torch.Tensor = graph.dstdata["o"]
    return found


def edges(graph: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    graph.ndata["x"] = x
    graph.apply_edges(fn.u_mul_v("x", "x", "d"))
    found: torch.Tensor = graph.edata["d"].materialize()
    return found


def weighted(edges: Any) -> dict[str, torch.Tensor]:
    return {"m": edges.src["x"].square() * edges.data["w"]}


def gathered(nodes: Any) -> dict[str, torch.Tensor]:
    return {"o": nodes.mailbox["m"].square().sum(1)}


def reversed_sum(graph: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    turned = ReversedGraph(graph._state, graph._relations[0], True)
    return update(turned, x, w, fn.u_mul_e("x", "w", "m"))


class Layer(torch.nn.Module):
    """A layer of a script."""

    def forward(self, graph: Any, x: torch.Tensor) -> torch.Tensor:
        return update(graph, x.tanh(), torch.ones(E, 1), fn.copy_u("x", "m"))


Run = Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]
OPERATIONS: dict[str, tuple[str, Run]] = {
    "copy_u": (r"^update_all\(copy_u, mean\)", lambda g, x, w: update(g, x, w, fn.copy_u("x", "m"), fn.mean("m", "o"))),
    "u_mul_e": (r"^update_all\(u_mul_e, sum\)", lambda g, x, w: update(g, x, w, fn.u_mul_e("x", "w", "m"))),
    "max": ("^a message with max", lambda g, x, w: update(g, x, w, fn.copy_u("x", "m"), fn.max("m", "o"))),
    "expression": ("^a message with sum", lambda g, x, w: update(g, x, w, fn.u_mul_v("x", "x", "m"))),
    "edges": ("^the values of an edge tensor", edges),
    "message": ("^a message with sum", lambda g, x, w: update(g, x, w, weighted)),
    "steps": ("^a function of edges", lambda g, x, w: update(g, x, w, lambda e: {"m": weighted(e)["m"].cos()})),
    "mailbox": ("^the function gathered", lambda g, x, w: update(g, x, w, fn.copy_u("x", "m"), gathered)),
    "reversed": ("^a sum over out-edges", reversed_sum),
    "fetched": ("^the fetching of other workers' rows", lambda g, x, w: fetch(g._relations[0], torch.arange(N), x)),
    "readout": ("^a sum or maximum over all nodes", lambda g, x, w: graph_reduce(g.batch_num_nodes(), x, "sum")),
    "layer": (r"^Layer: update_all\(copy_u, sum\)", lambda g, x, w: Layer()(g, x)),
    "sar_layer": ("^GINConv: update_all", lambda g, x, w: sar.nn.GINConv(None)(g, x)),
}


@pytest.mark.parametrize("name", list(OPERATIONS))
def test_operation(graph: Any, name: str) -> None:
    said, run = OPERATIONS[name]
    if "Layer" in said or "GINConv" in said:
        said = said if hasattr(run.__code__, "co_qualname") else said.replace("^Layer: ", "").replace("^GINConv: ", "")
    torch.manual_seed(1)
    x, w = torch.randn(N, 2, requires_grad=True), torch.rand(E, 1, requires_grad=True)
    with graph.local_scope():
        (once,) = torch.autograd.grad(run(graph, x, w).square().sum(), x)
        (again,) = torch.autograd.grad(run(graph, x, w).square().sum(), x, create_graph=True)
        assert torch.equal(once, again)
        with pytest.raises(RuntimeError, match=f"{said}.* cannot be differentiated twice.*create_graph"):
            again.square().sum().backward()


def test_a_gradient_that_depends_on_inputs_alone(graph: Any) -> None:
    """Where what came into backward needs no gradient, its result may need one all the same: no silent zeros."""
    x, w = torch.randn(N, 2, requires_grad=True), torch.rand(E, 1, requires_grad=True)
    with graph.local_scope():
        out = update(graph, x, w, fn.u_mul_e("x", "w", "m"))
        (grad,) = torch.autograd.grad(out.sum(), x, create_graph=True)  # the sums of w over out-edges
    with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
        torch.autograd.grad(grad.sum(), w)


def test_what_does_not_go_through(graph: Any) -> None:
    """The second derivative of the rest of a model is there, with the operation detached."""
    x, w = torch.randn(N, 2, requires_grad=True), torch.rand(E, 1)
    with graph.local_scope():
        out = update(graph, x, w, fn.copy_u("x", "m")).detach()
    (grad,) = torch.autograd.grad((x**3 * out).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), x)
    torch.testing.assert_close(second, 6 * x.detach() * out)


def test_every_autograd_function_is_decorated() -> None:
    """A backward of its own without the decorator would be recorded by torch, and differentiated wrongly."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            for f in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(f, ast.FunctionDef) and f.name == "backward" and f.args.args[0].arg == "ctx":
                    found[node.name] = [ast.unparse(d).split("(")[0] for d in f.decorator_list]
    assert len(found) >= 10
    assert found.pop("_Refuse") == ["staticmethod"]
    for name, decorators in found.items():
        assert "differentiable_once" in decorators, f"{name}: {decorators}"
