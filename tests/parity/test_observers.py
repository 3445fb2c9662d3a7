"""What one rank does for itself changes nobody's numbers: random models, with a random observer on one random rank.

An observer looks without changing anything: hooks of every kind, log lines, profilers, modes, copies, a part that is
compiled. Values and all gradients are DGL's on the whole graph. ``SAR_OBSERVED_MODELS=10000`` runs so many, new ones
each time; without it some hundreds, the same ones each time.
"""

from __future__ import annotations

import os
import random
from typing import Any

import dgl
import numpy as np
import pytest
import torch

from tests.parity import cases_observers
from tests.parity.observed_models import OBSERVERS, Observed, auxiliary, make_spec
from tests.support.graphs import Graph, close, make
from tests.support.pool import Pool
from tests.support.sessions import Workers

MANY = int(os.environ.get("SAR_OBSERVED_MODELS", "0"))
FIRST = random.SystemRandom().randrange(1 << 40) if MANY else 0
COUNTS = [MANY] if MANY else [180, pytest.param(360, marks=pytest.mark.full)]
BATCH = 15
"""Models that go to the workers in one message."""
SESSIONS = [(2, "shm"), (3, "shm"), (2, "tcp")] + ([(4, "shm")] if MANY else [])


def ulp(values: np.ndarray, seed: int) -> np.ndarray:
    """The values with the last bit of each moved up or down."""
    up = np.random.default_rng(seed).choice([-1.0, 1.0], values.shape)
    return values + up * np.spacing(np.abs(values))


def whole(
    seed: int, observer: str, looks: int, graph: Graph, x: np.ndarray, grad: np.ndarray, moved: bool = False
) -> dict[str, Any]:
    """DGL on the whole graph: what the model began with, its result and all gradients.

    :param moved: the last bit of each parameter is another
    """
    spec = make_spec(seed, observer)
    torch.manual_seed(seed)
    norm = lambda width: torch.nn.BatchNorm1d(width, track_running_stats=False)  # noqa: E731
    model = Observed(spec, {"dgl": dgl.nn, "sar": dgl.nn}, norm).double()
    for p in model.parameters():  # biases begin at zero, which hides mistakes
        torch.nn.init.normal_(p)
        if moved:
            p.data.copy_(torch.from_numpy(ulp(p.detach().numpy(), p.numel())))
    terms: list[torch.Tensor] = []
    if observer == "auxiliary loss":
        auxiliary(model, terms, graph.rows(looks))
    rows = torch.from_numpy(x.copy()).requires_grad_()
    all_of_it = graph.of_dgl()
    out = model(all_of_it, rows)
    (sum(terms, (out * torch.from_numpy(grad)).sum())).backward()
    found = {"out": out.detach().numpy(), "x": rows.grad.numpy()}
    found["parameters"] = {name: p.grad.numpy() for name, p in model.named_parameters()}
    return {"state": {n: v.numpy() for n, v in model.state_dict().items()}, "found": found}


class Case:
    """A model, its observer, what DGL finds and what the workers are given."""

    def __init__(self, seed: int, world: int) -> None:
        rng = random.Random(seed)
        self.seed = seed
        self.observer, self.looks = rng.choice(OBSERVERS), rng.randrange(world)
        kind = rng.choice(["random", "random", "random", "hub", "no_edges_between"])
        self.graph = make(kind, world, seed=seed % 7)
        self.spec, numbers = make_spec(seed, self.observer), np.random.default_rng(seed)
        self.x = numbers.standard_normal((self.graph.num_nodes, self.spec["in"]))
        self.grad = numbers.standard_normal((self.graph.num_nodes, self.spec["out"]))
        found = whole(seed, self.observer, self.looks, self.graph, self.x, self.grad)
        self.expected, self.state = found["found"], found["state"]
        self.name = f"model {seed}: {self.spec}; {self.observer} on rank {self.looks} of {world}"

    def given(self, rank: int) -> dict[str, Any]:
        rows = self.graph.rows(rank)
        looks, part = rank == self.looks, self.graph.part(rank)
        arrays = {"part": part, "x": self.x[rows], "grad": self.grad[rows], "state": self.state}
        return {"seed": self.seed, "observer": self.observer, "looks": looks, **arrays}

    def rounded(self) -> dict[str, Any]:
        """What DGL finds where the last bit of each entry of x and of each parameter is another, and the edges come in
        another order. What differs is rounding error, such as all of the gradient of a bias in front of a batch norm.
        """
        graph = self.graph._replace(src=self.graph.src[::-1].copy(), dst=self.graph.dst[::-1].copy())
        x = ulp(self.x, self.seed)
        return whole(self.seed, self.observer, self.looks, graph, x, self.grad, moved=True)["found"]

    def compare(self, found: list[dict[str, Any]]) -> None:
        """Holds what the workers found against DGL, element by element."""
        pairs = []
        for name in ("out", "x"):
            for rank, one in enumerate(found):
                rows = self.graph.rows(rank)
                pairs.append((f"{name} of rank {rank}", one[name], lambda e, n=name, r=rows: e[n][r]))
        for name in self.expected["parameters"]:
            total = sum(one["parameters"][name] for one in found)
            pairs.append((f"gradient of {name}", total, lambda e, n=name: e["parameters"][n]))
        gradients = [self.expected["x"], *self.expected["parameters"].values()]
        # A gradient that is zero is a sum of such entries that cancel.
        cancelled = 1e-11 * max(float(np.abs(g).max(initial=0.0)) for g in gradients)
        rounded = None
        for name, value, pick in pairs:
            expected = pick(self.expected)
            try:
                close(value, expected, f"{self.name}: {name}", 1e3, floor=0.0 if name.startswith("out") else cancelled)
            except AssertionError:
                rounded = rounded or self.rounded()
                error = float(np.abs(pick(rounded) - expected).max(initial=0.0))
                close(value, expected, f"{self.name}: {name}, of which DGL rounds {error:.1e}", 1e3, floor=30 * error)


def check(pool: Pool, world: int, transport: str, seeds: list[int]) -> None:
    cases = [Case(seed, world) for seed in seeds]
    given = [{"cases": [case.given(rank) for case in cases]} for rank in range(world)]
    found = Workers(pool, world, transport).run(cases_observers.steps, given)
    for n, case in enumerate(cases):
        failed = [f"rank {rank}: {one[n]}" for rank, one in enumerate(found) if isinstance(one[n], str)]
        assert not failed, "\n".join([case.name, *failed])
        case.compare([one[n] for one in found])


@pytest.mark.parametrize("cases", COUNTS)
@pytest.mark.parametrize("session", SESSIONS, ids=lambda s: f"{s[1]}{s[0]}")
def test_observers(pool: Pool, session: tuple[int, str], cases: int) -> None:
    count = cases // len(SESSIONS)
    first = FIRST + 1_000_003 * SESSIONS.index(session)
    for begin in range(0, count, BATCH):
        check(pool, *session, list(range(first + begin, first + min(begin + BATCH, count))))
