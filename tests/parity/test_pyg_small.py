"""Small things that scripts of PyG do, against PyG on the whole graph; and what is refused, with the way round."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.parity import cases_pyg_small as cases
from tests.support import hetero
from tests.support.graphs import close, make
from tests.support.sessions import Workers

pytest.importorskip("torch_geometric")


@pytest.mark.parametrize("name", cases.SAME)
def test_same(few: Workers, name: str) -> None:
    graph = make("random", few.world, seed=82)
    rng = np.random.default_rng(83)
    x, grad = rng.standard_normal((2, graph.num_nodes, cases.WIDTH))
    whole = torch.from_numpy(np.stack([graph.src, graph.dst]))
    expected = cases.same(name, whole, torch.from_numpy(x.copy()).requires_grad_(), grad)
    missing = graph.num_nodes - len(expected["out"])  # the last nodes may have no in-edge
    out = np.concatenate([expected["out"], np.zeros((missing, expected["out"].shape[1]))])
    for rank, found in enumerate(few.run(cases.on_worker, graph.shares(x=x, grad=grad), name=name)):
        close(found["out"], out[graph.rows(rank)], f"{name}, rank {rank}", 30)
        close(found["grad"], expected["grad"][graph.rows(rank)], f"gradient of {name}, rank {rank}", 30)


def test_refusals(few: Workers) -> None:
    graph, cut = make("random", few.world, seed=84), hetero.Cut(few.world, seed=4)
    given = [{"part": graph.part(r), "hetero": cut.part(r, hetero.edges())} for r in range(few.world)]
    ways = {"loops": "add_self_loops=False", "sparse": "to_dense()", "v": "vectorize=False", "func": "vectorize=False"}
    for said in few.run(cases.refusals, given):
        for name, text in said.items():
            assert next(way for start, way in ways.items() if name.startswith(start)) in text, (name, text)
