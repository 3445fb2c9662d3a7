"""Public examples of PyG in our own words: their models, calls and training loops, on Cora, without dropout."""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sar.nn
from tests.examples import ported_pyg_links as links
from tests.examples.ported import CLASSES, EDGE, EPOCHS, FEATURES, HIDDEN, Result, Run, pyg


def classified(run: Run, model: Any, forward: Callable[[], Tensor], extra: Callable[[], Any] | None = None) -> Result:
    """The training loop of all examples that classify nodes. There is no weight decay: it would make what rounding left
    of gradients that are 0, as those of biases before batch norm are, grow by each step of Adam."""
    data = run.data
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    train = run.total(data.train_mask)
    losses = []
    for _ in range(EPOCHS):
        model.train()
        out = forward().log_softmax(-1)
        loss = F.nll_loss(out[data.train_mask], data.y[data.train_mask], reduction="sum") / train
        losses.append(run.step(loss if extra is None else loss + extra(), optimizer, model))
    model.eval()
    with torch.no_grad():
        out = forward()
    tested = F.cross_entropy(out[data.test_mask], data.y[data.test_mask], reduction="sum")
    return losses, [run.total(tested) / run.total(data.test_mask), run.accuracy(out, data.y, data.test_mask)]


# ---- deep models --------------------------------------------------------------------------


def gcn2_cora(run: Run) -> Result:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lins = nn.ModuleList([nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)])
            self.convs = nn.ModuleList(
                pyg().GCN2Conv(HIDDEN, 0.1, 0.5, layer + 1, True, normalize=False) for layer in range(16)
            )

        def forward(self, x: Tensor, edge_index: Any, weight: Any) -> Tensor:
            x = first = self.lins[0](x).relu()
            for conv in self.convs:
                x = conv(x, first, edge_index, weight).relu()
            out: Tensor = self.lins[1](x)
            return out

    from torch_geometric.transforms import GCNNorm

    data = run.data = GCNNorm()(run.data)  # the example's ToSparseTensor is left out
    model = run.prepare(Net())
    return classified(run, model, lambda: model(data.x, data.edge_index, data.edge_weight))


def ogbn_proteins_deepgcn(run: Run) -> Result:
    class DeeperGCN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.nodes, self.edges = nn.Linear(EDGE, HIDDEN), nn.Linear(EDGE, HIDDEN)
            self.layers, self.last = nn.ModuleList(), nn.Linear(HIDDEN, CLASSES)
            for i in range(1, 6):
                conv = pyg().GENConv(HIDDEN, HIDDEN, aggr="softmax", t=1.0, learn_t=True, num_layers=2, norm="layer")
                norm, act = nn.LayerNorm(HIDDEN), nn.ReLU(inplace=True)
                again = i % 3
                if run.split and again:  # a checkpoint of torch would lose gradients of columns of edges
                    conv, again = sar.remat(conv), 0
                self.layers.append(pyg().DeepGCNLayer(conv, norm, act, block="res+", dropout=0.0, ckpt_grad=again))

        def forward(self, x: Tensor, edge_index: Any, edge_attr: Any) -> Tensor:
            x, edge_attr = self.nodes(x), self.edges(edge_attr)
            x = self.layers[0].conv(x, edge_index, edge_attr)
            for layer in self.layers[1:]:
                x = layer(x, edge_index, edge_attr)
            out: Tensor = self.last(self.layers[0].act(self.layers[0].norm(x)))
            return out

    from torch_geometric.utils import scatter

    data = run.data
    x = scatter(data.edge_attr, data.edge_index[1], 0, dim_size=data.num_nodes, reduce="sum")
    model = run.prepare(DeeperGCN())
    return classified(run, model, lambda: model(x, data.edge_index, data.edge_attr))


def rev_gnn(run: Run) -> Result:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.conv = nn.LayerNorm(HIDDEN // 2), pyg().SAGEConv(HIDDEN // 2, HIDDEN // 2)

        def forward(self, x: Tensor, edge_index: Any, dropout_mask: Any = None) -> Any:
            x = self.norm(x).relu()
            return self.conv(x if dropout_mask is None else x * dropout_mask, edge_index)

    class RevGNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin1, self.lin2 = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)
            self.norm = nn.LayerNorm(HIDDEN)
            self.convs = nn.ModuleList(pyg().GroupAddRev(Block(), num_groups=2) for _ in range(5))

        def forward(self, x: Tensor, edge_index: Any) -> Tensor:
            x = self.lin1(x)
            mask = torch.ones_like(x) / 0.9 if self.training else None  # in place of bernoulli_
            for conv in self.convs:
                x = conv(x, edge_index, mask)
            out: Tensor = self.lin2(self.norm(x).relu())
            return out

    from torch_geometric.transforms import AddSelfLoops

    data = run.data = AddSelfLoops()(run.data)
    model = run.prepare(RevGNN())
    return classified(run, model, lambda: model(data.x, data.edge_index))


# ---- transformers ---------------------------------------------------------------------------


