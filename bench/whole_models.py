"""Models of PyG that are benchmarked as they are: graph transformers, and deep ones.

``sgformer`` and ``polynormer`` of 64 columns, ``performer`` of 2 layers. ``gcnii4`` and ``gcnii64`` have so many layers
of 64 columns, ``deeper4`` and ``deeper28`` so many ``DeepGCNLayer`` around GENConv, ``rev4`` and ``rev28`` so many
``GroupAddRev`` of 2 groups. With ``_again`` behind it layers are computed again in backward: see :func:`again`.
"""

from __future__ import annotations

import torch
import torch_geometric.nn as pyg
from torch import nn

import sar

WIDTH = 64
TRANSFORMERS = ("sgformer", "polynormer", "performer")
DEEP = {"gcnii": (4, 64), "deeper": (4, 28), "rev": (4, 28)}
WHOLE = (*TRANSFORMERS, *(f"{name}{n}{end}" for name, counts in DEEP.items() for n in counts for end in ("", "_again")))


class Whole(nn.Module):
    """A model that takes all edges itself."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, convolve, h):
        return convolve(self.model, h)

    def drop(self, share: float) -> None:
        if share:
            raise SystemExit("these models are measured without dropout")


class OfOneGraph(nn.Module):
    """A graph transformer of one graph."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x, edges):
        return self.model(x, edges, torch.zeros(len(x), dtype=torch.int64))


class Gps(nn.Module):
    """GPSConv between linear maps."""

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__()
        layers = [pyg.GPSConv(WIDTH, pyg.SAGEConv(WIDTH, WIDTH), 4, attn_type="performer") for _ in range(2)]
        self.first, self.layers = nn.Linear(n_features, WIDTH), nn.ModuleList(layers)
        self.last = nn.Linear(WIDTH, n_classes)

    def forward(self, x, edges, batch):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x, edges, batch)
        return self.last(x)


class Initial(nn.Module):
    """A layer of GCNII: it is given what the first linear map gave, too."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.conv = pyg.GCN2Conv(WIDTH, 0.1, 0.5, number)

    def forward(self, x, first, edges):
        return self.conv(x, first, edges).relu()


class Residual(nn.Module):
    """A layer of DeeperGCN."""

    def __init__(self) -> None:
        super().__init__()
        conv = pyg.GENConv(WIDTH, WIDTH, norm="layer", num_layers=2)
        self.layer = pyg.DeepGCNLayer(conv, nn.LayerNorm(WIDTH), nn.ReLU())

    def forward(self, x, first, edges):
        return self.layer(x, edges)


class Half(nn.Module):
    """A layer of a group of a reversible one."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.conv = nn.LayerNorm(WIDTH // 2), pyg.SAGEConv(WIDTH // 2, WIDTH // 2)

    def forward(self, x, edges):
        return self.conv(self.norm(x).relu(), edges)


class Reversible(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = pyg.GroupAddRev(Half(), num_groups=2)

    def forward(self, x, first, edges):
        return self.layer(x, edges)


class Run(nn.Module):
    """Layers one after the other."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x, first, edges):
        for layer in self.layers:
            x = layer(x, first, edges)
        return x


def again(layers: list[nn.Module]) -> nn.Module:
    """Layers that keep little for backward: two halves, which keep their inputs alone; so do halves of these, down to
    single layers."""
    if len(layers) == 1:
        return layers[0]
    half = len(layers) // 2
    return Run([sar.remat(again(layers[:half])), sar.remat(again(layers[half:]))])


class Deep(nn.Module):
    def __init__(self, layers: nn.Module, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.first, self.layers, self.last = nn.Linear(n_features, WIDTH), layers, nn.Linear(WIDTH, n_classes)

    def forward(self, x, edges):
        first = self.first(x).relu()
        return self.last(self.layers(1 * first, first, edges))  # GroupAddRev lets go of what it is given


def make(name: str, n_features: int, n_classes: int) -> nn.Module:
    """A model of :data:`WHOLE`."""
    off = {"in_dropout": 0.0, "dropout": 0.0, "global_dropout": 0.0}
    if name == "sgformer":
        return Whole(OfOneGraph(pyg.SGFormer(n_features, WIDTH, n_classes, trans_dropout=0.0, gnn_dropout=0.0)))
    if name == "polynormer":
        model = pyg.Polynormer(n_features, WIDTH, n_classes, local_layers=3, **off)
        model._global = True
        return Whole(OfOneGraph(model))
    if name == "performer":
        return Whole(OfOneGraph(Gps(n_features, n_classes)))
    kind, _, way = name.partition("_")
    family = next(family for family in DEEP if kind.startswith(family))
    made = {"gcnii": Initial, "deeper": lambda n: Residual(), "rev": lambda n: Reversible()}[family]
    layers = [made(n + 1) for n in range(int(kind[len(family) :]))]
    return Whole(Deep(again(layers) if way else Run(layers), n_features, n_classes))
