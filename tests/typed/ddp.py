"""DistributedDataParallel over the backend "sar"."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

import sar
import sar.nn

dist.init_process_group("sar")
sar.initialize_comms()
data = sar.load("parts", pyg=True)
graph = sar.load("parts")
index = sar.pyg.edge_index(graph)
x, y = graph.ndata["features"].float(), graph.ndata["labels"]
model = DistributedDataParallel(sar.convert_batchnorm(sar.nn.SAGEConv(x.shape[1], graph.num_classes, "mean")))
model.register_comm_hook(None, sar.sum_gradients)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    logits: Tensor = model(graph, x)
    loss = F.cross_entropy(logits, y, reduction="sum") / graph.num_nodes_global()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total = loss.detach()
    dist.all_reduce(total)
    print(dist.get_backend(), total.item())
print(index.shape, index.graph.num_nodes(), data.num_classes)
source, target = index
print(index.numbers().shape, source.side, x[source].shape, index.flipped, target.numbers().max())
