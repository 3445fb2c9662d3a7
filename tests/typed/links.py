"""Link prediction on the whole graph."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GCNConv

import sar

sar.initialize_comms()
data = sar.load("parts/cora.json", pyg=True)
model = GCNConv(data.x.shape[1], 16)
sar.prepare(model, data)
sar.sync_params(model)
z: Tensor = model(data.x, data.edge_index)
pairs = sar.negative_sampling(data.edge_index, num_neg_samples=1.0, seed=3)
again = sar.batched_negative_sampling(data.edge_index, torch.zeros(len(z), dtype=torch.int64))
scores = [(z[index[0]] * z[index[1]]).sum(-1) for index in (data.edge_index, pairs, again)]
loss = F.softplus(torch.cat(scores)).sum() / data.total(pairs.size(1))
i, j, k = sar.structured_negative_sampling(data.edge_index)
loss = loss + F.relu((z[i] * z[k]).sum(-1) - (z[i] * z[j]).sum(-1)).sum()
loss.backward()
sar.gather_grads(model)
found = sar.link_metrics(scores[0], scores[1], hits=[10])
rows: Tensor = sar.fetch(z.detach(), torch.arange(3), data)
print(found["auc"], found["hits@10"], rows.shape, pairs.graph.num_edges_global())
graph = sar.load("parts/cora.json")
print(sar.negative_sampling(graph).num_edges())
