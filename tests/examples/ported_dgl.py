"""Public examples of DGL in our own words: their models, calls and training loops, on Cora, without dropout."""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sar.nn
from tests.examples.ported import CLASSES, EPOCHS, FEATURES, HIDDEN, Result, Run


def layers() -> Any:
    import dgl.nn

    return dgl.nn


def message() -> Any:
    import dgl.function

    return dgl.function


def classified(run: Run, model: Any, forward: Callable[[], Tensor]) -> Result:
    """The training loop of all examples that classify nodes."""
    y, mask = run.data.ndata["labels"], run.data.ndata["train_mask"].bool()
    optimizer, count = torch.optim.Adam(model.parameters(), lr=0.01), run.total(mask)
    losses = []
    for _ in range(EPOCHS):
        loss = F.cross_entropy(forward()[mask], y[mask], reduction="sum") / count
        losses.append(run.step(loss, optimizer, model))
    with torch.no_grad():
        return losses, [run.accuracy(forward(), y, run.data.ndata["test_mask"].bool())]


def link_predict(run: Run) -> Result:
    """Of the tutorial; the split of edges and the negative graph come before the cut, as relations."""

    class GraphSAGE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = layers().SAGEConv(FEATURES, HIDDEN, "mean")
            self.conv2 = layers().SAGEConv(HIDDEN, HIDDEN, "mean")

        def forward(self, g: Any, x: Tensor) -> Any:
            return self.conv2(g, self.conv1(g, x).relu())

    def scores(g: Any, h: Tensor) -> Any:
        with g.local_scope():
            g.ndata["h"] = h
            g.apply_edges(message().u_dot_v("h", "h", "score"))
            return g.edata["score"][:, 0]

    graph = {name: run.data["node", name, "node"] for name in ("train", "train_pos", "test_pos", "test_neg")}
    x = run.data.nodes["node"].data["features"]
    model = run.prepare(GraphSAGE())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(EPOCHS):
        h = model(graph["train"], x)
        positive = scores(graph["train_pos"], h)
        negative = scores(negative_graph(run, graph["train_pos"]), h)
        out = torch.cat([positive, negative])
        labels = torch.cat([torch.ones(len(positive)), torch.zeros(len(negative))])
        loss = F.binary_cross_entropy_with_logits(out, labels, reduction="sum") / run.total(len(labels))
        losses.append(run.step(loss, optimizer, model))
    with torch.no_grad():
        h = model(graph["train"], x)
        found = [scores(graph[name], h) for name in ("test_pos", "test_neg")]
    return losses, list(run.areas(*found))


def negative_graph(run: Run, positive: Any) -> Any:
    """The tutorial draws pairs once and makes a graph of them."""
    if run.split:
        return run.negative(positive, positive.num_edges())
    import dgl

    return dgl.graph(tuple(torch.from_numpy(run.drawn.pop(0))), num_nodes=positive.num_nodes())


def gcnii(run: Run) -> Result:
    class GCNII(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)
            self.layers = nn.ModuleList(
                layers().GCN2Conv(HIDDEN, layer=n + 1, alpha=0.1, lambda_=0.5, project_initial_features=True)
                for n in range(8)
            )

        def forward(self, g: Any, x: Tensor) -> Tensor:
            first = x = self.first(x).relu()
            for layer in self.layers:
                x = layer(g, x, first).relu()
            out: Tensor = self.last(x)
            return out

    model = run.prepare(GCNII())
    return classified(run, model, lambda: model(run.data, run.data.ndata["features"]))


