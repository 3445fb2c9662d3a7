"""Batch norm, activation and dropout in one module, which saves one tensor for backward."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from sar.autograd.fused.batch_norm import normalized
from sar.autograd.fused.recompute import ACTIVATIONS

from .batch_norm import DistributedBN1D, check_features


class BatchNormAct(DistributedBN1D):
    """``dropout(activation(batch_norm(x)))`` over the rows of all workers.

    Gives the same numbers as the three modules one after another, but saves only x for backward, while they save x, the
    normalized rows, the activated rows and the dropout mask. The rest is recomputed in backward, in blocks of rows; so
    are the rows that a fused layer reads next. Collective in forward and backward, as :class:`sar.DistributedBN1D` is,
    whose parameters it has.

    :param n_feats: features, f
    :param activation: ``"none"``, ``"relu"``, ``"leaky_relu"``, ``"elu"``, ``"gelu"``, ``"tanh"`` or ``"sigmoid"``
    :param dropout: share of elements set to 0 in training
    :param reuse_input: backward writes the gradient of x over x, which saves a tensor of its size. Only where nothing
        but this module reads x, as in ``norm(layer(graph, h))``; torch refuses a second backward
    :raises ValueError: another activation, or a share outside [0, 1]
    """

    def __init__(
        self,
        n_feats: int,
        activation: str = "relu",
        dropout: float = 0.0,
        *,
        reuse_input: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(n_feats, **options)
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation {activation!r} is unknown: give one of {', '.join(ACTIVATIONS)}")
        if not 0 <= dropout <= 1:
            raise ValueError(f"dropout={dropout}: give a share in [0, 1]")
        self.activation = activation
        self.dropout = dropout
        self.reuse_input = reuse_input

    def forward(self, inp: Tensor) -> Tensor:
        """``[n, f]`` of floating-point numbers to the same shape. Collective where distributed.

        :raises ValueError: another shape, or no worker has a row
        :raises TypeError: another dtype
        """
        if self.running_mean is not None and not self.training:
            function = ACTIVATIONS[self.activation]
            plain = super().forward(inp)
            return plain if function is None else function(plain)
        check_features(inp, self.n_feats)
        inp = inp.contiguous()
        norm = self._norm(inp)
        recipe = norm.recipe._replace(activation=self.activation)
        if self.training and self.dropout > 0 and recipe.draws is not None:
            recipe = recipe._replace(drop=recipe.draws.next(self.dropout))
        return normalized(inp, self.weight, self.bias, norm, recipe, self.reuse_input)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, activation={self.activation}, dropout={self.dropout}"
