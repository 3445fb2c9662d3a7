"""GAE, VGAE, ARGA and DeepGraphInfomax, prepared, against PyG alone given the same pairs and permutations."""

from __future__ import annotations

import numpy as np
import pytest

from tests.links import cases_unsupervised as cases
from tests.links.graphs import cut
from tests.links.test_negative import oracle
from tests.support.sessions import Workers

pytest.importorskip("torch_geometric")


@pytest.mark.parametrize("kind", ["GAE", "VGAE", "ARGVA", "DeepGraphInfomax"])
def test_as_alone(few: Workers, kind: str) -> None:
    """The losses of 20 epochs; and area under the curve and average precision at their end."""
    some = cut(few.world, empty=True)
    x = np.random.default_rng(21).standard_normal((some.graph.num_nodes, cases.IN))
    found = few.run(cases.trained, some.shares(x=x), everyone=some.ids, kind=kind)
    drawn = [np.concatenate(one, -1) for one in zip(*(one["drawn"] for one in found))]
    if kind == "DeepGraphInfomax":
        order = np.concatenate([some.rows(rank) for rank in range(few.world)]).argsort()
        drawn = [permutation[order] for permutation in drawn]
        assert all((np.sort(one) == np.arange(len(x))).all() for one in drawn)
        assert len(np.unique(drawn, axis=0)) == cases.EPOCHS
    losses, scores = cases.alone(kind, x, np.stack([some.whole.src, some.whole.dst]), drawn)
    np.testing.assert_allclose(np.sum([one["losses"] for one in found], 0), losses, rtol=1e-9, atol=1e-9)
    assert "over all nodes" in found[0]["said"]
    if scores is not None:
        wanted = oracle(*scores, [])
        for one in found:
            assert one["test"] == pytest.approx((wanted["auc"], wanted["ap"]), rel=1e-9)


def test_taken_back(two: Workers) -> None:
    some = cut(2)
    for prepared, own, plain, finite, as_before in two.run(cases.taken_back, some.shares()):
        assert prepared == [True, True] and own and plain and finite and as_before


def test_regression_on_all_rows(two: Workers) -> None:
    """DeepGraphInfomax's test: each worker fits and scores the rows of all."""
    some = cut(2)
    ids = np.concatenate([some.rows(rank) for rank in range(2)])
    known, rest = ids[ids % 3 == 0], ids[ids % 3 != 0]
    for named, *rows in two.run(cases.regressed, some.shares()):
        assert named == {"solver": "lbfgs", "max_iter": 150}
        assert rows == [known.tolist(), (known + 1).tolist(), rest.tolist(), (rest + 1).tolist()]