def dgi(run: Run) -> Result:
    """Deep Graph Infomax by hand: its permutation, and its mean, are over the nodes of all workers."""

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layers().GraphConv(FEATURES, HIDDEN, activation=nn.PReLU(HIDDEN))

        def forward(self, g: Any, x: Tensor, corrupt: bool = False) -> Any:
            if corrupt:
                permutation = torch.randperm(nodes, generator=generator)[own]
                x = sar.fetch(x, permutation, g) if run.split else x[permutation]
            return self.layer(g, x)

    graph = run.data
    generator = torch.Generator().manual_seed(3)  # the same on all workers
    nodes, own = int(run.total(graph.num_nodes())), run.ids()
    encoder, weight = run.prepare(Encoder()), nn.Parameter(torch.eye(HIDDEN))
    optimizer = torch.optim.Adam([*encoder.parameters(), weight], lr=0.01)
    losses = []
    for _ in range(EPOCHS):
        positive = encoder(graph, graph.ndata["features"])
        negative = encoder(graph, graph.ndata["features"], True)
        summary = torch.sigmoid(sar.nn.functional.sum_over_workers(positive.sum(0)) / nodes)
        found = [rows @ (weight @ summary) for rows in (positive, negative)]
        loss = sum(
            F.binary_cross_entropy_with_logits(rows, torch.full_like(rows, label), reduction="sum") / nodes
            for rows, label in zip(found, (1.0, 0.0))
        )
        losses.append(run.step(loss, optimizer, encoder, nn.ParameterList([weight])))  # type: ignore[arg-type]
    return losses, []


def jknet(run: Run) -> Result:
    class JKNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(
                layers().GraphConv(n, HIDDEN, activation=F.relu) for n in (FEATURES, HIDDEN, HIDDEN)
            )
            self.jump, self.output = layers().JumpingKnowledge("cat"), nn.Linear(3 * HIDDEN, CLASSES)

        def forward(self, g: Any, x: Tensor) -> Any:
            kept = []
            for layer in self.layers:
                x = layer(g, x)
                kept.append(x)
            g.ndata["h"] = self.jump(kept)
            g.update_all(message().copy_u("h", "m"), message().sum("m", "h"))
            return self.output(g.ndata["h"])

    model = run.prepare(JKNet())
    return classified(run, model, lambda: model(run.data, run.data.ndata["features"]))


def sign(run: Run) -> Result:
    fn, g = message(), run.data
    with torch.no_grad(), g.local_scope():
        g.ndata["in_deg"], g.ndata["out_deg"] = (d().double().pow(-0.5) for d in (g.in_degrees, g.out_degrees))
        g.apply_edges(fn.u_mul_v("out_deg", "in_deg", "weight"))
        g.update_all(fn.copy_e("weight", "msg"), fn.sum("msg", "norm"))
        g.apply_edges(fn.e_div_v("weight", "norm", "weight"))
        g.ndata["feat_0"] = g.ndata["features"]
        for hop in (1, 2):
            g.update_all(fn.u_mul_e(f"feat_{hop - 1}", "weight", "msg"), fn.sum("msg", f"feat_{hop}"))
        rows = torch.cat([g.ndata[f"feat_{hop}"] for hop in range(3)], -1)
    model = run.prepare(nn.Sequential(nn.Linear(3 * FEATURES, HIDDEN), nn.PReLU(), nn.Linear(HIDDEN, CLASSES)))
    return classified(run, model, lambda: model(rows))


def label_propagation(run: Run) -> Result:
    """The example's own class."""
    fn, g = message(), run.data
    labels, train = g.ndata["labels"], g.ndata["train_mask"].bool().nonzero().squeeze()
    y = torch.zeros(len(labels), CLASSES)
    y[train] = F.one_hot(labels[train].view(-1), CLASSES).to(y)
    last = 0.5 * y
    degrees = g.in_degrees().to(y).clamp(min=1).pow(-0.5).unsqueeze(1)
    for _ in range(5):
        with g.local_scope():
            g.ndata["h"] = degrees * y
            g.update_all(fn.copy_u("h", "m"), fn.sum("m", "h"))
            y = (last + 0.5 * (degrees * g.ndata.pop("h"))).clamp_(0.0, 1.0)
    return [run.total(y)], [run.accuracy(y, labels, g.ndata["test_mask"].bool())]


def appnp(run: Run) -> Result:
    class APPNP(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)])
            self.propagate = layers().APPNPConv(10, 0.1, 0.0)

        def forward(self, g: Any, x: Tensor) -> Any:
            return self.propagate(g, self.layers[1](self.layers[0](x).relu()))

    model = run.prepare(APPNP())
    return classified(run, model, lambda: model(run.data, run.data.ndata["features"]))


SCRIPTS: dict[str, Callable[[Run], Result]] = {
    "4_link_predict": link_predict,
    "gcnii": gcnii,
    "dgi": dgi,
    "jknet": jknet,
    "sign": sign,
    "label_propagation": label_propagation,
    "appnp": appnp,
}
LINKS = ("4_link_predict",)
