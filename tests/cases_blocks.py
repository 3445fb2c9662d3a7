"""What runs on the workers to test blocks, heterographs and what managers answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import sar
from cases import numpy, tensor
from sar.common_tuples import PartitionData, ShardEdgesAndFeatures


def data_of(part: dict[str, Any], features: dict[str, np.ndarray] | None = None) -> PartitionData:
    """Partition data of one relation, or, where ``part`` has types, of several, made by hand.

    Edges fall to shards by the owner of their source, as the fields of partition data have it.
    """
    starts = torch.from_numpy(part["start"])
    src, dst = torch.from_numpy(part["src"]), torch.from_numpy(part["dst"])
    owner = torch.searchsorted(starts[1:], src, right=True)
    shards, columns = [], {k: torch.from_numpy(v) for k, v in (features or {}).items()}
    if "etype" in part:
        columns["_TYPE"] = torch.from_numpy(part["etype"])
    for q in range(len(starts) - 1):
        mine = owner == q
        shards.append(ShardEdgesAndFeatures((src[mine], dst[mine]), {k: c[mine] for k, c in columns.items()}))
    nodes = {"_TYPE": torch.from_numpy(part["ntype"])} if "ntype" in part else {}
    ranges = list(zip(part["start"][:-1].tolist(), part["start"][1:].tolist()))
    types = part.get("types", (["_N"], [("_N", "_E", "_N")]))
    return PartitionData(shards, ranges, nodes, types[0], types[1], None)


class Model(torch.nn.Module):
    """Layers of ``dgl.nn`` one after the other; graphs are blocks, or one graph for all."""

    def __init__(self, layers: list[tuple[str, tuple[Any, ...], dict[str, Any]]]) -> None:
        import dgl.nn

        super().__init__()
        self.layers = torch.nn.ModuleList([getattr(dgl.nn, name)(*a, **k) for name, a, k in layers])

    def forward(self, graphs: list[Any], h: torch.Tensor, weights: list[torch.Tensor] | None = None) -> torch.Tensor:
        for n, layer in enumerate(self.layers):
            h = layer(graphs[n], h) if weights is None else layer(graphs[n], h, edge_weight=weights[n])
            if n < len(self.layers) - 1:
                h = torch.tanh(h)
        return h


def mfgs(
    part: dict[str, Any],
    layers: list[Any],
    state: dict[str, np.ndarray],
    seeds: np.ndarray,
    keep: bool,
    x: np.ndarray,
    grad: np.ndarray,
    w: np.ndarray | None = None,
    one_shot: bool = False,
) -> dict[str, Any]:
    """A model over blocks: output, gradients of own features (0 where not read) and of parameters over all ranks."""
    torch.set_default_dtype(torch.float64)
    try:
        data = data_of(part, None if w is None else {"w": w})
        blocks = sar.construct_mfgs(data, torch.from_numpy(seeds), len(layers), keep_seed_nodes=keep)
        assert len(blocks) == len(layers) and all(b.is_block for b in blocks)
        for upper, lower in zip(blocks[1:], blocks):
            assert torch.equal(upper.srcnodes(), lower.dstnodes())
        if keep:
            assert all(torch.equal(b.srcnodes()[: b.num_dst_nodes()], b.dstnodes()) for b in blocks)
        assert torch.equal(blocks[-1].seeds, torch.from_numpy(np.sort(seeds)))
        graphs = [b.get_full_partition_graph() for b in blocks] if one_shot else blocks
        weights = None if w is None else [b.edata["w"] for b in blocks]
        model = Model(layers)
        model.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
        own = tensor(x, True)
        assert own is not None
        out = model(graphs, own[blocks[0].input_nodes], weights)
        out.backward(torch.from_numpy(grad))
        sar.gather_grads(model)
        return numpy(
            {
                "out": out,
                "x": torch.zeros_like(own) if own.grad is None else own.grad,
                "parameters": {k: p.grad for k, p in model.named_parameters()},
                "edges": [b.num_edges() for b in blocks],
                "sources": [b.input_nodes for b in blocks],
                "degrees": [[b.in_degrees(), b.out_degrees()] for b in blocks],
            }
        )
    finally:
        torch.set_default_dtype(torch.float32)
