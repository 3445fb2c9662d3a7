"""Functions of torch that the engine computes edge by edge, at bounds, kinks, NaN and infinities: the value and the
gradient of the installed torch."""

from __future__ import annotations

import math
from typing import Any, Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import sar
from sar.autograd.expression import BINARY, UNARY, load
from sar.distributed import network
from sar.graph.edge_tensor.tensor import EdgeTensor
from tests.support.graphs import make
from tests.support.worker import build

EDGES = 400
POINTS = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e30, -1e30, 1e-30]
POINTS += [sign * x for x in (0.5, 1.0, 1.5, 2.0, 3.0, 6.0, 20.0, 100.0, 800.0) for sign in (1, -1)]
POINTS += [p + d for p in (-3.0, -1.0, 0.0, 1.0, 3.0, 6.0, 20.0) for d in (1e-3, -1e-3)]

FUNCTIONS: dict[str, Callable[[Any], Tensor]] = {
    "neg": lambda x: -x,
    "relu": F.relu,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "leaky_relu falling": lambda x: F.leaky_relu(x, -0.5),
    "leaky_relu flat": lambda x: F.leaky_relu(x, 0.0),
    "elu": F.elu,
    "elu 0.3": lambda x: F.elu(x, 0.3),
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "tanh": torch.tanh,
    "softplus": F.softplus,
    "abs": torch.abs,
    "reciprocal": torch.reciprocal,
    "square": torch.square,
    "shift": lambda x: x + 1.5,
    "less": lambda x: x - 1.5,
    "scale": lambda x: x * 0.0,
    "rsub": lambda x: 1.5 - x,
    "over": lambda x: x / 3,
    "under": lambda x: 3 / x,
    "clamp min": lambda x: x.clamp(min=0),
    "clamp max": lambda x: x.clamp(max=1),
    "clamp": lambda x: torch.clamp(x, -1, 1),
    "clamp to a point": lambda x: x.clamp(1, 1),
    "clamp crossed": lambda x: x.clamp(1, -1),
    "clip": lambda x: x.clip(0, 6),
    **{f"pow {p}": lambda x, p=p: x**p for p in (0, 1, 2, 3, -1, 0.5, 1.5, -0.5)},
    # what has no operation of its own
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "celu": F.celu,
    "selu": F.selu,
    "softplus with a threshold": lambda x: F.softplus(x, 2.0, 3.0),
    "maximum": lambda x: torch.maximum(x, torch.ones_like(x[:1])),
    "minimum": lambda x: torch.minimum(x, torch.ones_like(x[:1])),
    "threshold": lambda x: F.threshold(x, 1.0, 2.0),
    "softsign": F.softsign,
    "gelu": F.gelu,
}


@pytest.fixture(scope="module")
def relation() -> Iterator[Any]:
    sar.initialize_comms(0, 1, "127.0.0.1", "sar", master_port_number=network.free_port())
    yield build(make("random", 1).part(0))._relations[0]
    sar.comm.shutdown()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_in_torch(relation: Any, name: str, dtype: torch.dtype) -> None:
    """In rows of as many numbers as the points are, and in rows of one."""
    function, points = FUNCTIONS[name], torch.tensor(POINTS, dtype=dtype)
    for rows in (points.expand(EDGES, -1), points.repeat(EDGES)[:EDGES].view(-1, 1)):
        found = []
        for lazy in (True, False):
            x = rows.clone().requires_grad_()
            out = function(EdgeTensor(relation, load("e", x)) if lazy else x)
            if isinstance(out, EdgeTensor):
                out = out.materialize()
            (grad,) = torch.autograd.grad(out, x, torch.full_like(out, 3.0))
            found.append((out.detach(), grad))
        for what, value, truth in zip(("value", "gradient"), *found):
            unit = 1e-5 if dtype == torch.float32 else 1e-12
            wrong = ~torch.isclose(value, truth, unit, unit, equal_nan=True)
            if wrong.any():
                row, column = wrong.nonzero()[0].tolist()
                at = rows[row, column].item()
                raise AssertionError(f"{what} at {at}: {value[row, column]}, and torch has {truth[row, column]}")


def test_all_operations_are_here() -> None:
    used = set()

    def note(expr: Any) -> None:
        used.add(expr.op)
        for arg in expr.args:
            note(arg)

    class Relation:
        """As much of one as functions ask for."""

        num_edges, handle = EDGES, 0

    for function in FUNCTIONS.values():
        out = function(EdgeTensor(Relation(), load("e", torch.ones(EDGES, 1))))  # type: ignore[arg-type]
        if isinstance(out, EdgeTensor):
            note(out.expr)
    used = {op.replace("_open", "") for op in used}  # clamp is open or closed, as torch's is
    assert used >= {op.replace("_open", "") for op in {*UNARY, *BINARY} - {"dot", "add", "sub"}}
