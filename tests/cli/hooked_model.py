"""A model with a function of its own that calls it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.cli.models_to_infer import FEATURES


def build() -> nn.Module:
    return nn.Linear(FEATURES + 1, 2)


def predict(model: nn.Module, graph: Any, features: dict[str, Tensor]) -> Tensor:
    degrees = graph.in_degrees().float()[:, None]
    return model(torch.cat([features["_N/features"], degrees], 1))
