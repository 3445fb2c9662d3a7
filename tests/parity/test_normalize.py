"""Batch norm that is computed where it is read, and layers that compute rows again, against DGL on the whole graph."""

from __future__ import annotations

import importlib.util
import io
from typing import Any, Callable

import dgl
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sar import DistributedBN1D
from sar.autograd.fused import recompute, row_blocks
from sar.autograd.fused.deferred import computed
from sar.nn import BatchNormAct
from tests.parity import cases_normalize
from tests.parity.cases_normalize import COUNTED, NOTHING, WAYS, Net
from tests.support.graphs import close, make
from tests.support.pool import CaseError
from tests.support.sessions import Workers

# with the layer of PyG where PyG is installed
PYG = ["gcn"] if importlib.util.find_spec("torch_geometric") else []


def both(
    workers: Workers, kind: str, way: str, graph_kind: str = "random", dtype: str = "float64", width: int = 5
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What the workers found, and DGL on the whole graph."""
    graph = make(graph_kind, workers.world, seed=91)
    rng = np.random.default_rng(92)
    x = rng.standard_normal((graph.num_nodes, 4)).astype(dtype)
    grad = rng.standard_normal((graph.num_nodes, 3)).astype(dtype)
    ends = torch.from_numpy(graph.src), torch.from_numpy(graph.dst)
    whole = torch.stack(ends) if kind == "gcn" else dgl.graph(ends, num_nodes=graph.num_nodes)
    torch.manual_seed(7)
    net = Net(kind, [4, width, width, 3], lambda f: torch.nn.BatchNorm1d(f, track_running_stats=False), way)
    net.to(torch.from_numpy(x).dtype)
    for norm in net.norms:
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    rows = torch.from_numpy(x.copy()).requires_grad_()
    out = net(whole, rows, False)
    out.backward(torch.from_numpy(grad))
    expected = {"out": out.detach().numpy(), "x": rows.grad.numpy(), "graph": graph}
    expected.update({name: p.grad.numpy() for name, p in net.named_parameters()})
    state = {name: value.numpy() for name, value in net.state_dict().items()}
    arguments = graph.shares(x=x, grad=grad)
    return workers.run(cases_normalize.step, arguments, kind=kind, way=way, state=state, width=width), expected


def check(found: list[dict[str, Any]], expected: dict[str, Any], loose: float = 1.0) -> None:
    graph = expected.pop("graph")
    for rank, one in enumerate(found):
        rows = graph.rows(rank)
        for name, value in expected.items():
            close(one[name], value[rows] if name in ("out", "x") else value, name, loose)


@pytest.mark.parametrize("way", WAYS)
def test_nets(workers: Workers, way: str) -> None:
    for kind in ("sage", "gat", *PYG):
        found, expected = both(workers, kind, way, width=5 if way == "bfloat16" else 12)
        check(found, expected, 5e10 if way == "bfloat16" else 100)
        expected = {"forward": 2, "applied": 3, "masks": 0 if "after batch norm" in way else 2}  # of ReLU
        if way in ("relu", *NOTHING) and kind == "gcn":
            assert found[0]["counts"] == {**expected, "applied": 4}  # in blocks, of which there is one
        elif way in COUNTED and found[0]["out"].size:
            assert found[0]["counts"] == expected  # with the rows that the second layer read


def test_products_of_rows_in_blocks() -> None:
    """What a layer sends does not depend on whether it has rows as a whole. Sums over rows are rounded as the library
    of matrix products splits them, which differs between processors."""
    for rows, width, out in ((9000, 256, 256), (5003, 100, 47), (800, 33, 1), (0, 5, 4)):
        for dtype in (torch.float32, torch.float64):
            x, w, grad = (torch.randn(*shape, dtype=dtype) for shape in ((rows, width), (out, width), (rows, out)))
            made = torch.tanh(x)
            assert torch.equal(row_blocks.products(x, w, made_by=lambda rows, _: rows.tanh())[0], made.mm(w.t()))
            sums, whole = row_blocks.sums(x, grad, made_by=lambda rows, _: rows.tanh())[0], grad.t().mm(made)
            near = 64 * torch.finfo(dtype).eps * float(whole.abs().max()) if rows else 0.0
            torch.testing.assert_close(sums, whole, rtol=0, atol=near)


def test_rows_changed_past_torch(two: Workers) -> None:
    """Between batch norm and the layer: an error where the layer has given the rows up."""
    with pytest.raises(CaseError, match=r"RuntimeError: the rows that a layer read are not those.*h\.data"):
        both(two, "sage", "changed data")


@pytest.mark.parametrize("graph", ["empty_worker", "no_edges", "hub"])
@pytest.mark.parametrize("width", [1, 47])
def test_graphs_and_widths(two: Workers, graph: str, width: int) -> None:
    for dtype in ("float32", "float64"):
        for kind in ("sage", *PYG):
            check(*both(two, kind, "relu", graph, dtype, width), 100)


class Square(torch.autograd.Function):
    """Does not ask torch's function overrides."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        ctx.save_for_backward(a)
        return a * a

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (a,) = ctx.saved_tensors
        return 2 * a * grad


def changed_without_history(h: Tensor) -> Tensor:
    with torch.no_grad():
        h.mul_(2)
    return h * h.detach()


READERS: dict[str, Callable[[Tensor], Tensor]] = {
    "F.relu": F.relu,
    "torch.relu": torch.relu,
    "method": lambda h: h.relu(),
    "module": torch.nn.ReLU(),
    "in place": lambda h: (torch.relu_(h), h + 1)[1],
    "module in place": lambda h: (torch.nn.ReLU(inplace=True)(h), h * 2)[1],
    "other": torch.sigmoid,
    "both": lambda h: torch.relu(h) + torch.sigmoid(h),
    "twice": lambda h: torch.relu(h) + torch.relu(h).square(),
    "function": Square.apply,
    "function and more": lambda h: Square.apply(h) + h + torch.relu(h),
    "changed": lambda h: h.mul_(3) + torch.relu(h),
    "changed without history": changed_without_history,
    "part": lambda h: torch.cat([h[:3], F.relu(h)[3:]]),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("shape", [(50, 6), (3000, 47), (2, 1)])
def test_readers(reader: str, shape: tuple[int, int]) -> None:
    """Whatever reads the result of batch norm sees what torch's batch norm gives."""
    torch.manual_seed(0)
    x, grad = torch.randn(shape, dtype=torch.float64) * 3 + 5, torch.randn(shape, dtype=torch.float64)
    ours, theirs = DistributedBN1D(shape[1], distributed=False).double(), torch.nn.BatchNorm1d(shape[1]).double()
    results = []
    for norm in (ours, theirs):
        with torch.no_grad():
            norm.weight.copy_(torch.linspace(-1, 2, shape[1]))
            norm.bias.copy_(torch.linspace(1, -0.5, shape[1]))
        rows = x.clone().requires_grad_()
        out = READERS[reader](norm(rows))
        assert type(out * 1) is Tensor  # of ReLU it is deferred, too
        out.backward(grad)
        results.append((out.detach(), rows.grad, norm.weight.grad, norm.bias.grad))
    for what, mine, wanted in zip(("out", "x", "weight", "bias"), *results):
        close(mine.numpy(), wanted.numpy(), f"{reader}: {what}", 100)


def test_what_is_asked_of_it() -> None:
    norm = DistributedBN1D(6, distributed=False)
    x = torch.randn(9, 6, requires_grad=True)
    h = norm(x * 1)
    assert (h.shape, h.dtype, h.requires_grad, h.is_leaf, len(h)) == ((9, 6), torch.float32, True, False, 9)
    assert h._state._values is None  # nobody has read it
    h.retain_grad()
    torch.relu(h).sum().backward()
    assert h.grad is not None and set(h.grad.unique().tolist()) <= {0.0, 1.0}
    file = io.BytesIO()
    torch.save(norm(x * 1), file)
    file.seek(0)
    assert type(torch.load(file, weights_only=True)) is Tensor
    assert norm(x * 1).detach().numpy().shape == (9, 6)
    with torch.no_grad():
        assert type(norm(x)) is Tensor


def test_refused() -> None:
    norm = DistributedBN1D(6, distributed=False)
    x = torch.randn(9, 6, requires_grad=True)
    h = norm(x * 1)
    torch.relu_(h)
    with pytest.raises(RuntimeError, match="changed in place.*clone"):
        Square.apply(h).sum().backward()
    h = torch.relu(norm(x * 1))
    h.mul_(2)
    with pytest.raises(RuntimeError, match="changed in place.*clone"):
        Square.apply(h).sum().backward()
    rows = x * 1
    h = norm(rows)
    rows.mul_(2)
    with pytest.raises(RuntimeError, match="input of batch norm was changed"):
        torch.relu(h)
    rows = x * 1
    out = torch.relu(norm(rows))
    rows.mul_(2)
    with pytest.raises(RuntimeError, match="input of batch norm was changed"):
        out.sum().backward()


@pytest.mark.parametrize(("activation", "dropout"), [("none", 0.0), ("relu", 0.0), ("elu", 0.0), ("relu", 0.4)])
def test_gradient_in_the_memory_of_the_input(activation: str, dropout: float) -> None:
    """With ``reuse_input`` the same numbers; the input is gone, and torch knows."""
    x, grad = torch.randn(3000, 47) + 2, torch.randn(3000, 47)
    results, inputs = [], []
    for reuse in (False, True):
        norm = BatchNormAct(47, activation, dropout, reuse_input=reuse, distributed=False)
        leaf = x.clone().requires_grad_()
        inputs.append(leaf * 1)
        given: list[Tensor] = []
        inputs[-1].register_hook(given.append)
        torch.manual_seed(3)
        out = norm(inputs[-1])
        out.backward(grad, retain_graph=True)
        results.append((out.detach() * 1 if not reuse else results[0][0], leaf.grad, norm.weight.grad, norm.bias.grad))
        assert (given[0].data_ptr() == inputs[-1].data_ptr()) == reuse
    for mine, wanted in zip(*results):
        assert torch.equal(mine, wanted)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward(grad)
    leaf = x.clone().requires_grad_()  # its gradient may not lie in its memory
    norm(leaf).backward(grad)
    assert torch.equal(leaf, x)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_rows_of_batch_norm_with_activation_are_computed_again(dropout: float) -> None:
    """What a layer saves of them is their origin, and the rows that it gets are the same to the bit. The last layer
    holds them too, unless its own gradients are wider."""
    for activation in recompute.ACTIVATIONS:
        norm = BatchNormAct(8, activation, dropout, distributed=False)
        rows = computed(norm(torch.randn(2000, 8, requires_grad=True) * 1))
        (saved, narrow), (_, wide) = (recompute.save(rows, results) for results in (2, 3))
        assert narrow is not None and narrow.take() is not None
        assert wide is not None and wide.take() is None
        assert saved.source.data_ptr() != rows.data_ptr()
        assert torch.equal(recompute.rows_of(saved, None), rows)
