"""Predictions of all nodes, written at their original ids."""

from __future__ import annotations

import torch
from torch import Tensor

import sar
import sar.nn

sar.initialize_comms(backend="sar")
sar.Config.features = "mapped"
graph = sar.load("parts")
features = graph.ndata.pop("features")
model = torch.nn.ModuleList([sar.nn.GINConv(torch.nn.Linear(features.shape[1], 8)), sar.nn.APPNPConv(3, 0.1)])
sar.load_checkpoint("run", model, graph=graph)
model.eval()
with torch.no_grad():
    h: Tensor = features.float()
    for layer in model:
        h = layer(graph, h)
sar.write_rows("logits.npy", h, graph)
sar.write_rows("classes.parquet", {"class": h.argmax(1), "share": h.softmax(1).amax(1)}, graph)
correct = h.argmax(1) == graph.ndata["labels"]
test = graph.ndata["test_mask"]
print(f"{graph.total(correct[test]) / graph.total(test):.3f} of {graph.num_nodes_global()} nodes, {graph.node_ranges}")
