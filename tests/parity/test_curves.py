"""Training on the graphs that ship with the examples: the same curve for every number of workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.parity import cases_training
from tests.parity.data_sets import MOST_FEATURES, DataSet
from tests.support.pool import Pool
from tests.support.sessions import Workers

full = pytest.mark.full


def curve(
    pool: Pool, world: int, name: str, model: str, dtype: str, *, features: int = MOST_FEATURES, **options: Any
) -> list[dict[str, Any]]:
    data = DataSet(name, world, model == "gcn", features)
    known = {"model": model, "classes": data.classes, "n_train": data.n_train}
    return Workers(pool, world, "shm").run(cases_training.train, data.arguments(dtype), **known, **options)


def check(losses: dict[int, np.ndarray], tolerance: float) -> None:
    for world, values in losses.items():
        np.testing.assert_allclose(values, losses[1], rtol=tolerance, err_msg=f"{world} workers against 1")


# dtype, tolerance, epochs, features
GCN = [
    ("float64", 1e-8, 4, 200),
    pytest.param("float64", 1e-8, 20, MOST_FEATURES, marks=full),
    pytest.param("float32", 1e-4, 20, MOST_FEATURES, marks=full),
]
SAGE = [
    ("float32", 1e-3, 3, 64),
    pytest.param("float64", 1e-8, 20, MOST_FEATURES, marks=full),
    pytest.param("float32", 1e-3, 20, MOST_FEATURES, marks=full),
]


@pytest.mark.parametrize(("dtype", "tolerance", "epochs", "features"), GCN)
def test_gcn_on_cora(pool: Pool, dtype: str, tolerance: float, epochs: int, features: int) -> None:
    losses = {}
    for world in (1, 2, 4, 8):
        first = curve(pool, world, "cora", "gcn", dtype, epochs=epochs, features=features)
        again = curve(pool, world, "cora", "gcn", dtype, epochs=epochs, features=features) if world == 4 else []
        assert all(r["losses"] == first[0]["losses"] for r in first + again), "not the same to the bit"
        losses[world] = np.array(first[0]["losses"])
    assert losses[1][-1] < (0.9 if epochs == 20 else 1.0) * losses[1][0]
    check(losses, tolerance)


@pytest.mark.parametrize(("dtype", "tolerance", "epochs", "features"), SAGE)
def test_sage_with_batch_norm_on_cornell5(pool: Pool, dtype: str, tolerance: float, epochs: int, features: int) -> None:
    losses = {}
    for world in (1, 2, 4, 8):
        found = curve(pool, world, "cornell5", "sage", dtype, epochs=epochs, features=features)
        losses[world] = np.array(found[0]["losses"])
    assert losses[1][-1] < losses[1][0]
    check(losses, tolerance)


@pytest.mark.parametrize(("seeds", "least"), [(1, 0.79), pytest.param(5, 0.805, marks=full)])
def test_accuracy_on_cora(pool: Pool, seeds: int, least: float) -> None:
    """Dropout and weight decay as in the paper, 100 epochs, 2 workers."""
    found = [
        curve(pool, 2, "cora", "gcn", "float32", epochs=100, dropout=0.5, weight_decay=5e-4, seed=seed)[0]["accuracy"]
        for seed in range(seeds)
    ]
    print(found)
    assert np.mean(found) >= least, found
