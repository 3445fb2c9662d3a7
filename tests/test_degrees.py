"""Degrees as scripts hold them: a 0 counts as 1 where one divides, and copies are degrees too."""

from __future__ import annotations

import copy
from typing import Any, Callable

import pytest
import torch
from torch import nn

from sar.core.degrees import tagged


def degrees() -> torch.Tensor:
    return tagged(torch.tensor([0, 1, 4]), False)


SHAPES: dict[str, Callable[[Any], Any]] = {
    "unsqueeze": lambda d: d.unsqueeze(-1),
    "expand": lambda d: d.view(-1, 1).expand(3, 2),
    "expand_as": lambda d: d.view(-1, 1).expand_as(torch.ones(3, 2)),
    "broadcast_to": lambda d: torch.broadcast_to(d, (2, 3)),
    "repeat": lambda d: d.view(-1, 1).repeat(1, 2),
    "squeeze": lambda d: d.view(-1, 1).squeeze(1),
    "flatten": lambda d: d.view(-1, 1).flatten(),
    "t": lambda d: d.view(-1, 1).t(),
    "transpose": lambda d: d.view(-1, 1).transpose(0, 1),
    "permute": lambda d: d.view(-1, 1).permute(1, 0),
    "view_as": lambda d: d.view_as(torch.ones(3)),
    "float": lambda d: d.float(),
    "some": lambda d: d[:2],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_division_after_a_change_of_shape(shape: str) -> None:
    shaped = SHAPES[shape](degrees())
    true = SHAPES[shape](torch.tensor([0, 1, 4]))
    plain = torch.where(true == 0, 1, true)
    assert torch.equal(shaped.as_subclass(torch.Tensor), true)
    for found, expected in (
        (torch.ones(shaped.shape) / shaped, 1 / plain),
        (1 / shaped.float(), 1 / plain.float()),
        (shaped.float().pow(-0.5), plain.float().pow(-0.5)),
        (torch.rsqrt(shaped.float()), torch.rsqrt(plain.float())),
    ):
        assert torch.equal(found, expected) and torch.isfinite(found).all()


def test_copies() -> None:
    """Of degrees alone, of what holds them, and of the question whether there is a 0."""

    class Holds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("d", degrees())
            self.again, self.zero = self.d, self.d == 0

    held = Holds()
    other = copy.deepcopy(held)
    assert other.d is other.again and other.d.data_ptr() != held.d.data_ptr()
    assert torch.equal(other.zero, torch.tensor([True, False, False]))
    for copied in (copy.deepcopy(degrees()), other.d):
        assert torch.equal(torch.ones(3) / copied, torch.tensor([1.0, 1.0, 0.25]))
        assert not (copied == 0).any()
