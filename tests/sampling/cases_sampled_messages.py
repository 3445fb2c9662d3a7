"""Layers and messages on sampled blocks, beside blocks that DGL makes of the same edges."""

from __future__ import annotations

from typing import Any, Callable

import torch

import sar
from tests.support.worker import build, numpy

WIDTH, KINDS = 18, 3


def twin(block: Any) -> Any:
    """The block as ``dgl.create_block`` makes it."""
    import dgl

    ends = block.edges(order="eid")
    made = dgl.create_block(ends, num_src_nodes=block.num_src_nodes(), num_dst_nodes=block.num_dst_nodes())
    made.edata.update(block.edata)
    return made


def messages(message: str, reduce: str) -> Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]:
    import dgl.function as fn

    made = {
        "copy_u": fn.copy_u("h", "m"),
        "copy_e": fn.copy_e("w", "m"),
        "u_mul_e": fn.u_mul_e("h", "w", "m"),
        "e_sub_v": fn.e_sub_v("w", "h", "m"),
        "own": lambda edges: {"m": edges.src["h"] * edges.data["w"] - edges.dst["h"]},
    }[message]

    def run(block: Any, h: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with block.local_scope():
            block.srcdata["h"], block.dstdata["h"] = h, h[: block.num_dst_nodes()]
            block.edata["w"] = w.expand(-1, WIDTH) if message == "copy_e" else w
            block.update_all(made, getattr(fn, reduce)("m", "out"))
            out: torch.Tensor = block.dstdata["out"]
            return out

    return run


def layers() -> dict[str, Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]]:
    from dgl import nn

    torch.manual_seed(2)
    sage, graph = nn.SAGEConv(WIDTH, 5, "mean"), nn.GraphConv(WIDTH, 5, norm="right", allow_zero_in_degree=True)
    relational = nn.RelGraphConv(WIDTH, 5, KINDS, "basis", 2)
    gat = nn.GATConv(WIDTH, 5, 2, allow_zero_in_degree=True)
    return {
        "SAGEConv": lambda b, h, w: sage(b, h, w[:, 0]),
        "GraphConv": lambda b, h, w: graph(b, (h, h[: b.num_dst_nodes()]), edge_weight=w[:, 0]),
        "RelGraphConv": lambda b, h, w: relational(b, h, b.edata["kind"], w),
        "GATConv": lambda b, h, w: gat(b, (h, h[: b.num_dst_nodes()])).flatten(1) + 0 * w.sum(),
    }


def on_blocks(part: dict[str, Any], seeds: Any, weights: Any, kinds: Any) -> list[dict[str, Any]]:
    """Every message and layer on every block: result and gradients on it and on its twin."""
    graph = build(part)
    graph.edata["weight"], graph.edata["kind"] = torch.from_numpy(weights), torch.from_numpy(kinds)
    sampler = sar.DistNeighborSampler([4, -1])
    programs = {
        f"{m} {r}": messages(m, r)
        for m in ("copy_u", "copy_e", "u_mul_e", "e_sub_v", "own")
        for r in ("sum", "mean", "max")
    }
    programs.update(layers())
    found = []
    options = {"batch_size": 9, "precompute_optimized_batches": False}
    for blocks in sar.DataLoader(graph, torch.from_numpy(seeds), sampler, **options):
        for block in blocks:
            torch.manual_seed(block.num_edges())
            rows = torch.randn(block.num_src_nodes(), WIDTH)
            for name, program in programs.items():
                pair = []
                for one in (block, twin(block)):
                    h, w = rows.clone().requires_grad_(), block.edata["weight"].clone().requires_grad_()
                    out = program(one, h, w)
                    if out.requires_grad:
                        out.backward(torch.linspace(-1, 1, out.numel()).view(out.shape))
                    pair.append(numpy({"out": out, "h": h.grad, "w": w.grad}))
                found.append({"name": name, "ours": pair[0], "twin": pair[1]})
    return found
