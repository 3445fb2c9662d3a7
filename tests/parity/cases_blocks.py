"""What runs on the workers to test blocks, heterographs and what managers answer."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import torch

import sar
from tests.support.worker import data_of, default_dtype, numpy, refusal, tensor


class Model(torch.nn.Module):
    """Layers of ``dgl.nn`` one after the other; graphs are blocks, or one graph for all."""

    def __init__(self, layers: list[tuple[str, tuple[Any, ...], dict[str, Any]]]) -> None:
        import dgl.nn

        super().__init__()
        self.layers = torch.nn.ModuleList([getattr(dgl.nn, name)(*a, **k) for name, a, k in layers])

    def forward(self, graphs: list[Any], h: torch.Tensor, weights: list[torch.Tensor] | None = None) -> torch.Tensor:
        for n, layer in enumerate(self.layers):
            h = layer(graphs[n], h) if weights is None else layer(graphs[n], h, edge_weight=weights[n])
            h = h.mean(1) if h.dim() == 3 else h  # heads of attention
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
    with default_dtype(torch.float64):
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
        model = Model(layers).double()
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
    with default_dtype(torch.float64):
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


# ---- what managers answer ------------------------------------------------------


def surface(part: dict[str, Any], triples: list[tuple[str, str, str]]) -> dict[str, Any]:
    """Ids of the ends of the edges of each relation, found in every way there is, on one rank."""
    graph = sar.construct_full_graph(data_of(part))
    found: dict[str, Any] = {"edges": {}, "shards": {}, "required": {}, "columns": {}, "sampling": {}}
    for triple in triples:
        one = graph[triple] if len(triples) > 1 else graph
        ids = one.column_nodes()
        src, dst, eid = one.edges(form="all")
        assert torch.equal(eid, torch.arange(one.num_edges()))
        assert torch.equal(one.in_degrees(), torch.bincount(dst, minlength=one.num_dst_nodes()))
        low = graph._state.nodes[triple[2]].first
        found["edges"][triple] = [ids[src], dst + low]
        by_source = one.all_edges(order="srcdst")
        key = by_source[0] * 1000 + by_source[1]
        assert bool((key.diff() >= 0).all()) and torch.equal(key, (src * 1000 + dst).sort().values)
        shards = one.graph_shards
        assert len(shards) == sar.world_size()
        found["shards"][triple] = [[s.edges[0], s.edges[1], s.src_range, s.tgt_range] for s in shards]
        for shard in shards:
            assert shard.graph.num_edges() == len(shard.edges[0]) == shard.graph_reverse.num_edges()
            assert torch.equal(shard.unique_src_nodes, torch.unique(shard.edges[0]))
        found["required"][triple] = one.indices_required_from_me
        found["columns"][triple] = one.sizes_expected_from_others
        assert [len(torch.unique(s.edges[0])) for s in shards] == one.sizes_expected_from_others
    whole = graph.sampling_graph
    for triple in triples:
        found["sampling"][triple] = list(whole.edges(etype=triple))
        assert whole.num_nodes(triple[0]) == graph.num_nodes_global(triple[0])
    return numpy({key: {":".join(t): v for t, v in of.items()} for key, of in found.items()})


def columns(part: dict[str, Any]) -> str:
    """Columns of several types: views, slices, scopes, copies, and what is refused."""
    graph = sar.construct_full_graph(data_of(part))
    kinds, triples = part["types"]
    rank = sar.rank()
    assert isinstance(graph, sar.HeteroGraphShardManager) and graph.is_block and not graph.is_homogeneous
    assert graph.ntypes == graph.srctypes == graph.dsttypes == graph.ntypes_global == kinds
    assert graph.canonical_etypes == graph.canonical_etypes_global == triples
    assert [graph.get_etype_id(t) for t in triples] == list(range(len(triples)))
    assert [graph.get_ntype_id(k) for k in kinds] == list(range(len(kinds)))
    assert sorted(graph.graph_shard_managers) == list(range(len(triples)))
    assert graph.graph_shard_managers[1].canonical_etypes == [triples[1]]
    ranges = list(zip(part["start"][:-1].tolist(), part["start"][1:].tolist()))
    assert graph.node_ranges == ranges and graph.tgt_node_range == ranges[rank]
    assert torch.equal(graph.input_nodes, torch.arange(ranges[rank][1] - ranges[rank][0]))
    assert torch.equal(graph.seeds, graph.input_nodes) and graph.src_is_tgt and graph.tgt_in_src
    own = np.bincount(part["ntype"], minlength=len(kinds)).tolist()
    for kind, n in zip(kinds, own):
        assert graph.num_nodes(kind) == graph.num_src_nodes(kind) == graph.number_of_dst_nodes(kind) == n
        for view in (graph.nodes, graph.srcnodes, graph.dstnodes):
            assert torch.equal(view(kind), torch.arange(n))
        graph.nodes[kind].data["h"] = torch.full((n, 2), 1.0)
        assert graph.srcnodes[kind].data["h"] is graph.dstnodes[kind].data["h"] is graph.ndata["h"][kind]
    assert set(graph.srcdata["h"]) == set(kinds) and graph.num_nodes() == sum(own)
    graph.edata["w"] = {t: torch.ones(graph.num_edges(t)) for t in ("cites", triples[0])}
    assert set(graph.edata["w"]) == {("paper", "cites", "paper"), triples[0]}
    assert graph.edges["cites"].data["w"] is graph["cites"].edata["w"]
    one = graph["writes"]
    assert one.ntypes == ["author", "paper"] and one.srctypes == ["author"] and one.dsttypes == ["paper"]
    assert one.num_nodes() == graph.num_nodes("author") + graph.num_nodes("paper")
    assert one.get_etype_id("writes") == 0 and one.etypes == ["writes"] and one["writes"].etypes == ["writes"]
    assert one.num_nodes_global() == graph.num_nodes_global()
    with graph.local_scope():
        one.srcdata["only"] = torch.zeros(graph.num_nodes("author"))
        assert list(graph.srcdata["only"]) == ["author"]
        copy = graph.local_var()
        copy.nodes["paper"].data["h"] = torch.zeros(graph.num_nodes("paper"))
        copy.ndata["more"] = {"venue": torch.zeros(graph.num_nodes("venue"))}
        assert graph.ndata["h"]["paper"].dim() == 2 and "more" not in graph.ndata and "only" in copy.srcdata
    assert "only" not in graph.srcdata
    slice_copy = one.local_var()
    slice_copy.dstdata["gone"] = torch.zeros(graph.num_nodes("paper"))
    assert "gone" not in one.dstdata and slice_copy.canonical_etypes == one.canonical_etypes
    refusals: list[tuple[Any, type[Exception], str]] = [
        (lambda: graph["likes"], KeyError, "'likes' is unknown; there are: .*'writes'"),
        (lambda: graph["in"], KeyError, "several relations, give the triple"),
        (lambda: graph.num_nodes("dog"), KeyError, "'dog' is unknown; there are: author, field, paper, venue"),
        (lambda: graph.srcnodes("dog"), KeyError, "'dog' is unknown"),
        (lambda: graph.srcnodes(), KeyError, "several node types, name one of"),
        (lambda: graph.nodes["dog"].data, KeyError, "'dog' is unknown"),
        (lambda: one.srcnodes("paper"), KeyError, "'paper' is unknown; there are: author"),
        (lambda: graph.edges(), KeyError, "several relations, name one of"),
        (lambda: graph.edges(form="x", etype="cites"), ValueError, "'uv', 'eid' or 'all'"),
        (lambda: graph.edges(order="x", etype="cites"), ValueError, "'eid' or 'srcdst'"),
        (lambda: graph.edata.__setitem__("w", {"likes": torch.ones(1)}), KeyError, "'likes' is unknown"),
        (lambda: graph.ndata.__setitem__("w", {"dog": torch.ones(1)}), KeyError, "'dog'"),
        (lambda: graph.num_edges_global("likes"), KeyError, "'likes' is unknown"),
    ]
    import re

    for call, kind_of_error, words in refusals:
        try:
            call()
        except kind_of_error as error:
            assert re.search(words, str(error)), f"{error} has no {words!r}"
        else:
            raise AssertionError(f"not refused: {words}")
    return repr(graph)


def block_rows(part: dict[str, Any], seeds: np.ndarray, keep: bool) -> dict[str, Any]:
    """What a block says of its rows."""
    (block,) = sar.construct_mfgs(data_of(part), torch.from_numpy(seeds), 1, keep)
    own = part["start"][sar.rank()]
    assert block.src_is_tgt is False and block.tgt_in_src is keep
    assert torch.equal(block.seeds, torch.from_numpy(np.sort(seeds)))
    assert torch.equal(block.dstnodes() + own, block.seeds) and torch.equal(block.srcnodes(), block.input_nodes)
    both = torch.unique(torch.cat([block.srcnodes(), block.dstnodes()]))
    assert block.num_nodes() == len(both) and torch.equal(torch.sort(block.nodes()).values, both)
    assert block.num_src_nodes() == len(block.srcnodes()) and block.num_dst_nodes() == len(seeds)
    block.srcdata["h"] = torch.ones(block.num_src_nodes())
    assert "h" not in block.dstdata
    messages = []
    wrong = torch.ones(99)
    for call in (lambda: block.ndata, lambda: block.nodes["_N"], lambda: block.dstdata.__setitem__("h", wrong)):
        messages.append(refusal(call))
    ids = block.column_nodes()
    src, dst = block.edges()
    return numpy(
        {
            "edges": [ids[src], block.dstnodes()[dst] + own],
            "global": [block.num_nodes_global(), block.num_edges_global()],
            "messages": messages,
            "required": block.indices_required_from_me,
        }
    )


def refused_mfgs(part: dict[str, Any], seeds: np.ndarray, n_layers: Any = 1, keep: bool = True) -> list[str]:
    """The error of ``construct_mfgs``, and that the session still works."""
    try:
        sar.construct_mfgs(data_of(part), torch.from_numpy(seeds), n_layers, keep)
    except Exception as error:
        found = [type(error).__name__, str(error)]
    else:
        found = ["none", ""]
    one = torch.ones(1)
    sar.comm.all_reduce(one, "sum")
    assert one.item() == sar.world_size()
    return found


def blocks_again(json_file: str) -> dict[str, Any]:
    """Blocks of several sets of seeds out of one partition: the full graph is made for the first of them, and goes
    with the partition."""

    def structure() -> int:
        return int(sar.memory_stats()["structure"]["live"])

    data = sar.load_dgl_partition_data(json_file, sar.rank(), torch.device("cpu"))
    low, high = data.node_ranges[sar.rank()]
    before = structure()
    first = sar.construct_mfgs(data, torch.arange(low, high), 2)
    kept = data._whole[1]
    second = sar.construct_mfgs(data, torch.arange(low, high), 2)
    same = data._whole[1] is kept
    held = structure() - before
    edges = [[block.num_edges() for block in blocks] for blocks in (first, second)]
    sums = []
    for blocks in (first, second):
        h = torch.arange(low, high, dtype=torch.float64)[:, None][blocks[0].input_nodes]
        for block in blocks:
            block.srcdata["h"] = h
            block.update_all(sar.function.copy_u("h", "m"), sar.function.sum("m", "h"))
            h = block.dstdata["h"]
        sums.append(float(h.sum()))
    del data, kept
    gc.collect()
    return {"same": same, "edges": edges, "sums": sums, "held": held, "after": structure() - before}
