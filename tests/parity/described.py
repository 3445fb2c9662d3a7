"""The tables of docs/prepared.md: what sar.describe prints of two models on halves of Cora.

``python -m tests.parity.described`` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn

import sar
from tests.support import ROOT
from tests.support.graphs import Graph
from tests.support.pool import Pool
from tests.support.sessions import Workers
from tests.support.worker import build

PAGE = ROOT / "docs" / "prepared.md"


def _of_dgl() -> nn.Module:
    import dgl

    model = nn.ModuleDict({"first": dgl.nn.SAGEConv(1433, 64, "mean"), "norm": nn.BatchNorm1d(64)})
    model["second"] = dgl.nn.GATConv(64, 16, 4, residual=True)
    model["last"] = dgl.nn.GraphConv(64, 7)
    return model


def _of_pyg() -> nn.Module:
    import torch_geometric.nn as pyg

    model = nn.ModuleDict({"gcn": pyg.GCN(1433, 64, 2, norm="batch_norm"), "gat": pyg.GATConv(64, 16, heads=4)})
    model["norm"], model["pool"], model["top"] = pyg.GraphNorm(64), pyg.MeanAggregation(), pyg.TopKPooling(64)
    return model


MODELS: dict[str, Callable[[], nn.Module]] = {"dgl": _of_dgl, "pyg": _of_pyg}


def shown(part: dict[str, Any]) -> dict[str, str]:
    """What rank 0 prints of each model."""
    graph = build(part)
    return {
        "dgl": str(sar.describe(sar.prepare(_of_dgl(), graph))),
        "pyg": str(sar.describe(sar.prepare(_of_pyg(), sar.pyg.edge_index(graph)))),
    }


def written(workers: Workers) -> tuple[str, str]:
    """The page as it is, and as it should be."""
    cora = np.load(ROOT / "examples" / "data" / "cora.npz")
    src, dst = cora["edge_index"].astype(np.int64)
    n = int(max(src.max(), dst.max())) + 1
    graph = Graph(n, src, dst, np.array([0, n // 2, n]))
    found = workers.run(shown, graph.shares())[0]
    page = text = PAGE.read_text()
    for name, table in found.items():
        pattern = rf"(<!-- described: {name} -->\n```text\n).*?(\n```\n<!-- end -->)"
        text, count = re.subn(pattern, lambda m: m[1] + table + m[2], text, flags=re.DOTALL)  # noqa: B023
        assert count == 1, name
    return page, text


if __name__ == "__main__":
    from tests.parity import described  # whose functions the workers find

    pool = Pool()
    PAGE.write_text(described.written(Workers(pool, 2, "shm"))[1])
    pool.stop()
