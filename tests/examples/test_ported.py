"""Public scripts of PyG and DGL, ported by the guides: losses and metrics as alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.examples import cases_ported as cases, ported, ported_dgl, ported_pyg
from tests.support.sessions import Workers

pytest.importorskip("torch_geometric")
KINDS = ("link_pred", "signed_gcn", "infomax_transductive", "ogbn_proteins_deepgcn", "polynormer")
KINDS += ("4_link_predict", "dgi")
"""Scripts that show what others do not; those are run by ``make test-all``."""


def marked(scripts: Any) -> list[Any]:
    return [name if name in KINDS else pytest.param(name, marks=pytest.mark.full) for name in scripts]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function of the number of workers that gives where partitions lie."""
    root = tmp_path_factory.mktemp("ported")

    def get(world: int) -> str:
        path: Path = root / str(world)
        if not path.exists():
            ported.write(path, world)
        return str(path)

    return get


def joined(found: list[ported.Found]) -> list[np.ndarray]:
    """What was drawn, of all workers."""
    ids = np.concatenate([one.ids for one in found])
    together = [np.concatenate(one, -1) for one in zip(*(one.drawn for one in found))]
    return [one if one.ndim == 2 else one[ids.argsort()] for one in together]


def as_alone(workers: Workers, folder: str, library: str, name: str) -> None:
    found = workers.run(cases.on_worker, folder=folder, library=library, name=name)
    expected = cases.alone(library, name, joined(found))
    for one in found:
        np.testing.assert_allclose(one.losses, expected.losses, rtol=1e-9)
        np.testing.assert_allclose(one.scores, expected.scores, rtol=1e-6)


@pytest.mark.parametrize("name", marked(ported_pyg.SCRIPTS))
def test_pyg(few: Workers, folder: Any, name: str) -> None:
    as_alone(few, folder(few.world), "pyg", name)


@pytest.mark.parametrize("name", marked(ported_dgl.SCRIPTS))
def test_dgl(few: Workers, folder: Any, name: str) -> None:
    pytest.importorskip("dgl")
    as_alone(few, folder(few.world), "dgl", name)
