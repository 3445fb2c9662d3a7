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


# ---- several types -----------------------------------------------------------


class RGCN(torch.nn.Module):
    """Two layers of GraphConv per relation, with a linear layer for each node's own features; cites is weighted."""

    def __init__(self, kinds: list[str], triples: list[tuple[str, str, str]], sizes: list[int], own: bool) -> None:
        import dgl.nn

        super().__init__()
        self.convs = torch.nn.ModuleList()
        self.own = torch.nn.ModuleList()
        for a, b in zip(sizes[:-1], sizes[1:]):
            each = {t: dgl.nn.GraphConv(a, b, norm="right", allow_zero_in_degree=True) for t in triples}
            self.convs.append(dgl.nn.HeteroGraphConv(each))
            self.own.append(torch.nn.ModuleDict({k: torch.nn.Linear(a, b) for k in (kinds if own else [])}))

    def forward(
        self, graphs: list[Any], h: dict[str, torch.Tensor], weights: list[torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        for n, (conv, own) in enumerate(zip(self.convs, self.own)):
            new = conv(graphs[n], h, mod_kwargs={"cites": {"edge_weight": weights[n]}})
            for kind, layer in own.items():
                rows = layer(h[kind][: graphs[n].number_of_dst_nodes(kind)])
                new[kind] = new[kind] + rows if kind in new else rows
            h = {k: torch.tanh(v) for k, v in new.items()} if n == 0 else new
        return h


def rgcn(
    source: dict[str, Any],
    sizes: list[int],
    state: dict[str, np.ndarray],
    x: dict[str, np.ndarray],
    grad: dict[str, np.ndarray],
    seeds: dict[str, np.ndarray] | None = None,
    keep: bool = True,
    one_shot: bool = False,
) -> dict[str, Any]:
    """An R-GCN on a full graph, or on the blocks of own seeds (rows per type). ``x`` and ``grad`` are of own rows."""
    torch.set_default_dtype(torch.float64)
    try:
        if "json" in source:
            data = sar.load_dgl_partition_data(source["json"], sar.rank(), torch.device("cpu"))
        else:
            data = data_of(source["part"], source["features"])
        layers = len(sizes) - 1
        if seeds is None:
            graph = sar.construct_full_graph(data)
            graphs: list[Any] = [graph] * layers
        else:
            start, offset, ids = data.node_ranges[sar.rank()][0], 0, []
            for kind in data.node_type_names:
                ids.append(torch.from_numpy(seeds[kind]) + start + offset)
                offset += len(x[kind])
            graphs = sar.construct_mfgs(data, torch.cat(ids), layers, keep)
        weights = [g["cites"].edata["w"].clone().requires_grad_() for g in graphs]
        if seeds is None:
            weights = weights[:1] * layers
        own = {k: torch.from_numpy(v).requires_grad_(k != "field") for k, v in x.items()}
        given = {k: v[graphs[0].srcnodes(k)] for k, v in own.items()}
        running = [g.get_full_partition_graph() for g in graphs] if one_shot else graphs
        model = RGCN(graphs[0].ntypes, graphs[0].canonical_etypes, sizes, keep)
        model.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
        out = model(running, given, weights)
        loss = sum((out[k] * torch.from_numpy(grad[k])[graphs[-1].dstnodes(k)]).sum() for k in sorted(out))
        assert isinstance(loss, torch.Tensor)
        loss.backward()
        sar.gather_grads(model)
        return numpy(
            {
                "out": out,
                "rows": {k: graphs[-1].dstnodes(k) for k in graphs[-1].dsttypes},
                "x": {k: v.grad for k, v in own.items()},
                "w": None if seeds is not None else weights[0].grad,
                "loaded": weights[0],
                "parameters": {k: p.grad for k, p in model.named_parameters()},
                "class": type(graphs[0]).__name__,
                "edges": {":".join(t): graphs[0].num_edges(t) for t in graphs[0].canonical_etypes},
                "global": [graphs[0].num_nodes_global(), graphs[0].num_edges_global()],
            }
        )
    finally:
        torch.set_default_dtype(torch.float32)