class _Graph(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norms = nn.Linear(FEATURES, HIDDEN), nn.ModuleList(nn.BatchNorm1d(HIDDEN) for _ in range(3))
        self.convs = nn.ModuleList(pyg().GCNConv(HIDDEN, HIDDEN) for _ in range(2))

    def forward(self, x: Tensor, edge_index: Any) -> Tensor:
        last = x = self.norms[0](self.first(x)).relu()
        for conv, norm in zip(self.convs, self.norms[1:]):
            x = norm(conv(x, edge_index)).relu() + last
        return x


class _Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from torch_geometric.nn.attention import SGFormerAttention

        self.first, self.norms = nn.Linear(FEATURES, HIDDEN), nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(3))
        self.attentions = nn.ModuleList(SGFormerAttention(HIDDEN, 1, HIDDEN) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norms[0](self.first(x)).relu()
        for attention, norm in zip(self.attentions, self.norms[1:]):
            x = norm((attention(x.unsqueeze(0)).squeeze(0) + x) / 2).relu()
        return x


def _with_loops(run: Run) -> Any:
    """``to_undirected`` and ``coalesce`` of the example come before the cut."""
    from torch_geometric.utils import add_self_loops, remove_self_loops

    edge_index, _ = remove_self_loops(run.data.edge_index)
    edge_index, _ = add_self_loops(edge_index, num_nodes=run.data.num_nodes)
    return edge_index


def sgformer(run: Run) -> Result:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attending, self.graph, self.fc = _Attending(), _Graph(), nn.Linear(HIDDEN, CLASSES)

        def forward(self, x: Tensor, edge_index: Any) -> Tensor:
            out: Tensor = self.fc(0.5 * self.graph(x, edge_index) + 0.5 * self.attending(x))
            return out

    edge_index, model = _with_loops(run), run.prepare(Net())
    return classified(run, model, lambda: model(run.data.x, edge_index))


def polynormer(run: Run) -> Result:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            from torch_geometric.nn.attention import PolynormerAttention

            widths = [FEATURES, HIDDEN]
            self.h_lins, self.lins = (nn.ModuleList(nn.Linear(n, HIDDEN) for n in widths) for _ in range(2))
            self.convs = nn.ModuleList(pyg().GCNConv(n, HIDDEN, cached=False, normalize=True) for n in widths)
            self.lns = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(2))
            self.bns = nn.ModuleList(nn.BatchNorm1d(HIDDEN) for _ in range(2))
            self.ln, self.everywhere, self.beta = nn.LayerNorm(HIDDEN), False, 0.9
            self.attends = nn.Sequential(*[PolynormerAttention(HIDDEN, 1, HIDDEN, 0.9, 0.0) for _ in range(2)])
            self.local, self.overall = nn.Linear(HIDDEN, CLASSES), nn.Linear(HIDDEN, CLASSES)

        def forward(self, x: Tensor, edge_index: Any) -> Any:
            total: Any = 0
            for h_lin, lin, conv, ln, bn in zip(self.h_lins, self.lins, self.convs, self.lns, self.bns):
                h = h_lin(x).relu()
                x = bn(conv(x, edge_index) + lin(x)).relu()
                x = (1 - self.beta) * ln(h * x) + self.beta * x
                total = total + x
            if not self.everywhere:
                return self.local(total)
            return self.overall(self.attends(self.ln(total).unsqueeze(0)).squeeze(0))

    edge_index, model = _with_loops(run), run.prepare(Net())
    first, _ = classified(run, model, lambda: model(run.data.x, edge_index))
    model.everywhere = True
    then, scores = classified(run, model, lambda: model(run.data.x, edge_index))
    return first + then, scores


def graph_gps(run: Run, attention: str = "performer") -> Result:
    """The example has many small graphs; here is one."""

    class GPS(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.edges, self.pe_lin = nn.Linear(FEATURES, 12), nn.Linear(EDGE, HIDDEN), nn.Linear(6, 4)
            self.pe_norm, self.last = nn.BatchNorm1d(6), nn.Linear(HIDDEN, CLASSES)
            self.convs = nn.ModuleList()
            for _ in range(2):
                mlp = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN))
                self.convs.append(pyg().GPSConv(HIDDEN, pyg().GINEConv(mlp), heads=4, attn_type=attention))

        def forward(self, x: Tensor, pe: Tensor, edge_index: Any, edge_attr: Any, batch: Any) -> Tensor:
            x = torch.cat((self.first(x), self.pe_lin(self.pe_norm(pe))), 1)
            edge_attr = self.edges(edge_attr)
            for conv in self.convs:
                x = conv(x, edge_index, batch, edge_attr=edge_attr)
            out: Tensor = self.last(x)
            return out

    from torch_geometric.transforms import AddRandomWalkPE

    data = run.data = AddRandomWalkPE(walk_length=6, attr_name="pe")(run.data)
    pe, model = data.pe.to(data.x.dtype), run.prepare(GPS())
    return classified(run, model, lambda: model(data.x, pe, data.edge_index, data.edge_attr, None))


