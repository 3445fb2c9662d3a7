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

from conftest import Workers
from graphs import Graph, close, make
from observed_models import OBSERVERS, Observed, auxiliary, make_spec
from pool import Pool

MANY = int(os.environ.get("SAR_OBSERVED_MODELS", "0"))
FIRST = random.SystemRandom().randrange(1 << 40) if MANY else 0
COUNT = MANY or 360
BATCH = 15
"""Models that go to the workers in one message."""
SESSIONS = [(2, "shm"), (3, "shm"), (2, "tcp")] + ([(4, "shm")] if MANY else [])


def whole(seed: int, observer: str, looks: int, graph: Graph, x: np.ndarray, grad: np.ndarray) -> dict[str, Any]:
    """DGL on the whole graph: what the model began with, its result and all gradients."""
    spec = make_spec(seed, observer)
    torch.manual_seed(seed)
    norm = lambda width: torch.nn.BatchNorm1d(width, track_running_stats=False)  # noqa: E731
    model = Observed(spec, {"dgl": dgl.nn, "sar": dgl.nn}, norm).double()
    for p in model.parameters():  # biases begin at zero, which hides mistakes
        torch.nn.init.normal_(p)
    terms: list[torch.Tensor] = []
    if observer == "auxiliary loss":
        auxiliary(model, terms, graph.rows(looks))
    rows = torch.from_numpy(x.copy()).requires_grad_()
    all_of_it = dgl.graph((torch.from_numpy(graph.src), torch.from_numpy(graph.dst)), num_nodes=graph.num_nodes)
    out = model(all_of_it, rows)
    (sum(terms, (out * torch.from_numpy(grad)).sum())).backward()
    found = {"out": out.detach().numpy(), "x": rows.grad.numpy()}
    found["parameters"] = {name: p.grad.numpy() for name, p in model.named_parameters()}
    return {"state": {n: v.numpy() for n, v in model.state_dict().items()}, "found": found}


def make_case(seed: int, world: int) -> tuple[str, int, Graph, dict[str, Any], list[dict[str, Any]]]:
    rng = random.Random(seed)
    observer, looks = rng.choice(OBSERVERS), rng.randrange(world)
    kind = rng.choice(["random", "random", "random", "hub", "no_edges_between"])
    graph = make(kind, world, seed=seed % 7)
    spec, numbers = make_spec(seed, observer), np.random.default_rng(seed)
    x = numbers.standard_normal((graph.num_nodes, spec["in"]))
    grad = numbers.standard_normal((graph.num_nodes, spec["out"]))
    expected = whole(seed, observer, looks, graph, x, grad)
    arguments = [
        {"seed": seed, "observer": observer, "looks": rank == looks, "part": graph.part(rank),
         "x": x[graph.rows(rank)], "grad": grad[graph.rows(rank)], "state": expected["state"]}
        for rank in range(world)
    ]  # fmt: skip
    return observer, looks, graph, expected["found"], arguments


def check(pool: Pool, world: int, transport: str, seeds: list[int]) -> None:
    cases = [make_case(seed, world) for seed in seeds]
    given = [{"cases": [case[4][rank] for case in cases]} for rank in range(world)]
    found = Workers(pool, world, transport).run("cases_observers:steps", given)
    for n, (seed, (observer, looks, graph, expected, _)) in enumerate(zip(seeds, cases)):
        case = f"model {seed}: {make_spec(seed, observer)}; {observer} on rank {looks} of {world}"
        failed = [f"rank {rank}: {one[n]}" for rank, one in enumerate(found) if isinstance(one[n], str)]
        assert not failed, "\n".join([case, *failed])
        for rank in range(world):
            for name in ("out", "x"):
                close(found[rank][n][name], expected[name][graph.rows(rank)], f"{case}: {name} of rank {rank}", 1e3)
        for name, value in expected["parameters"].items():
            close(sum(one[n]["parameters"][name] for one in found), value, f"{case}: gradient of {name}", 1e3)


@pytest.mark.parametrize("session", SESSIONS, ids=lambda s: f"{s[1]}{s[0]}")
def test_observers(pool: Pool, session: tuple[int, str]) -> None:
    count = COUNT // len(SESSIONS)
    first = FIRST + 1_000_003 * SESSIONS.index(session)
    for begin in range(0, count, BATCH):
        check(pool, *session, list(range(first + begin, first + min(begin + BATCH, count))))
