"""Layers drawn at random on random graphs: results and all gradients against PyG on the whole graph.

``SAR_RANDOM_MODELS=5000`` runs so many, new ones each time; without it some hundreds, the same ones each time.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.parity import cases_pyg_models, pyg_models
from tests.parity.random_graphs import Case
from tests.support.pool import CaseError, Pool
from tests.support.sessions import Workers

pytest.importorskip("torch_geometric")

MANY = int(os.environ.get("SAR_RANDOM_MODELS", "0"))
SHARES = {(1, "shm"): 0.2, (2, "shm"): 0.4, (2, "tcp"): 0.1, (4, "shm"): 0.3}
COUNT = MANY or 198
BATCH = 33
UNIT = {"float64": 1e-10, "float32": 1e-5}


class Drawn:
    """A layer, its graph and its numbers."""

    def __init__(self, seed: int, world: int, folder: Path) -> None:
        self.model = pyg_models.draw(seed)
        self.path = folder / f"m{seed}_{world}.py"
        self.path.write_text(f"{pyg_models.HEAD}\n\n{self.model.source}")
        rng = np.random.default_rng([seed, 1])
        counts = [int(n) for n in rng.integers(1, 20, 1 + self.model.bipartite)]
        edges = 0 if rng.random() < 0.03 else int(rng.integers(1, 70))
        if "BatchNorm" in self.model.source:  # which wants two rows; some may be loops that the layer takes out
            edges = max(edges, 2)
        self.case = Case(
            {
                "seed": seed,
                "counts": counts,
                "relations": [(0, 1 if self.model.bipartite else 0)],
                "num_edges": [edges],
                "cuts": [np.sort(rng.integers(0, n + 1, world - 1)).tolist() for n in counts],
                "leaves": {},
                "steps": [],
            },
            world,
        )
        self.places = {
            key: {"s": "n0", "e": "e0"}.get(at, f"n{len(counts) - 1}") for key, (at, _) in self.model.inputs.items()
        }
        self.inputs = {
            key: rng.standard_normal((*self.case.length(self.places[key]), *shape)).astype("float32")
            for key, (_, shape) in self.model.inputs.items()
        }
        if "w" in self.inputs:
            self.inputs["w"] = np.abs(self.inputs["w"]) + np.float32(0.2)
        # the variance of messages that are nearly equal is rounding in single precision
        single = rng.random() < 0.2 and not any(word in self.model.source.lower() for word in ("std", "var", "batchn"))
        self.dtype = "float32" if single else "float64"
        self.flipped = "flow='target_to_source'" in self.model.source

    def oracle(self, dtype: str) -> dict[str, Any]:
        """PyG on the whole graph; nothing where its quantiles fail, as they do if the first node has no message, or its
        batch norm, of a single edge."""
        whole = torch.from_numpy(np.stack(self.case.ends[0]).astype(np.int64))
        nodes = self.case.spec["counts"][-1]
        try:
            return cases_pyg_models.step(str(self.path), self.model.name, whole, nodes, self.inputs, None, dtype)
        except (IndexError, RuntimeError):
            if "median" in self.model.source or "Quantile" in self.model.source:
                return {}
            raise
        except ValueError as error:
            if "more than 1 value per channel" in str(error):
                return {}
            raise

    @property
    def result(self) -> str:
        """Where the rows of the result are."""
        return "n0" if self.flipped else f"n{len(self.case.spec['counts']) - 1}"

    def arguments(self, rank: int, grad: np.ndarray) -> dict[str, Any]:
        rows = self.case.rows
        return {
            "path": str(self.path),
            "name": self.model.name,
            "part": self.case.part(rank),
            "inputs": {key: x[rows(self.places[key], rank)] for key, x in self.inputs.items()},
            "grad": grad[rows(self.result, rank)],
            "dtype": self.dtype,
        }

    def check(
        self, found: list[dict[str, Any]], plain: dict[str, Any], truth: dict[str, Any], loose: float = 1.0
    ) -> None:
        """Results of all ranks against PyG's in double precision; where PyG's own rounding in single precision is more
        than a part of what is allowed, four times that is.

        :param loose: so many times what is allowed
        """
        rows = self.case.rows
        unit = UNIT[self.dtype]

        def near(value: np.ndarray, mine: Any, key: str) -> None:
            whole, own = (x["buffers"].get(key, x["grads"].get(key, x["out"])) for x in (truth, plain))
            rounding = 0.0 if self.dtype == "float64" else float(np.abs(own - whole).max(initial=0))
            allowed = loose * max(unit * max(1.0, float(np.abs(whole).max(initial=0))), 4 * rounding)
            assert value.shape == whole[mine].shape, f"{key}: {value.shape}, expected {whole[mine].shape}"
            error = np.abs(value - whole[mine]).max(initial=0)
            assert error <= allowed, f"{key}: off by {error:.1e} where {allowed:.1e} is allowed"

        for rank, one in enumerate(found):
            near(one["out"], rows(self.result, rank), "result")
            for key, place in self.places.items():
                near(one["grads"][f"input {key}"], rows(place, rank), f"input {key}")
        for key in truth["grads"]:
            if key.startswith("parameter"):
                near(sum(one["grads"][key] for one in found), ..., key)
        for key in truth["buffers"]:
            values = [one["buffers"][key] for one in found]
            for value in [sum(values)] if "sum_of" in key else values:
                near(np.asarray(value), ..., key)


def rounded(workers: Workers, one: Drawn, truth: dict[str, Any], error: AssertionError) -> None:
    """Fails unless a small difference in single precision is rounding: in double precision there is none."""
    one.dtype = "float64"
    given = [{"batch": [one.arguments(rank, truth["grad"])]} for rank in range(workers.world)]
    results = workers.run(cases_pyg_models.layers, given)
    try:
        one.check([result[0] for result in results], truth, truth)
    except AssertionError as more:
        raise AssertionError(f"{error}; in double precision {more}\n{one.model.source}") from None
    print(f"in single precision alone: {one.model.name}: {error}".partition("\n")[0])


@pytest.mark.parametrize("session", SHARES, ids=lambda s: f"{s[1]}{s[0]}")
def test_random_models(pool: Pool, session: tuple[int, str], tmp_path: Path) -> None:
    world, transport = session
    workers = Workers(pool, world, transport)
    first = (int(time.time()) if MANY else 1000) * 10**4 + 2500 * list(SHARES).index(session)
    seeds = range(first, first + int(COUNT * SHARES[session]))
    done = 0
    for start in range(0, len(seeds), BATCH):
        drawn = [Drawn(seed, world, tmp_path) for seed in seeds[start : start + BATCH]]
        plain = [one.oracle(one.dtype) for one in drawn]
        drawn, plain = zip(*[(one, p) for one, p in zip(drawn, plain) if p])
        truth = [p if one.dtype == "float64" else one.oracle("float64") for one, p in zip(drawn, plain)]
        given = [{"batch": [one.arguments(r, p["grad"]) for one, p in zip(drawn, plain)]} for r in range(world)]
        try:
            results = workers.run(cases_pyg_models.layers, given)
        except CaseError as error:
            wrong = [one.model.source for one in drawn if f"{one.model.name}:" in str(error)]
            raise AssertionError("\n".join([str(error), *wrong])) from None
        done += len(drawn)
        for n, one in enumerate(drawn):
            try:
                one.check([result[n] for result in results], plain[n], truth[n])
            except AssertionError as error:
                if one.dtype == "float64":
                    raise AssertionError(f"{error}\n{one.model.source}") from None
                one.check([result[n] for result in results], plain[n], truth[n], loose=5.0)
                rounded(workers, one, truth[n], error)
    print(f"{done} layers, seeds {seeds.start} to {seeds.stop - 1}")
    assert done > 0.9 * len(seeds)
