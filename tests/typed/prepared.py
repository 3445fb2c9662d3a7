"""What a model becomes on a split graph, and a choice about it."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

import sar


class SAGE(nn.Module):
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.first = sar.nn.SAGEConv(width, 16, "mean")
        self.act = sar.nn.BatchNormAct(16, dropout=0.5)
        self.second = sar.nn.SAGEConv(16, classes, "mean")

    def forward(self, graph: sar.GraphShardManager, x: Tensor) -> Tensor:
        return self.second(graph, self.act(self.first(graph, x)))


sar.initialize_comms()
graph = sar.load("parts")
features = graph.ndata["features"].float()
model = sar.prepare(SAGE(features.shape[1], graph.num_classes), graph)
found = sar.describe(model)
print(found)
steps = [one.path for one in found if one.became != "fused"]
bytes_sent = sum(one.sends or 0 for one in found)
print(f"{steps} run step by step; {bytes_sent} bytes are sent: {found[0].why}")
print(F.log_softmax(model(graph, features), 1).shape)
plain = sar.restore(model)
print(plain.first.fc_neigh.weight.shape)
for estimate in sar.estimate_memory("parts/cora.json", ["sage:16", "bnact", "sage:7"]):
    print(estimate)
