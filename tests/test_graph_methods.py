"""``clone``, ``remove_edges``, ``send_and_recv``, filters, reversed graphs and transforms against DGL's whole graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import cases_graph_methods as cases
from conftest import Workers
from graphs import Graph, close, make

dgl = pytest.importorskip("dgl")


def whole_graph(graph: Graph) -> Any:
    return dgl.graph((torch.from_numpy(graph.src), torch.from_numpy(graph.dst)), num_nodes=graph.num_nodes)


@pytest.mark.parametrize("name", list(cases.OPERATIONS))
def test_operation(few: Workers, name: str) -> None:
    """Values and all gradients, element by element, also with a worker that owns no node."""
    for kind in ("random", "empty_worker"):
        graph = make(kind, few.world, seed=70)
        if name == "reversed_egat":  # which DGL refuses where a node has no in-edge
            loops = np.arange(graph.num_nodes)
            graph = graph._replace(src=np.append(graph.src, loops), dst=np.append(graph.dst, loops))
        rng = np.random.default_rng(71)
        x = rng.standard_normal((graph.num_nodes, cases.WIDTH))
        w = rng.standard_normal((len(graph.src), 1))
        mask = rng.random(len(graph.src)) < 0.4
        if name == "transformed":  # DGL divides by single precision there
            x, w = x.astype("float32"), w.astype("float32")
        expected = cases.outcome(whole_graph(graph), name, x, w, mask)
        given = [
            {"part": graph.part(r), "x": x[graph.rows(r)], "w": w[graph.edges(r)], "mask": mask[graph.edges(r)]}
            for r in range(graph.world)
        ]
        results = few.run("cases_graph_methods:run", given, name=name)
        for rank, found in enumerate(results):
            rows, edges = graph.rows(rank), graph.edges(rank)
            assert set(found["results"]) == set(expected["results"])
            for key, value in expected["results"].items():
                assert len(value) in (graph.num_nodes, len(graph.src))
                mine = value[rows] if len(value) == graph.num_nodes else value[edges]
                close(found["results"][key], mine, f"{name}: {key} of rank {rank}", 100)
            for key, own in (("x", rows), ("w", edges)):
                if expected["grads"][key] is not None and len(expected["grads"][key][own]):
                    got = found["grads"][key]
                    close(got, expected["grads"][key][own], f"{name}: gradient of {key}, rank {rank}", 100)
        for key in set(expected["grads"]) - {"x", "w"}:
            total = sum(r["grads"][key] for r in results)
            close(total, expected["grads"][key], f"{name}: gradient of {key}", 1000)
