"""Messages over several relations against DGL on the whole graph: values and all gradients."""

from __future__ import annotations

from typing import Any

import dgl
import numpy as np
import torch

from tests.parity import cases_message, message_functions
from tests.support import hetero
from tests.support.graphs import close
from tests.support.sessions import Workers


def expectations(ends: Any, columns: dict[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, Any]]:
    graph = dgl.heterograph(
        {t: (torch.from_numpy(s), torch.from_numpy(d)) for t, (s, d) in ends.items()}, num_nodes_dict=hetero.KINDS
    )
    leaves = {kind: cases_message.leaf(array) for kind, array in columns.items()}
    rng = np.random.default_rng(4)
    expected, upstream = {}, {}
    for way in message_functions.WAYS:
        torch.manual_seed(3)
        net = message_functions.Several(dgl.function, hetero.TRIPLES, way).double()
        with graph.local_scope():
            graph.ndata["h"] = dict(leaves)
            out = net(graph)
        upstream[way] = {k: rng.standard_normal(tuple(t.shape)) for k, t in out.items()}
        sum((out[k] * torch.from_numpy(upstream[way][k])).sum() for k in out).backward()
        expected[way] = {
            "out": {k: t.detach().numpy() for k, t in out.items()},
            "columns": cases_message.gradients(leaves),
            "parameters": {k: p.grad for k, p in net.named_parameters()},
        }
    return expected, upstream


def test_several_relations(few: Workers) -> None:
    ends, cut, columns = hetero.edges(), hetero.Cut(few.world), hetero.features(1)
    expected, upstream = expectations(ends, columns)
    rows = [{kind: cut.rows(kind, rank) for kind in hetero.KINDS} for rank in range(few.world)]
    arguments = [
        {
            "part": cut.part(rank, ends),
            "columns": {k: v[rows[rank][k]] for k, v in columns.items()},
            "upstream": {w: {k: g[rows[rank][k]] for k, g in given.items()} for w, given in upstream.items()},
        }
        for rank in range(few.world)
    ]
    results = few.run(cases_message.several, arguments, ways=message_functions.WAYS)
    for rank, got in enumerate(results):
        for way, wanted in expected.items():
            for kind, own in rows[rank].items():
                close(got[way]["out"][kind], wanted["out"][kind][own], f"{way}: {kind}, rank {rank}")
                grad = wanted["columns"][kind][own]
                close(got[way]["columns"][kind], grad, f"{way}: gradient of {kind}, rank {rank}")
            for key, grad in wanted["parameters"].items():
                if grad is None:
                    assert got[way]["parameters"][key] is None
                else:
                    close(got[way]["parameters"][key], grad.numpy(), f"{way}: gradient of {key}, rank {rank}")
