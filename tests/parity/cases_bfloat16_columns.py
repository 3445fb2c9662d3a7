"""What runs on the workers to test batch norm and dropout of rows in bfloat16."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import numpy as np
import torch
from torch import nn

import sar
from sar.nn import BatchNormAct
from tests.parity.cases_bfloat16 import HALF, told
from tests.support.worker import build


def module(activation: str, share: float, width: int, graph: Any) -> Any:
    """BatchNormAct, or ReLU and dropout as modules of their own behind batch norm; both prepared."""
    if activation == "modules":
        made: Any = nn.Sequential(nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(share))
    elif activation == "dropout":
        made = nn.Sequential(nn.Dropout(share))
    else:
        made = BatchNormAct(width, activation, share)
    for p in made.parameters():
        nn.init.uniform_(p, 0.5, 1.5, generator=torch.Generator().manual_seed(1))
    return sar.prepare(made, graph)


def forms(part: Dict[str, Any], x: np.ndarray, grad: np.ndarray, forms: List[Tuple[str, float]]) -> List[Any]:
    """For each form the result, the gradient of the rows and those of the parameters."""
    graph, found = build(part), []
    for activation, share in forms:
        torch.manual_seed(3)
        rows = torch.from_numpy(x).to(HALF).requires_grad_()
        model = module(activation, share, x.shape[1], graph)
        out = model(rows) * 1
        out.backward(torch.from_numpy(grad).to(HALF))
        sar.gather_grads(model)
        found.append({"out": told(out), "x": told(rows.grad), "params": [told(p.grad) for p in model.parameters()]})
    return found
