"""Deep models of PyG: GCNII of 64 layers, DeeperGCN of 28, and 28 reversible layers; GCNII of 16 and DeeperGCN of 7
that are computed again, where a layer runs once more for each level of halves."""

from __future__ import annotations

from typing import Any, Callable

from torch import Tensor, nn

import sar
from tests.parity.pyg_specs import IN, OUT, pyg_nn

WIDTH = 8


class Initial(nn.Module):
    """A layer of GCNII, which is given what the first linear map gave, too."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.conv = pyg_nn().GCN2Conv(WIDTH, 0.1, 0.5, number)

    def forward(self, x: Tensor, first: Tensor, edge_index: Any) -> Tensor:
        out: Tensor = self.conv(x, first, edge_index).relu()
        return out


class Half(nn.Module):
    """What a reversible layer adds to half of the columns."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.conv = nn.LayerNorm(WIDTH // 2), pyg_nn().SAGEConv(WIDTH // 2, WIDTH // 2)

    def forward(self, x: Tensor, edge_index: Any) -> Tensor:
        out: Tensor = self.conv(self.norm(x).relu(), edge_index)
        return out


class Plain(nn.Module):
    """A layer that reads rows and edges alone."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, first: Tensor, edge_index: Any) -> Tensor:
        out: Tensor = self.layer(x, edge_index)
        return out


class Run(nn.Module):
    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, first: Tensor, edge_index: Any) -> Tensor:
        for layer in self.layers:
            x = layer(x, first, edge_index)
        return x


def again(layers: list[nn.Module]) -> nn.Module:
    """Two halves, which keep their inputs alone; so do halves of these, down to single layers."""
    if len(layers) == 1:
        return layers[0]
    half = len(layers) // 2
    return Run([sar.remat(again(layers[:half])), sar.remat(again(layers[half:]))])


class Deep(nn.Module):
    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.first, self.layers, self.last = nn.Linear(IN, WIDTH), layers, nn.Linear(WIDTH, OUT)

    def forward(self, x: Tensor, edge_index: Any, batch: Any) -> Tensor:
        first = self.first(x)
        out: Tensor = self.last(self.layers(1 * first, first, edge_index))  # GroupAddRev lets go of what it is given
        return out


def _deeper() -> nn.Module:
    home = pyg_nn()
    conv = home.GENConv(WIDTH, WIDTH, norm="batch", num_layers=1)
    return Plain(home.DeepGCNLayer(conv, nn.LayerNorm(WIDTH), nn.ReLU()))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "gcnii": lambda: Deep(Run([Initial(n + 1) for n in range(64)])),
    "gcnii_again": lambda: Deep(again([Initial(n + 1) for n in range(16)])),
    "deeper": lambda: Deep(Run([_deeper() for _ in range(28)])),
    "deeper_again": lambda: Deep(again([_deeper() for _ in range(7)])),
    "reversible": lambda: Deep(Run([Plain(pyg_nn().GroupAddRev(Half(), num_groups=2)) for _ in range(28)])),
}
