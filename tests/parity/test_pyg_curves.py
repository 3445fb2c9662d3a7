"""Training PyG's models on the graphs that ship with the examples: the curve of PyG alone, for every number of workers.

``make test-all`` runs 20 epochs with all features, ``make test`` fewer with some of them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch

from tests.parity import cases_pyg_training
from tests.parity.data_sets import MOST_FEATURES, DataSet
from tests.support.pool import Pool
from tests.support.sessions import Workers

pytest.importorskip("torch_geometric")

full = pytest.mark.full

# data set, model, features, epochs
SHOWN: list[Any] = [("cora", "gcn", 200, 8), ("cornell5", "sage", 32, 5)]
FULL: list[Any] = [("cora", "gcn", MOST_FEATURES, 20), ("cornell5", "sage", MOST_FEATURES, 20)]
SESSIONS = {(1, "shm"): "cora", (2, "shm"): "cornell5", (4, "shm"): "cora", (2, "tcp"): "cornell5", (8, "shm"): ""}
"""And which data set ``make test`` trains on."""
CASES = [
    pytest.param(*case, session, marks=() if case in SHOWN and case[0] == shown else full)
    for case in [*SHOWN, *FULL]
    for session, shown in SESSIONS.items()
]


@lru_cache(maxsize=1)
def alone(name: str, model: str, features: int, epochs: int) -> list[float]:
    """The losses of PyG on the whole graph."""
    from torch_geometric.utils import to_torch_csr_tensor

    data = DataSet(name, 1, False, features)
    edge_index: Any = torch.from_numpy(np.stack([data.graph.src, data.graph.dst]))
    if name == "cornell5":  # its messages would take gigabytes: PyG multiplies by a matrix
        ones, nodes = torch.ones(len(data.graph.src), dtype=torch.float64), data.graph.num_nodes
        edge_index = to_torch_csr_tensor(edge_index.flip(0), ones, size=(nodes, nodes))
    rows = {"x": data.x, "y": data.y, "masks": data.masks}
    return cases_pyg_training.losses(edge_index, **rows, **known(data, model, epochs), alone=True)


def known(data: DataSet, model: str, epochs: int) -> dict[str, Any]:
    return {"model": model, "classes": data.classes, "n_train": data.n_train, "epochs": epochs}


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize(("name", "model", "features", "epochs", "session"), CASES)
def test_curve(pool: Pool, name: str, model: str, features: int, epochs: int, session: tuple[int, str]) -> None:
    """In double precision, every loss is that of PyG alone within 1e-8."""
    world, transport = session
    expected = alone(name, model, features, epochs)
    data = DataSet(name, world, False, features)
    workers = Workers(pool, world, transport)
    found = np.array(workers.run(cases_pyg_training.train, data.arguments("float64"), **known(data, model, epochs)))
    print(f"{name} on {world} workers, {transport}: within {np.abs(found / expected - 1).max():.1e} of PyG")
    np.testing.assert_allclose(found, [expected] * world, rtol=1e-8)
    assert len(expected) == epochs and expected[-1] < (0.9 if epochs == 20 else 1.0) * expected[0]
