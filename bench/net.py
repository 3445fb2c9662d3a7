"""What the benchmarks' models of DGL's and of PyG's layers have in common: their sizes, and what follows a layer."""

from __future__ import annotations

import torch.nn.functional as F
from torch import nn

HIDDEN = 256
HEADS = 4
WIDTHS = {"gat": 32, "gat128": 128}


class Block(nn.Module):
    """A convolution, and what follows it."""

    def __init__(self, layer: nn.Module, norm: nn.Module | None = None, activation=None) -> None:
        super().__init__()
        self.layer, self.norm, self.activation = layer, norm, activation

    def forward(self, convolve, h):
        h = convolve(self.layer, h)
        if h.dim() == 3:  # heads: side by side in the hidden layers, averaged in the last
            h = h.mean(1) if self.activation is None else h.flatten(1)
        if self.norm is not None:
            h = self.norm(h)
        return h if self.activation is None else self.activation(h)


def hidden(layer: nn.Module, norm: nn.Module) -> Block:
    """A hidden block: with ReLU after ``norm``, unless that is a ``sar.nn.BatchNormAct`` and has it."""
    return Block(layer, norm, None if hasattr(norm, "activation") else F.relu)


class Net(nn.Module):
    """Blocks one after the other, with dropout between them."""

    def __init__(self, blocks: list[Block]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.dropout = 0.0

    def drop(self, share: float) -> None:
        """Drops that share of elements after every block but the last: in norms that do so themselves, else here."""
        norms = [block.norm for block in self.blocks if hasattr(block.norm, "dropout")]
        for norm in norms:
            norm.dropout = share
        self.dropout = 0.0 if norms else share

    def forward(self, convolve, h):
        *hidden, last = self.blocks
        for block in hidden:
            h = F.dropout(block(convolve, h), self.dropout, self.training)
        return last(convolve, h)
