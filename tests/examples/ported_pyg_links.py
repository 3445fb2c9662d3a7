"""Public examples of PyG that train on links, or without labels, in our own words, on Cora, without dropout."""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import nn

from tests.examples.ported import EPOCHS, FEATURES, HIDDEN, Result, Run, pyg
from tests.links.cases_unsupervised import Encoder


def edges(run: Run, name: str) -> Any:
    return run.data["node", name, "node"].edge_index


def decode(z: Any, pairs: Any) -> Any:
    return (z[pairs[0]] * z[pairs[1]]).sum(dim=-1)


def link_pred(run: Run) -> Result:
    x, train, positive = run.data["node"].x, edges(run, "train"), edges(run, "train_pos")
    model = run.prepare(Encoder(1, FEATURES, HIDDEN, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(EPOCHS):
        z = model(x, train)
        negative = run.negative(train, positive.size(1))
        out = torch.cat([decode(z, positive), decode(z, negative)])
        labels = torch.cat([torch.ones(positive.size(1)), torch.zeros(negative.size(1))])
        loss = F.binary_cross_entropy_with_logits(out, labels, reduction="sum") / run.total(len(labels))
        losses.append(run.step(loss, optimizer, model))
    with torch.no_grad():
        z = model(x, edges(run, "train_val"))
        scores = [decode(z, edges(run, name)) for name in ("test_pos", "test_neg")]
    return losses, list(run.areas(*scores))


def _autoencoder(run: Run, model: Any, extra: Callable[[Any], Any] | None = None) -> Result:
    x, train, positive = run.data["node"].x, edges(run, "train"), edges(run, "train_pos")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(EPOCHS):
        z = model.encode(x, train)
        loss = model.recon_loss(z, positive, run.negative(positive, positive.size(1)))
        losses.append(run.step(loss if extra is None else loss + extra(z), optimizer, model))
    with torch.no_grad():
        z = model.encode(x, edges(run, "train_val"))
        if run.split:
            return losses, list(model.test(z, edges(run, "test_pos"), edges(run, "test_neg")))
        return losses, list(run.areas(*(model.decoder(z, edges(run, n), False) for n in ("test_pos", "test_neg"))))


def autoencoder(run: Run) -> Result:
    return _autoencoder(run, run.prepare(pyg().GAE(Encoder(1, FEATURES, HIDDEN, 8))))


def _without_noise(model: Any) -> None:
    """Noise is drawn by each worker for its own nodes."""
    model.reparametrize = lambda mu, logstd: mu + logstd.exp() / 3


def autoencoder_variational(run: Run) -> Result:
    model = run.prepare(pyg().VGAE(Encoder(2, FEATURES, HIDDEN, 8)))
    _without_noise(model)
    nodes = run.total(run.data["node"].num_nodes)
    return _autoencoder(run, model, lambda z: model.kl_loss() / nodes)


def argva_node_clustering(run: Run) -> Result:
    discriminator = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    model = run.prepare(pyg().ARGVA(Encoder(2, FEATURES, HIDDEN, 8), discriminator))
    _without_noise(model.VGAE)
    nodes = run.total(run.data["node"].num_nodes)
    optimizer = torch.optim.Adam(discriminator.parameters(), lr=0.001)

    def extra(z: Any) -> Any:
        real = z.detach().sin()  # in place of noise
        torch.randn_like, before = (lambda _: real), torch.randn_like
        try:
            run.step(model.discriminator_loss(z), optimizer, discriminator)
        finally:
            torch.randn_like = before
        return model.reg_loss(z) + model.kl_loss() / nodes

    return _autoencoder(run, model, extra)


def infomax_transductive(run: Run) -> Result:
    class Encoded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.prelu = pyg().GCNConv(FEATURES, HIDDEN, cached=True), nn.PReLU(HIDDEN)

        def forward(self, x: Any, edge_index: Any) -> Any:
            return self.prelu(self.conv(x, edge_index))

    def corruption(x: Any, edge_index: Any) -> Any:
        return x[run.permutation(x.size(0))], edge_index

    model = pyg().DeepGraphInfomax(HIDDEN, Encoded(), lambda z, *args, **kwargs: z.mean(dim=0).sigmoid(), corruption)
    run.prepare(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x, edge_index = run.data.x, run.data.edge_index
    return [run.step(model.loss(*model(x, edge_index)), optimizer, model) for _ in range(EPOCHS)], []


def signed_gcn(run: Run) -> Result:
    """The loss of the model itself is refused. Here edges that are none stand for those of negative sign."""
    x, signs = run.data["node"].x, [edges(run, name) for name in ("train_pos", "test_neg")]
    model = run.prepare(pyg().SignedGCN(FEATURES, 8, num_layers=2, lamb=5))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(EPOCHS):
        z = model(x, *signs)
        loss: Any = 0
        for label, pairs in enumerate([*signs, run.negative(signs[0], signs[0].size(1))]):
            out = model.discriminate(z, pairs)
            count = run.total(pairs.shape[1])
            loss = loss + F.nll_loss(out, torch.full((len(out),), label), reduction="sum") / count / 3
        losses.append(run.step(loss, optimizer, model))
    return losses, []
