"""Graphs made of tables and data sets, and cut into parts, from Python."""

from __future__ import annotations

from pathlib import Path

import torch
from torch_geometric.data import Data

import sar

tables = {"edges": {"file": "edges.csv", "source": "a", "target": "b"}}
made = sar.ingest(tables, "graph", symmetrize=True, memory="1GiB")
print(made)
sar.ingest(Path("graph.yaml"), Path("again"), skip_bad_rows=True)
whole = Data(x=torch.rand(100, 8), edge_index=torch.randint(100, (2, 400)), y=torch.randint(7, (100,)))
description = sar.pyg.partition(whole, 2, "parts", method="random", seed=1)
print(description.upper(), Path(description).exists())
