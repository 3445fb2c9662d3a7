"""Models of PyG that are trained alone and on the workers: the same code for both."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import torch
from torch import nn

import sar
from tests.parity.cases_pyg import graph_index
from tests.parity.cases_training import fit
from tests.parity.pyg_specs import pyg_nn
from tests.support.worker import default_dtype

MODELS: dict[str, Callable[[int, int], nn.Module]] = {
    "gcn": lambda features, classes: pyg_nn().GCN(features, 16, 2, classes),
    "sage": lambda features, classes: pyg_nn().GraphSAGE(features, 32, 3, classes, norm="batch_norm"),
}


def losses(
    edge_index: Any,
    x: np.ndarray,
    y: np.ndarray,
    masks: np.ndarray,
    model: str,
    classes: int,
    n_train: int,
    epochs: int,
    alone: bool,
) -> list[float]:
    """Of every epoch, over all workers, in the precision of ``x``."""
    features = torch.from_numpy(x)
    with default_dtype(features.dtype):
        torch.manual_seed(0)
        net = MODELS[model](x.shape[1], classes)
        if not alone:
            net = sar.convert_batchnorm(net)
            sar.sync_params(net)
        rows = torch.from_numpy(masks[0])
        return fit(net, lambda: net(features, edge_index), torch.from_numpy(y), rows, n_train, epochs, alone=alone)


def train(part: dict[str, Any], **given: Any) -> list[float]:
    """The losses of a worker."""
    return losses(graph_index(part), **given, alone=False)
