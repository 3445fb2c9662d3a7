"""What runs on the workers to test models under torch.compile, prepared and as they are."""

from __future__ import annotations

import copy
import warnings
from typing import Any, Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sar
from tests.parity.cases_prepared import HIDDEN, IN, OUT, Layers, model_of
from tests.parity.pyg_specs import pyg_nn
from tests.support.worker import build, refusal


class OwnLayer(nn.Module):
    """Attention, a division by degrees and a message function of one's own."""

    def __init__(self, into: int, onto: int) -> None:
        super().__init__()
        self.linear, self.score = nn.Linear(into, onto), nn.Linear(onto, 1)

    def forward(self, graph: Any, h: Tensor) -> Tensor:
        import dgl.function as fn

        with graph.local_scope():
            h = self.linear(h)
            graph.srcdata["h"] = h
            graph.srcdata["s"] = graph.dstdata["d"] = self.score(h)
            graph.apply_edges(fn.u_add_v("s", "d", "e"))
            graph.edata["e"] = torch.sigmoid(F.leaky_relu(graph.edata["e"]))
            graph.update_all(fn.u_mul_e("h", "e", "m"), fn.sum("m", "o"))
            graph.update_all(lambda edges: {"m": edges.src["h"] * 2}, fn.sum("m", "q"))
            degrees = graph.in_degrees().clamp(min=1).to(h.dtype).unsqueeze(1)
            return graph.dstdata["o"] / degrees + graph.dstdata["q"]


MORE: dict[tuple[str, str], Callable[[], nn.Module]] = {
    ("dgl", "own"): lambda: Layers(lambda home, i, o: OwnLayer(i, o)),
    ("dgl", "gatv2"): lambda: Layers(lambda home, i, o: home.GATv2Conv(i, o // 2, 2, allow_zero_in_degree=True)),
    ("pyg", "jumping"): lambda: pyg_nn().GraphSAGE(IN, HIDDEN, 2, OUT, jk="cat"),
    ("pyg", "edge_cnn"): lambda: pyg_nn().EdgeCNN(IN, HIDDEN, 2, OUT, norm=None),
}
"""Models beside those of ``cases_prepared``."""


def compiled(
    part: dict[str, Any], x: np.ndarray, compiles: bool, library: str, name: str, backend: str, prepares: bool
) -> list[float]:
    """How far results, gradients and buffers of a compiled model are from those of one that is not, two steps each.

    :param compiles: whether this rank compiles it
    :param prepares: the model is prepared, and compiled whole
    """
    warnings.simplefilter("ignore")
    graph = build(part)
    given = sar.pyg.edge_index(graph) if library == "pyg" else graph
    torch.manual_seed(3)
    model = MORE[library, name]().double() if (library, name) in MORE else model_of(library, name, torch.float64)
    model = sar.prepare(model, given) if prepares else sar.convert_batchnorm(model)
    sar.sync_params(model)
    state = copy.deepcopy(model.state_dict())
    found = []
    for through in (False, True):
        torch._dynamo.reset()
        run_it: Any = torch.compile(model, fullgraph=prepares, backend=backend) if through and compiles else model
        rows = torch.from_numpy(x.copy()).requires_grad_()
        both = (rows, given) if library == "pyg" else (given, rows)
        out = run_it(*both)
        (run_it(*both).square().sum() + out.sum()).backward()
        sar.gather_grads(model)  # the ranks' shares depend on whether a layer multiplies before it sends
        with torch.no_grad():
            last = run_it.eval()(*both) if prepares else out
        model.train()
        found.append([out, rows.grad, last, *(p.grad for p in model.parameters()), *model.buffers()])
        found[-1] = [t.detach().clone() for t in found[-1]]
        model.zero_grad()
        model.load_state_dict(state)
    return [float((a - b).abs().max()) for a, b in zip(*found) if a.is_floating_point() and a.numel()]


def not_compiled(part: dict[str, Any]) -> list[str]:
    """What is said of a second backward, of another graph, and of torch.export."""
    graph, other = build(part), build(part)
    model = sar.prepare(model_of("dgl", "gcn", torch.float64), graph)
    x = torch.ones(graph.num_nodes(), IN, dtype=torch.float64)
    found = []
    whole = torch.compile(model, fullgraph=True, backend="aot_eager")
    out = whole(graph, x).sum()
    out.backward(retain_graph=True)
    index = sar.pyg.edge_index(graph)
    of_pyg = sar.prepare(model_of("pyg", "gcn", torch.float64), index)
    calls: list[Callable[[], Any]] = [
        out.backward,
        lambda: whole(other, x),
        lambda: torch.export.export(of_pyg, (x, index)),
    ]
    for call in calls:
        found.append(refusal(call))
    return found
