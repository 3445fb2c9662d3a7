"""Batches of sampled blocks, and blocks of all edges."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from dgl.nn.pytorch import SAGEConv
from torch import Tensor

import sar

sar.initialize_comms()
partition = sar.load_dgl_partition_data("parts/cora.json", sar.rank())
features = sar.suffix_key_lookup(partition.node_features, "features")
labels = sar.suffix_key_lookup(partition.node_features, "labels")
graph = sar.construct_full_graph(partition)
sampler = sar.DistNeighborSampler(
    [10, 10], input_node_features={"features": features}, output_node_features={"labels": labels}
)
first = graph.tgt_node_range[0]
loader = sar.DataLoader(graph, torch.arange(graph.num_nodes()) + first, sampler, batch_size=64, shuffle=True)
layers = torch.nn.ModuleList([SAGEConv(features.shape[1], 16, "mean"), SAGEConv(16, 7, "mean")])
optimizer = torch.optim.Adam(layers.parameters())
for number, blocks in enumerate(loader):
    h: Tensor = blocks[0].srcdata["features"]
    for layer, block in zip(layers, blocks):
        h = layer(block, h)
    loss = F.cross_entropy(h, blocks[-1].dstdata["labels"])
    optimizer.zero_grad()
    loss.backward()
    sar.gather_grads(layers)
    optimizer.step()
    print(f"{number} of {len(loader)}: {loss.item():.4f}")
of_all_edges = sar.construct_mfgs(partition, torch.arange(10) + first, 2)
print(features[of_all_edges[0].input_nodes].shape, of_all_edges[-1].seeds)
