"""What runs on the workers to test transforms of DGL and what graphs refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import sar
from tests.support.worker import build, data_of, numpy, refusal


def drop_edges(part: dict[str, Any], keys: np.ndarray, x: np.ndarray, seed: int) -> dict[str, Any]:
    """``dgl.DropEdge`` twice by one seed and once by another: which edges stay, and a layer with its gradient."""
    import dgl

    graph: Any = build(part)
    graph._relations[0].edge_keys = torch.from_numpy(keys.copy())
    graph.edata["place"] = torch.arange(graph.num_edges())
    found: dict[str, Any] = {}
    for name, number in (("first", seed), ("again", seed), ("second", seed + 1)):
        torch.manual_seed(number + 100 * sar.rank())
        found[name] = dgl.DropEdge(0.4)(graph).edata["place"]
    for p, left in ((0.0, graph.num_edges()), (1.0, 0)):
        assert dgl.DropEdge(p)(graph).num_edges() == left
    assert graph.num_edges() == len(keys)
    torch.manual_seed(seed + 100 * sar.rank())
    dropped = dgl.DropEdge(0.4)(graph)
    feature = torch.from_numpy(x.copy()).requires_grad_()
    torch.manual_seed(5)
    layer = dgl.nn.GATConv(x.shape[1], 2, 2, attn_drop=0.5, allow_zero_in_degree=True).double()
    torch.manual_seed(seed + 7)
    out = layer(dropped, feature)
    out.square().sum().backward()
    dropped.edata["a"] = torch.ones(dropped.num_edges(), 1, dtype=torch.float64)
    torch.manual_seed(seed + 7)
    mask = torch.nn.functional.dropout(sar.edge_softmax(dropped, dropped.edata["a"]), 0.5) * 1 != 0
    return numpy({**found, "out": out, "x": feature.grad, "mask": mask})


def drop_edges_and_loops(part: dict[str, Any], keys: np.ndarray, seed: int) -> Any:
    """Which edges stay of a graph with self loops, which are behind the others; and the same of a slice."""
    import dgl

    graph: Any = build(part)
    graph._relations[0].edge_keys = torch.from_numpy(keys.copy())
    found = []
    for looped in (dgl.add_self_loop(graph), graph["_E"].add_self_loop()):
        looped.edata["place"] = torch.arange(looped.num_edges())
        torch.manual_seed(seed + 100 * sar.rank())
        found.append(dgl.DropEdge(0.4)(looped).edata["place"])
    return numpy(found)


def drop_typed_edges(part: dict[str, Any], features: dict[str, np.ndarray], wide: dict[str, np.ndarray]) -> Any:
    """Of a graph of several relations: what is left of each, and what a message over all of them gives."""
    import dgl
    import dgl.function as fn

    graph: Any = sar.construct_full_graph(data_of(part, features))
    torch.manual_seed(3)
    dropped = dgl.DropEdge(0.3)(graph)
    dropped[("paper", "cites", "paper")].remove_edges([])  # a slice has edges of its own
    one = dropped.clone()
    one.remove_edges(torch.arange(one.num_edges("cites")) % 2 == 0, etype="cites")
    found = []
    for g in (graph, dropped, one):
        with g.local_scope():
            g.srcdata["h"] = {kind: torch.from_numpy(v) for kind, v in wide.items()}
            g.multi_update_all({t: (fn.copy_u("h", "m"), fn.sum("m", "o")) for t in g.canonical_etypes}, "sum")
            out = g.dstdata["o"]
        left = {t: g[t].edata["w"] for t in g.canonical_etypes}
        found.append(numpy({"left": left, "out": out, "global": {t: g.num_edges_global(t) for t in left}}))
    return found


def masked_columns(part: dict[str, Any]) -> list[float]:
    """``dgl.FeatMask``: which columns are left."""
    import dgl

    graph: Any = build(part)
    torch.manual_seed(sar.rank())
    graph.ndata["x"] = torch.ones(graph.num_nodes(), 40)
    masked = dgl.FeatMask(p=0.5, node_feat_names=["x"])(graph)
    assert torch.equal(masked.ndata["x"], masked.ndata["x"][:1].expand(graph.num_nodes(), 40))
    return masked.ndata["x"][:1].flatten().tolist()


def refusals(part: dict[str, Any]) -> dict[str, str]:
    """What each call says that cannot work."""
    import dgl
    import dgl.function as fn

    graph: Any = build(part)
    graph.ndata["x"] = torch.ones(graph.num_nodes(), 2)
    calls = {
        "adj": lambda: graph.adj(),
        "adj_external": lambda: graph.adj_external(scipy_fmt="csr"),
        "lap_pe": lambda: dgl.lap_pe(graph, 2, padding=True),
        "LapPE": lambda: dgl.LapPE(2, padding=True)(graph),
        "random_walk_pe": lambda: dgl.random_walk_pe(graph, 2),
        "svd_pe": lambda: dgl.svd_pe(graph, 1, padding=True),
        "khop_graph": lambda: dgl.khop_graph(graph, 2),
        "reverse_adj": lambda: dgl.reverse(graph).adj(),
        "reverse_twice": lambda: dgl.reverse(dgl.reverse(graph)),
        "add_edges": lambda: graph.add_edges([0], [0]),
        "RowFeatNormalizer": lambda: dgl.RowFeatNormalizer(subtract_min=True, node_feat_names=["x"])(graph),
        "DropNode": lambda: dgl.DropNode()(graph),
        "AddEdge": lambda: dgl.AddEdge(1.0)(graph),
        "ends": lambda: graph.apply_edges(lambda e: {}, edges=(torch.tensor([0]), torch.tensor([0]))),
        "max_on_reversed": lambda: dgl.reverse(graph).update_all(fn.copy_u("x", "m"), fn.max("m", "o")),
        "AddReverse": lambda: dgl.AddReverse()(graph),
        "NodeShuffle": lambda: dgl.NodeShuffle()(graph),
        "PPR": lambda: dgl.PPR()(graph),
        "GDC": lambda: dgl.GDC([0.3, 0.2])(graph),
        "HeatKernel": lambda: dgl.HeatKernel()(graph),
        "ToLevi": lambda: dgl.ToLevi()(graph),
        "LineGraph": lambda: dgl.LineGraph()(graph),
        "ToSimple": lambda: dgl.ToSimple()(graph),
        "KHopGraph": lambda: dgl.KHopGraph(2)(graph),
    }
    return {name: refusal(call) for name, call in calls.items()}


def blocks(part: dict[str, Any], x: np.ndarray, seeds: np.ndarray) -> dict[str, Any]:
    """``send_and_recv`` on a block, and what blocks refuse."""
    import dgl.function as fn

    (block,) = sar.construct_mfgs(data_of(part), torch.from_numpy(seeds), 1, keep_seed_nodes=False)
    rows = torch.from_numpy(x)[block.input_nodes].requires_grad_()
    block.srcdata["x"] = rows
    edges = torch.nonzero(torch.arange(block.num_edges()) % 2 == 0).view(-1)
    block.send_and_recv(edges, fn.copy_u("x", "m"), fn.sum("m", "o"))
    out = block.dstdata["o"]
    block.edata["w"] = (torch.arange(block.num_edges()) % 2 == 0).double()
    block.update_all(fn.u_mul_e("x", "w", "m"), fn.sum("m", "o2"))
    (grad,) = torch.autograd.grad(out.square().sum(), rows)
    (same,) = torch.autograd.grad(block.dstdata["o2"].square().sum(), rows)
    said = [
        refusal(call)
        for call in (
            lambda: block.remove_edges([0]),
            lambda: block.filter_nodes(lambda nodes: nodes.data["x"][:, 0] > 0),
        )
    ]
    return numpy({"out": out, "same": block.dstdata["o2"], "grad": grad, "same_grad": same, "said": said})


def refused_by_name(part: dict[str, Any], names: list[str], kinds: list[str]) -> dict[str, str]:
    """What each function and each transform of DGL says."""
    import dgl

    graph: Any = build(part)
    graph.ndata["x"], graph.edata["w"] = torch.ones(graph.num_nodes(), 2), torch.ones(graph.num_edges())
    some, tags = torch.arange(2), torch.zeros(graph.num_nodes()).long()
    given: dict[str, tuple[Any, ...]] = {
        **dict.fromkeys(["khop_adj", "khop_graph", "random_walk_pe", "laplacian_pe", "lap_pe", "svd_pe"], (2,)),
        **dict.fromkeys(["metis_partition", "metis_partition_assignment", "add_nodes"], (2,)),
        **dict.fromkeys(["node_subgraph", "edge_subgraph", "in_subgraph", "out_subgraph", "remove_nodes"], (some,)),
        **dict.fromkeys(["khop_in_subgraph", "khop_out_subgraph"], (some, 1)),
        **dict.fromkeys(["sort_csr_by_tag", "sort_csc_by_tag", "node_homophily", "edge_homophily"], (tags,)),
        **dict.fromkeys(["adjusted_homophily", "node_label_informativeness", "linkx_homophily"], (tags,)),
        **dict.fromkeys(["edge_label_informativeness"], (tags,)),
        **dict.fromkeys(["bfs_nodes_generator", "bfs_edges_generator", "dfs_edges_generator"], (0,)),
        **dict.fromkeys(["dfs_labeled_edges_generator", "slice_batch"], (0,)),
        **dict.fromkeys(["prop_nodes_bfs", "prop_edges_dfs"], (0, None, None)),
        **dict.fromkeys(["prop_nodes", "prop_edges"], ([some],)),
        "prop_nodes_topo": (None, None),
        "topk_nodes": ("x", 1),
        "topk_edges": ("w", 1),
        "add_edges": (some, some),
        "double_radius_node_labeling": (0, 1),
        "metapath_reachable_graph": (["_E"],),
        "node_type_subgraph": (["_N"],),
        "edge_type_subgraph": (["_E"],),
        "partition_graph_with_halo": (tags, 1),
        "adj_product_graph": (graph, "w"),
        "to_heterogeneous": (["_N"], ["_E"]),
    }
    made: dict[str, tuple[Any, ...]] = {
        **dict.fromkeys(["KHopGraph", "LapPE", "LaplacianPE", "RandomWalkPE", "SVDPE"], (2,)),
        "AddMetaPaths": ({"a": [("_N", "_E", "_N")]},),
        "GDC": ([0.5, 0.5],),
    }
    calls: dict[str, Any] = {
        "merge": lambda: dgl.merge([graph, graph]),
        "batch": lambda: dgl.batch([graph, graph]),
        "adj_sum_graph": lambda: dgl.adj_sum_graph([graph, graph], "w"),
        "save_graphs": lambda: dgl.save_graphs("never.dgl", [graph]),
    }
    for name in [name for name in names if name not in calls]:
        function = getattr(dgl, name, None) or getattr(dgl.transforms, name)
        calls[name] = lambda function=function, name=name: function(graph, *given.get(name, ()))
    for name in [name for name in kinds if hasattr(dgl.transforms, name)]:
        kind = getattr(dgl.transforms, name)
        calls[name] = lambda kind=kind, name=name: kind(*made.get(name, ()))(graph)
    said = {}
    for name, call in calls.items():
        try:
            call()
            said[name] = "nothing"
        except sar.WholeGraphError as error:
            said[name] = str(error)
        except Exception as error:
            said[name] = repr(error)
    return said


def functions_that_run(
    x: np.ndarray, w: np.ndarray, graph: Any = None, part: dict[str, Any] | None = None
) -> dict[str, np.ndarray]:
    """Results of functions and transforms of DGL, by ``name of nodes``, ``of edges`` or ``of the graph``."""
    import dgl

    graph = build(part) if part is not None else graph
    graph.ndata["x"] = torch.from_numpy(x.copy())  # RowFeatNormalizer changes it
    graph.ndata["feat"] = torch.from_numpy(x).float()  # DGL's SIGNDiffusion multiplies by single precision
    graph.edata["w"] = torch.from_numpy(w)
    found: dict[str, Any] = {"norm_by_dst of edges": dgl.norm_by_dst(graph)}
    for op in ("sum", "mean", "max"):
        found[f"{op}_nodes of the graph"] = getattr(dgl, f"{op}_nodes")(graph, "x")
        found[f"{op}_edges of the graph"] = getattr(dgl, f"{op}_edges")(graph, "w")
        found[f"readout_nodes {op} of the graph"] = dgl.readout_nodes(graph, "x", op=op)
        found[f"readout_edges {op} of the graph"] = dgl.readout_edges(graph, "w", op=op)
    found["softmax_nodes of nodes"] = dgl.softmax_nodes(graph, "x")
    found["softmax_edges of edges"] = dgl.softmax_edges(graph, "w")
    one = torch.tensor([[1.0, 2.0]])
    found["broadcast_nodes of nodes"] = dgl.broadcast_nodes(graph, one)
    found["broadcast_edges of edges"] = dgl.broadcast_edges(graph, one)
    found["RowFeatNormalizer of nodes"] = dgl.RowFeatNormalizer(node_feat_names=["x"])(graph).ndata["x"]
    looped = dgl.add_self_loop(graph, ["w"], "mean")
    found["add_self_loop of nodes"] = looped.edata["w"][graph.num_edges() :]
    found["GCNNorm of edges"] = dgl.GCNNorm("gcn")(graph).edata["gcn"]
    for diffuse in ("raw", "rw", "gcn", "ppr"):
        with graph.local_scope():
            done = dgl.SIGNDiffusion(2, diffuse_op=diffuse)(graph)
            for hop in (1, 2):
                found[f"SIGNDiffusion {diffuse} {hop} of nodes"] = done.ndata[f"out_feat_{hop}"]
    looped = dgl.Compose([dgl.RemoveSelfLoop(), dgl.AddSelfLoop()])(graph)
    found["degrees with loops of nodes"] = looped.in_degrees()
    reversed_graph = dgl.reverse(graph)
    found["degrees of reverse of nodes"] = reversed_graph.in_degrees()
    return {name: value.detach().numpy().copy() for name, value in found.items()}