def graph_gps_multihead(run: Run) -> Result:
    return graph_gps(run, "multihead")


# ---- propagation, and what surrounds it --------------------------------------------------------


def label_prop(run: Run) -> Result:
    data, model = run.data, pyg().LabelPropagation(num_layers=3, alpha=0.9)
    train = data.train_mask.nonzero().view(-1)
    out = model(data.y, data.edge_index, mask=train)
    return [], [run.accuracy(out, data.y, mask) for mask in (data.val_mask, data.test_mask)]


def correct_and_smooth(run: Run) -> Result:
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    data = run.data
    model = run.prepare(
        nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.BatchNorm1d(HIDDEN), nn.Linear(HIDDEN, CLASSES))
    )
    losses, scores = classified(run, model, lambda: model(data.x))
    with torch.no_grad():
        soft = model(data.x).softmax(-1)
    index, weight = gcn_norm(data.edge_index, None, data.num_nodes, add_self_loops=False, dtype=soft.dtype)
    post = pyg().CorrectAndSmooth(5, 1.0, 5, 0.8, autoscale=False, scale=20.0)
    train, known = data.train_mask.nonzero().view(-1), data.y[data.train_mask]
    for part in (post.correct, post.smooth):
        soft = part(soft, known, train, index, weight)
        scores.append(run.accuracy(soft, data.y, data.test_mask))
    return losses, scores


def sign(run: Run) -> Result:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lins = nn.ModuleList(nn.Linear(FEATURES, HIDDEN) for _ in range(3))
            self.lin = nn.Linear(3 * HIDDEN, CLASSES)

        def forward(self, xs: list[Tensor]) -> Tensor:
            out: Tensor = self.lin(torch.cat([lin(x).relu() for lin, x in zip(self.lins, xs)], dim=-1))
            return out

    data = run.data
    if run.split:
        xs = sar.nn.sign_features(data.edge_index.graph, data.x, 2, "gcn")
    else:
        from torch_geometric.transforms import SIGN

        data = SIGN(2)(data)
        xs = [data.x, data.x1, data.x2]
    model = run.prepare(Net())
    return classified(run, model, lambda: model(xs))


def super_gat(run: Run) -> Result:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            kinds = {"attention_type": "MX", "edge_sample_ratio": 1.0, "is_undirected": True}
            self.conv1 = pyg().SuperGATConv(FEATURES, 4, heads=4, **kinds)
            self.conv2 = pyg().SuperGATConv(16, CLASSES, heads=4, concat=False, **kinds)

        def forward(self, x: Tensor, edge_index: Any) -> Any:
            loss: Any = 0.0
            for conv, act in ((self.conv1, F.elu), (self.conv2, nn.Identity())):
                pairs = run.negative(edge_index, edge_index.shape[1] // 2) if self.training else None
                x = act(conv(x, edge_index, pairs))  # the example leaves it to the layer to draw pairs
                loss = loss + conv.get_attention_loss() if self.training else loss
            return x, loss

    model, data = run.prepare(Net()), run.data
    found: list[Any] = []

    def forward() -> Tensor:
        found[:] = model(data.x, data.edge_index)
        return found[0]  # type: ignore[no-any-return]

    return classified(run, model, forward, lambda: 4.0 * found[1])


def _propagated(layer: Callable[[], Any]) -> Callable[[Run], Result]:
    def script(run: Run) -> Result:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.lin, self.conv = nn.Linear(FEATURES, CLASSES), layer()

            def forward(self, x: Tensor, edge_index: Any) -> Any:
                return self.conv(self.lin(x), edge_index)

        model = run.prepare(Net())
        return classified(run, model, lambda: model(run.data.x, run.data.edge_index))

    return script


SCRIPTS: dict[str, Callable[[Run], Result]] = {
    "link_pred": links.link_pred,
    "autoencoder": links.autoencoder,
    "autoencoder --variational": links.autoencoder_variational,
    "argva_node_clustering": links.argva_node_clustering,
    "signed_gcn": links.signed_gcn,
    "infomax_transductive": links.infomax_transductive,
    "gcn2_cora": gcn2_cora,
    "ogbn_proteins_deepgcn": ogbn_proteins_deepgcn,
    "rev_gnn": rev_gnn,
    "sgformer": sgformer,
    "polynormer": polynormer,
    "graph_gps --attn_type performer": graph_gps,
    "graph_gps": graph_gps_multihead,
    "label_prop": label_prop,
    "correct_and_smooth": correct_and_smooth,
    "sign": sign,
    "super_gat": super_gat,
    "sgc": _propagated(lambda: pyg().SGConv(CLASSES, CLASSES, K=2, cached=True)),
    "appnp": _propagated(lambda: pyg().APPNP(K=10, alpha=0.1)),
}
LINKS = ("link_pred", "autoencoder", "autoencoder --variational", "argva_node_clustering", "signed_gcn")
"""Scripts that train on the edges that were split."""
