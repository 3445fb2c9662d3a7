"""Messages and reductions of one's own, built in and in Python, and relations."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sar
from sar.function import copy_e, copy_u, max, mean, sum, u_dot_v, u_mul_e


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scores = nn.Linear(2 * width, 1)

    def forward(self, graph: sar.GraphShardManager, x: Tensor) -> Tensor:
        with graph.local_scope():
            graph.srcdata["x"], graph.dstdata["x"] = x, x
            graph.apply_edges(lambda edges: {"s": self.scores(torch.cat([edges.src["x"], edges.dst["x"]], 1))})
            graph.edata["a"] = sar.edge_softmax(graph, F.leaky_relu(graph.edata["s"]))
            graph.update_all(u_mul_e("x", "a", "m"), sum("m", "h"))
            graph.update_all(copy_e("a", "m"), lambda nodes: {"most": nodes.mailbox["m"].amax(1)})
            graph.apply_nodes(lambda nodes: {"h": nodes.data["h"] / nodes.data["most"]})
            return graph.dstdata["h"]


sar.initialize_comms()
graph = sar.load("parts")
if isinstance(graph, sar.HeteroGraphShardManager):
    by_type = graph.ndata["features"]
    print({kind: x.shape for kind, x in by_type.items()}, graph.nodes["paper"].data["year"].max())
    graph["cites"].update_all(copy_u("features", "m"), mean("m", "h"))
    both = {"cites": (copy_u("h", "m"), sum("m", "h")), "writes": (copy_u("h", "m"), max("m", "h"))}
    graph.multi_update_all(both, "sum")
    layers = sar.nn.HeteroGraphConv({"cites": sar.nn.GraphConv(8, 8), "writes": sar.nn.GraphConv(8, 8)})
    print(layers(graph, graph.ndata["h"])["paper"].shape)
else:
    x = graph.ndata["features"].float()
    graph.ndata["h"] = Attention(x.shape[1])(graph, x)
    graph.apply_edges(u_dot_v("h", "h", "similarity"))
    alike = graph.filter_edges(lambda edges: edges.data["similarity"].view(-1) > 0.5)
    few = graph.clone()
    few.remove_edges(alike)
    sources, destinations = few.edges()
    print(few.num_edges_global(), sources.shape, destinations.max(), few.all_edges("eid").shape)
    attended, weights = sar.nn.GATConv(x.shape[1], 8, 4)(graph, x, get_attention=True)
    print(attended.flatten(1).shape, weights.shape, sar.nn.GATConv(x.shape[1], 8, 4)(graph, x).shape)
