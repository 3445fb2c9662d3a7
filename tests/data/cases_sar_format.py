"""Training on parts of both formats, on a worker."""

from __future__ import annotations

from typing import Any, Dict

import torch

import sar
from sar import nn
from tests.support.worker import numpy


def train(json_file: str) -> Dict[str, Any]:
    """Losses and gradients of attention and SAGE with edge weights and dropout on edges."""
    torch.manual_seed(0)
    data = sar.load_dgl_partition_data(json_file, sar.rank())
    graph = sar.construct_full_graph(data)
    x = sar.suffix_key_lookup(data.node_features, "features")
    labels = sar.suffix_key_lookup(data.node_features, "labels")
    first = nn.GATConv(x.shape[1], 4, 2, attn_drop=0.3, allow_zero_in_degree=True)
    second = nn.SAGEConv(8, 4, "mean")
    model = torch.nn.ModuleList([first, second])
    sar.sync_params(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        hidden = first(graph, x).flatten(1)
        with graph.local_scope():
            graph.srcdata["h"] = hidden
            graph.update_all(sar.function.u_mul_e("h", "w", "m"), sar.function.sum("m", "h"))
            hidden = torch.relu(graph.dstdata["h"])
        out = second(graph, hidden)
        loss = torch.nn.functional.cross_entropy(out, labels, reduction="sum")
        optimizer.zero_grad()
        loss.backward()
        sar.gather_grads(model)
        optimizer.step()
        losses.append(float(loss))
    blocks = sar.construct_mfgs(data, torch.arange(*data.node_ranges[sar.rank()])[::2], 2)
    sums = []
    for block in blocks:
        with block.local_scope():
            block.srcdata["one"] = torch.ones(block.num_src_nodes(), 1)
            block.update_all(sar.function.u_mul_e("one", "w", "m"), sar.function.sum("m", "s"))
            sums.append(numpy(block.dstdata["s"]))
    return {
        "losses": losses,
        "parameters": [numpy(p) for p in model.parameters()],
        "out": numpy(out),
        "edges": [numpy(t) for t in graph.edges()],
        "degrees": numpy(graph.out_degrees()),
        "weights": numpy(graph.edata["w"]),
        "shards": [numpy(end) for shard in data.all_shard_edges for end in shard.edges],
        "blocks": sums,
    }


def hetero(json_file: str) -> Dict[str, Any]:
    """Sums over each relation, with gradients."""
    data = sar.load_dgl_partition_data(json_file, sar.rank())
    graph = sar.construct_full_graph(data)
    inputs, found = {}, {}
    for kind in graph.ntypes:
        inputs[kind] = (torch.arange(graph.num_nodes(kind) * 2).view(-1, 2) / 7 + sar.rank()).requires_grad_()
    for triple in graph.canonical_etypes:
        relation = graph[triple]
        with relation.local_scope():
            relation.srcdata["h"] = inputs[triple[0]]
            relation.edata["v"] = relation.edata["w"].float().view(-1, 1)
            relation.update_all(sar.function.u_mul_e("h", "v", "m"), sar.function.mean("m", "out"))
            out = relation.dstdata["out"]
            out.square().sum().backward()
            found[":".join(triple)] = numpy(out)
    return {"out": found, "grad": {kind: numpy(t.grad) for kind, t in inputs.items() if t.grad is not None}}


def construct(json_files: Any) -> None:
    """The graph of this worker's part."""
    sar.construct_full_graph(sar.load_dgl_partition_data(json_files[sar.rank()], sar.rank()))
