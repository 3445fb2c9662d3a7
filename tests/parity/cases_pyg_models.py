"""Runs layers that were drawn at random (:mod:`tests.parity.pyg_models`): the same code for PyG and for the workers."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import numpy as np
import torch

import sar
from tests.support.worker import data_of, default_dtype, numpy


def load(path: str) -> Any:
    """The module of a file. PyG parses the whole of it for each class that it has: one layer, so it has one."""
    name = "drawn_" + path.rpartition("/")[2].removesuffix(".py")
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


def step(
    path: str,
    name: str,
    edge_index: Any,
    nodes: int,
    inputs: dict[str, np.ndarray],
    grad: np.ndarray | None,
    dtype: str,
) -> dict[str, Any]:
    """The result of a layer, all gradients, buffers and counters.

    :param edge_index: on workers, which are several, batch norm is converted
    :param inputs: by argument
    :param grad: of the result; drawn where there is none
    """
    module = load(path)
    with default_dtype(getattr(torch, dtype)):
        torch.manual_seed(7)
        model = getattr(module, name)()
        if type(edge_index) is not torch.Tensor and sar.world_size() > 1:
            model = sar.convert_batchnorm(model)
        for key, parameter in model.named_parameters():
            with torch.no_grad():  # drawn in one precision, so that both are the same model
                torch.manual_seed(sum(map(ord, key)))
                size = 0.5 if parameter.dim() > 1 else 0.3
                parameter.copy_(torch.randn(parameter.shape, dtype=torch.float32) * size + (parameter.numel() == 1))
        getattr(module, f"hooks_{name}")(model)
        given = {key: torch.from_numpy(x.astype(dtype)).requires_grad_() for key, x in inputs.items()}
        out = model(edge_index, nodes, **given)
        found = out.detach().numpy().copy()
        if grad is None:
            grad = np.random.default_rng(5).standard_normal(found.shape).astype("float32")
        if out.requires_grad:
            out.backward(torch.from_numpy(grad.astype(dtype)))
    tensors = {
        **{f"input {k}": t for k, t in given.items()},
        **{f"parameter {k}": p for k, p in model.named_parameters()},
    }
    grads = {k: torch.zeros_like(t) if t.grad is None else t.grad for k, t in tensors.items()}
    buffers = {**dict(model.named_buffers()), "calls": torch.tensor(getattr(model, "calls", 0))}
    return {"out": found, "grad": grad, "grads": numpy(grads), "buffers": numpy(buffers)}


def layers(batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Layers on a worker, each on a graph of its own; of parameters it has a part of the gradient."""
    found = []
    for one in batch:
        edge_index = sar.pyg.edge_index(sar.construct_full_graph(data_of(one.pop("part"))))
        try:
            found.append(step(edge_index=edge_index, nodes=edge_index.edges.rows("v"), **one))
        except Exception as error:
            raise RuntimeError(f"{one['name']}: {type(error).__name__}: {error}") from error
    return found
