"""Autoencoders and DeepGraphInfomax of PyG, on workers and alone."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import torch
from torch import nn

import sar
from tests.links.cases_fetch import built
from tests.links.cases_negative import original_pairs
from tests.support.worker import numpy

IN, OUT, EPOCHS = 5, 4, 20


class Encoder(nn.Module):
    """Two layers; of a variational model, two results."""

    def __init__(self, results: int = 1, inputs: int = IN, hidden: int = 8, out: int = OUT) -> None:
        super().__init__()
        from torch_geometric.nn import GCNConv

        self.first = GCNConv(inputs, hidden)
        self.last = nn.ModuleList(GCNConv(hidden, out) for _ in range(results))

    def forward(self, x: Any, edge_index: Any) -> Any:
        x = self.first(x, edge_index).relu()
        found = [layer(x, edge_index) for layer in self.last]
        return found[0] if len(found) == 1 else tuple(found)


def permuted(x: Any, edge_index: Any) -> Any:
    """The corruption of PyG's example."""
    permutation = torch.randperm(x.size(0))
    permutations.append(permutation)
    return x[permutation], edge_index


permutations: list[torch.Tensor] = []


def make(kind: str) -> Any:
    from torch_geometric import nn as pyg

    torch.manual_seed(3)
    if kind == "DeepGraphInfomax":
        model: Any = pyg.DeepGraphInfomax(OUT, Encoder(1), lambda z, *args: z.mean(dim=0).sigmoid(), permuted)
    else:
        rest = (nn.Linear(OUT, 1),) if kind.startswith("ARG") else ()
        model = getattr(pyg, kind)(Encoder(2 if "V" in kind else 1), *rest)
    return model.double()


def loss_of(kind: str, model: Any, z: Any, edge_index: Any, negative: Any) -> Any:
    if kind == "DeepGraphInfomax":
        return model.loss(*z)
    loss = model.recon_loss(z, edge_index, negative)
    if "V" in kind:
        loss = loss + model.kl_loss() / 7
    return loss + model.reg_loss(z) if kind.startswith("ARG") else loss


def trained(part: dict[str, Any], ids: np.ndarray, everyone: np.ndarray, kind: str, x: np.ndarray) -> dict[str, Any]:
    """Losses of this worker, and what was drawn: pairs, or what permutations give own nodes, by original ids."""
    index = sar.pyg.edge_index(built(part, ids))
    model = sar.prepare(make(kind), index)
    sar.sync_params(model)
    own, drawn, losses = torch.from_numpy(x), [], []
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    torch.manual_seed(7)
    permutations.clear()
    for epoch in range(EPOCHS):
        z = _encoded(kind, model, own, index)
        if kind == "DeepGraphInfomax":
            drawn.append(everyone[permutations[-1].numpy()])
            negative = None
        else:
            negative = sar.negative_sampling(index)
            drawn.append(original_pairs(negative, ids, everyone))
        if epoch == 0 and kind == "GAE":  # the loss draws the pairs that the same generator gave
            torch.manual_seed(7)
            negative = None
        loss = loss_of(kind, model, z, index, negative)
        optimizer.zero_grad()
        loss.backward()
        sar.gather_grads(model)
        optimizer.step()
        losses.append(float(loss.detach()))
    tested = None if kind == "DeepGraphInfomax" else model.test(z, index, negative)
    return {"losses": losses, "drawn": drawn, "test": tested, "said": str(sar.describe(model))}


def _encoded(kind: str, model: Any, x: Any, edge_index: Any) -> Any:
    if kind == "DeepGraphInfomax":
        return model(x, edge_index)
    if "V" in kind:
        model.reparametrize = getattr(model, "VGAE", model).reparametrize = lambda mu, logstd: mu + logstd.exp() / 3
    return model.encode(x, edge_index)


def alone(kind: str, x: np.ndarray, edges: np.ndarray, drawn: list[np.ndarray]) -> tuple[list[float], Any]:
    """The same with PyG alone: losses, and scores of edges and of the last pairs."""
    model, own, index = make(kind), torch.from_numpy(x), torch.from_numpy(edges)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses: list[float] = []
    for one in drawn:
        chosen = torch.from_numpy(one)
        if kind == "DeepGraphInfomax":
            model.corruption = lambda x, edge_index, chosen=chosen: (x[chosen], edge_index)
        z = _encoded(kind, model, own, index)
        loss = loss_of(kind, model, z, index, chosen)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    if kind == "DeepGraphInfomax":
        return losses, None
    return losses, [numpy(model.decoder(z, pairs, sigmoid=True)) for pairs in (index, chosen)]


def taken_back(part: dict[str, Any], ids: np.ndarray) -> list[Any]:
    """What is left of a prepared model after restore, in a copy, and in a pickle; and the discriminator's loss."""
    index = sar.pyg.edge_index(built(part, ids))
    model = make("ARGVA")
    before = {name: set(vars(module)) for name, module in model.named_modules()}
    sar.prepare(model, index)
    again, read = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    prepared = [isinstance(vars(m).get("recon_loss"), type(vars(model)["recon_loss"])) for m in (model, again)]
    z = torch.ones(len(ids), OUT, dtype=torch.float64)
    with torch.no_grad():
        shares = float(model.discriminator_loss(z).isfinite())
    own = vars(again)["recon_loss"].module is again
    plain = vars(read)["recon_loss"].__func__ is type(read).recon_loss
    sar.restore(model)
    return [prepared, own, plain, shares, before == {name: set(vars(module)) for name, module in model.named_modules()}]


def regressed(part: dict[str, Any], ids: np.ndarray) -> list[Any]:
    """What DeepGraphInfomax's test gives to its regression: original ids and numbers of own rows in training and test,
    whichever worker owns them."""
    import sys
    import types

    class Regression:
        def __init__(self, **named: Any) -> None:
            self.named = named

        def fit(self, z: Any, y: Any) -> Any:
            self.seen = [z[:, 0].tolist(), y.tolist()]
            return self

        def score(self, z: Any, y: Any) -> Any:
            return [self.named, *self.seen, z[:, 0].tolist(), y.tolist()]

    index = sar.pyg.edge_index(built(part, ids))
    model = sar.prepare(make("DeepGraphInfomax"), index)
    before = {name: sys.modules.get(name) for name in ("sklearn", "sklearn.linear_model")}
    module: Any = types.ModuleType("sklearn.linear_model")
    module.LogisticRegression = Regression
    sys.modules.update({"sklearn": types.ModuleType("sklearn"), "sklearn.linear_model": module})
    own = torch.from_numpy(ids)
    chosen, z = own % 3 == 0, torch.stack([own.double(), own.double()], 1).requires_grad_()
    try:
        found = model.test(z[chosen], own[chosen] + 1, z[~chosen], own[~chosen] + 1, max_iter=150)
    finally:
        for name, value in before.items():
            sys.modules.pop(name)
            if value is not None:
                sys.modules[name] = value
    return list(found)
