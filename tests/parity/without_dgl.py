"""Layers of sar.nn against dense torch, in a process that cannot import DGL: run by test_nn.py under `sar launch`."""

from __future__ import annotations

import os
import sys

sys.modules["dgl"] = None  # type: ignore[assignment]  # an import of it fails

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from sar.common_tuples import PartitionData, ShardEdgesAndFeatures  # noqa: E402
from torch import Tensor  # noqa: E402

import sar  # noqa: E402
import sar.function as fn  # noqa: E402
from sar import nn  # noqa: E402

N, E, D, TYPES = 40, 200, 6, 3
torch.set_default_dtype(torch.float64)
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
sar.initialize_comms(rank, world, os.environ["MASTER_ADDR"], "sar", master_port_number=int(os.environ["MASTER_PORT"]))

torch.manual_seed(0)
src, dst = torch.randint(N, (E,)), torch.randint(N - 3, (E,))  # the last three nodes have no in-edge
kinds, weights = torch.randint(TYPES, (E,)), torch.rand(E) + 0.5
x = torch.randn(N, D)
bounds = [N * p // world for p in range(world + 1)]
ranges = list(zip(bounds[:-1], bounds[1:]))
low, high = ranges[rank]
mine = ((dst >= low) & (dst < high)).nonzero().view(-1)
edges = ShardEdgesAndFeatures((src[mine], dst[mine]), {})
graph = sar.construct_full_graph(PartitionData([edges], ranges, {}, ["_N"], [("_N", "_E", "_N")], None))
A = torch.zeros(N, N).index_put_((dst, src), torch.ones(E), accumulate=True)
AW = torch.zeros(N, N).index_put_((dst, src), weights, accumulate=True)
into, out = A.sum(1, keepdim=True).clamp(min=1), A.sum(0, keepdim=True).clamp(min=1)


def attention(values: Tensor, logits: Tensor) -> Tensor:
    """Softmax over the in-edges of each node, then the weighted sum; heads are dimension 1."""
    result = []
    for i in range(N):
        found = (dst == i).nonzero().view(-1)
        share = torch.softmax(logits[found], 0)
        result.append((share.unsqueeze(-1) * values[src[found]]).sum(0))
    return torch.stack(result)


def gat(layer: nn.GATConv) -> Tensor:
    ft = layer.fc(whole).view(N, 2, 3)
    left, right = (ft * layer.attn_l).sum(-1), (ft * layer.attn_r).sum(-1)
    return attention(ft, F.leaky_relu(left[src] + right[dst], 0.2)) + layer.bias.view(2, 3)


def gatv2(layer: nn.GATv2Conv) -> Tensor:
    u, v = layer.fc_src(whole).view(N, 2, 3), layer.fc_dst(whole).view(N, 2, 3)
    return attention(u, (F.leaky_relu(u[src] + v[dst], 0.2) * layer.attn).sum(-1))


def gin(layer: nn.GINConv) -> Tensor:
    largest = torch.stack([whole[src[dst == i]].amax(0) if (dst == i).any() else whole[0] * 0 for i in range(N)])
    return layer.apply_func((1 + layer.eps) * whole + largest)


def rgcn(layer: nn.RelGraphConv) -> Tensor:
    each = torch.stack([whole[s] @ layer.linear_r.get_weight()[k] for s, k in zip(src, kinds)])
    return torch.zeros(N, 4).index_add(0, dst, each) + layer.h_bias + whole @ layer.loop_weight


def appnp(_: torch.nn.Module) -> Tensor:
    h = whole
    for _ in range(3):
        h = 0.8 * (A / into.sqrt() / out.sqrt()) @ h + 0.2 * whole
    return h


def norm(layer: nn.DistributedBN1D) -> Tensor:
    return F.batch_norm(whole, None, None, layer.weight, layer.bias, True)


CHECKS = [
    (
        nn.GraphConv(D, 4, allow_zero_in_degree=True),
        lambda m: (A / into.sqrt() / out.sqrt()) @ whole @ m.weight + m.bias,
        lambda m: m(graph, own),
    ),
    (
        nn.SAGEConv(D, 4, "mean"),
        lambda m: m.fc_self(whole) + m.fc_neigh(AW / into @ whole),
        lambda m: m(graph, own, weights[mine]),
    ),
    (nn.GATConv(D, 3, 2, allow_zero_in_degree=True), gat, lambda m: m(graph, own)),
    (nn.GATv2Conv(D, 3, 2, allow_zero_in_degree=True), gatv2, lambda m: m(graph, own)),
    (nn.GINConv(torch.nn.Linear(D, 4), "max", learn_eps=True), gin, lambda m: m(graph, own)),
    (nn.RelGraphConv(D, 4, TYPES, "basis", 2), rgcn, lambda m: m(graph, own, kinds[mine])),
    (nn.APPNPConv(3, 0.2), appnp, lambda m: m(graph, own)),
    (nn.DistributedBN1D(D), norm, lambda m: m(own)),
]

for model, dense, distributed in CHECKS:
    name = type(model).__name__
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    sar.sync_params(model)
    whole, own = x.clone().requires_grad_(), x[low:high].clone().requires_grad_()
    expected = dense(model)
    grad = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
    expected.backward(grad)
    wanted = {key: p.grad for key, p in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    result = distributed(model)
    torch.testing.assert_close(result, expected[low:high], msg=lambda m, name=name: f"{name}: {m}")
    result.backward(grad[low:high])
    sar.gather_grads(model)
    torch.testing.assert_close(own.grad, whole.grad[low:high], msg=lambda m, name=name: f"{name}, input: {m}")
    for key, p in model.named_parameters():
        torch.testing.assert_close(p.grad, wanted[key], msg=lambda m, name=name, key=key: f"{name}, {key}: {m}")

for power, made in enumerate(nn.sign_features(graph, x[low:high], 2, "rw")):
    torch.testing.assert_close(made, (torch.linalg.matrix_power(A / into, power) @ x)[low:high])
graph.srcdata["h"] = x[low:high]
graph.update_all(fn.copy_u("h", "m"), fn.max("m", "largest"))
assert sys.modules["dgl"] is None
if rank == 0:
    print("all layers agree")
