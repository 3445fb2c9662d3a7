"""Tensors of nodes and edges of any rank: checks, and DGL's broadcasting of weights."""

from __future__ import annotations

from math import prod
from typing import Tuple

import torch
from torch import Tensor

from .dtypes import FLOATS, refusal
from .types import check_count


def check_dense(tensor: Tensor, name: str) -> None:
    """:raises TypeError: a sparse tensor"""
    if tensor.layout != torch.strided:
        raise TypeError(
            f"{name} is sparse ({tensor.layout}): rows of nodes and edges are dense on a split graph; use "
            f"{name}.to_dense(), or multiply it by the weight of a linear map first"
        )


def check(tensor: Tensor, rows: int, what: str, name: str) -> None:
    """Refuses what the engine cannot read, by the tensor's own name."""
    check_dense(tensor, name)
    if tensor.device.type != "cpu":
        raise TypeError(f"{name} is on {tensor.device}: aggregation runs on CPU tensors for now; use {name}.cpu()")
    if tensor.dtype not in FLOATS:
        raise TypeError(refusal(name, tensor.dtype))
    check_count(tensor, rows, what, name)


def per_head(e: Tensor, shape: Tuple[int, ...]) -> Tuple[int, Tensor]:
    """Weights as the engine takes them: ``heads`` numbers per edge, each for a run of equally many columns."""
    own = (1,) * (len(shape) - e.dim() + 1) + tuple(e.shape[1:])
    cut = len(own)
    while cut > 0 and own[cut - 1] == 1:
        cut -= 1
    if own[:cut] == shape[:cut]:
        return prod(own), e
    return prod(shape), e.reshape(e.shape[0], *own).expand(e.shape[0], *shape)
