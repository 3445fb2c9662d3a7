"""Runs a ported script, on workers and alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import sar
from tests.examples import ported
from tests.support.worker import default_dtype


def scripts(library: str) -> Any:
    """The module of a library's scripts."""
    if library == "pyg":
        from tests.examples import ported_pyg as found
    else:
        from tests.examples import ported_dgl as found
    return found


def _run(library: str, name: str, data: Any, drawn: list[np.ndarray] | None) -> ported.Found:
    run = ported.Run(data, drawn)
    torch.manual_seed(5)
    losses, scores = scripts(library).SCRIPTS[name](run)
    return ported.Found(losses, scores, run.drawn, run.ids().numpy())


def on_worker(library: str, name: str, folder: str) -> ported.Found:
    kind = "links" if name in scripts(library).LINKS else "cora"
    with default_dtype(torch.float64):
        return _run(library, name, sar.load(f"{folder}/{kind}", pyg=library == "pyg"), None)


def alone(library: str, name: str, drawn: list[np.ndarray]) -> ported.Found:
    data = ported.cora()
    data = ported.links(data) if name in scripts(library).LINKS else data
    with default_dtype(torch.float64):
        return _run(library, name, data if library == "pyg" else ported.of_dgl(data), drawn)
