"""What runs on the workers to test that what one rank does for itself changes nobody's numbers."""

from __future__ import annotations

import contextlib
import traceback
from typing import Any

import dgl
import numpy as np
import torch

import sar
import sar.nn
from sar._engine import abi, session as _session
from tests.parity.observed_models import Observed, auxiliary, make_spec, observed
from tests.support.worker import build, numpy


def step(
    seed: int, observer: str, looks: bool, part: dict[str, Any], x: np.ndarray, grad: np.ndarray, state: Any
) -> dict[str, Any]:
    """Result and all gradients of one model. ``looks``: whether this rank is the one that observes."""
    model = Observed(make_spec(seed, observer), {"dgl": dgl.nn, "sar": sar.nn}, sar.DistributedBN1D).double()
    model.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
    sar.sync_params(model)  # from then on operations name their layers
    graph, terms = build(part), []
    rows = torch.from_numpy(x.copy()).requires_grad_()
    if looks and observer == "auxiliary loss":
        auxiliary(model, terms, slice(None))
    parameters = dict(model.named_parameters())  # an observer may give modules other names
    with observed(model, observer if looks else "nothing", seed):
        out = model(graph, rows)
        loss = (out * torch.from_numpy(grad)).sum()
        for term in terms:
            loss = loss + term
        loss.backward()
    found = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in parameters.items()}
    return numpy({"out": out, "x": rows.grad, "parameters": found})


def steps(cases: list[dict[str, Any]]) -> list[Any]:
    """Some of them. What the first one that fails says is the last."""
    found: list[Any] = []
    for case in cases:
        try:
            found.append(step(**case))
        except Exception as error:
            found.append(traceback.format_exc())
            with contextlib.suppress(Exception):
                abi.session_abort(_session.current().handle, f"{type(error).__name__}: {error}")  # or the others wait
            break
    return found
