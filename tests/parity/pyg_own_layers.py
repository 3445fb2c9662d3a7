"""Layers as users write them, each for something that the rewriting of messages has to get right."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import nn

import sar
from tests.parity.pyg_specs import EF, IN, OUT, E, Spec, W, X, conv, pyg_nn


def _layer(message: Callable[..., torch.Tensor], aggr: str = "sum") -> Callable[[], nn.Module]:
    """A layer that gives ``message`` its rows at both ends, and columns of edges."""

    def make() -> nn.Module:
        class Own(pyg_nn().MessagePassing):  # type: ignore[name-defined, misc]
            def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
                return self.propagate(edge_index, x=x, edge_attr=edge_attr)

            def message(self, x_i: Any, x_j: Any, edge_attr: Any) -> Any:
                return message(x_i, x_j, edge_attr)

        return Own(aggr=aggr)

    return make


def _one_value_in_two_shapes(x_i: Any, x_j: Any, edge_attr: Any) -> torch.Tensor:
    score = x_j.tanh()
    heads = score.view(-1, 2, IN // 2)
    return ((heads * x_i.view(-1, 2, IN // 2)).sum(-1, keepdim=True) * heads).view(-1, IN) + score


def _product_of_both_ends(x_i: Any, x_j: Any, edge_attr: Any) -> torch.Tensor:
    return x_i * x_j


def _without_gradients(x_i: Any, x_j: Any, edge_attr: Any) -> torch.Tensor:
    sums = x_j.cumsum(-1)
    with torch.no_grad():
        scale = sums.flip(-1)
    return sums * scale


def _in_place(x_i: Any, x_j: Any, edge_attr: Any) -> torch.Tensor:
    sums = x_j.detach().cumsum(-1)
    before = sums.sin()
    sums.mul_(2)
    return x_i * (before + sums)  # the sums are computed first


def _several_results(x_i: Any, x_j: Any, edge_attr: Any) -> torch.Tensor:
    first, second = x_j.cumsum(-1).chunk(2, dim=-1)
    largest, place = edge_attr.max(dim=-1, keepdim=True)
    return first * second.sin() * largest * (place + 1)


def _sizes_and_masks(x_i: Any, x_j: Any, edge_attr: Any) -> torch.Tensor:
    heads = x_j.view(x_j.size(0), 2, IN // 2).sin()
    made = x_j.new_zeros(x_j.shape[0], IN)
    made[:, 1] = heads[:, 0, 0]
    made[..., 2:4] = edge_attr[:, :2]
    made[made < 0.1] = 0.5
    low = nn.functional.leaky_relu(x_i.cos(), 0.1, True)
    return made * heads.flatten(1) + nn.functional.dropout(low, 0.5, False, True).clamp(-0.4)


def _declared() -> nn.Module:
    class Declared(pyg_nn().MessagePassing):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__(aggr="mean")
            self.rows, self.mixed = nn.GRU(IN // 2, 3, batch_first=True), nn.Parameter(torch.ones(2, 6))
            self.gate = sar.rowwise(nn.Sequential(nn.Linear(IN, 6), nn.LayerNorm(6)))

        def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
            self.scale = self.mixed.cumsum(0)[1]
            return self.propagate(edge_index, x=x, edge_attr=edge_attr)

        def message(self, x_i: Any, x_j: Any, edge_attr: Any) -> Any:
            made, late = sar.rowwise(self.read)(x_j.view(-1, 2, IN // 2), scale=edge_attr)
            return made * self.gate(x_i) + late

        def read(self, steps: torch.Tensor, scale: torch.Tensor) -> Any:
            found = self.rows(steps)[0]
            return found.flatten(1) * self.scale, (found[:, 1] * scale).sum(-1, keepdim=True)

    return Declared()


def _wide_at_destinations() -> nn.Module:
    class Wide(pyg_nn().MessagePassing):  # type: ignore[name-defined, misc]
        def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
            return self.propagate(edge_index, x=x, first=x[:, :1], edge_attr=edge_attr[:, :1])

        def message(self, x_i: Any, first_j: Any, edge_attr: Any) -> Any:
            return first_j * edge_attr * x_i

    return Wide(aggr="sum")


OWN: dict[str, Spec] = {
    "one_value_in_two_shapes": Spec(_layer(_one_value_in_two_shapes), (X, E, EF)),
    "wide_at_destinations": Spec(_wide_at_destinations, (X, E, EF)),
    "largest_product": Spec(_layer(_product_of_both_ends, "max"), (X, E, EF)),
    "without_gradients": Spec(_layer(_without_gradients), (X, E, EF), how="blocks"),
    "in_place": Spec(_layer(_in_place), (X, E, EF), how="blocks"),
    "sizes_and_masks": Spec(_layer(_sizes_and_masks), (X, E, EF), how="blocks"),
    "declared": Spec(_declared, (X, E, EF), how="blocks"),
    "several_results": Spec(_layer(_several_results), (X, E, EF), how="blocks"),
    "gcn_against_edges": Spec(conv("GCNConv", IN, OUT, flow="target_to_source"), (X, E), how="values"),
    "gcn_against_weights": Spec(conv("GCNConv", IN, OUT, flow="target_to_source"), (X, E, W), how="values"),
}
"""Layers that docs/layers-pyg.md does not name."""
