"""Methods of graphs as scripts call them: the same lines on DGL's whole graph and on the workers' graphs.

Each operation takes a graph, columns of nodes ``x [n, 4]``, of edges ``w [e, 1]``, a mask of edges and a layer, and
gives results with a row for each node or each edge.
"""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import torch

from sar.graph.edge_tensor.tensor import EdgeTensor
from tests.support.worker import build, numpy, refusal, tensor

WIDTH = 4
Results = dict[str, torch.Tensor]


def summed(g: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A weighted sum over in-edges."""
    import dgl.function as fn

    with g.local_scope():
        g.srcdata["h"], g.edata["w"] = x, w
        g.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "out"))
        return g.dstdata["out"]


def removed(g: Any, x: torch.Tensor, w: torch.Tensor, mask: torch.Tensor, layer: Any) -> Results:
    """A clone without some edges; the graph itself keeps them."""
    import dgl.function as fn

    before = g.num_edges()
    g.ndata["x"], g.edata["w"] = x, w
    other = g.clone()
    other.remove_edges(torch.nonzero(mask).view(-1), store_ids=True)
    other.ndata["y"] = x * 2
    assert g.num_edges() == before and "y" not in g.ndata and other.num_edges() == int((~mask).sum())
    assert other.edata["_ID"].tolist() == torch.nonzero(~mask).view(-1).tolist()
    other.update_all(fn.u_mul_e("y", "w", "m"), fn.mean("m", "out"))
    assert "out" not in g.ndata
    return {"nodes": other.ndata["out"], "degrees": other.in_degrees(), "out_degrees": other.out_degrees()}


def removed_by_function(g: Any, x: torch.Tensor, w: torch.Tensor, mask: torch.Tensor, layer: Any) -> Results:
    import dgl

    g.edata["w"] = w
    other = dgl.remove_self_loop(dgl.remove_edges(g, torch.nonzero(mask).view(-1)))
    return {"nodes": layer(other, summed(other, x, other.edata["w"]))}


def sent_built_in(g: Any, x: torch.Tensor, w: torch.Tensor, mask: torch.Tensor, layer: Any) -> Results:
    """Into a new column, into one that is there, and along no edge at all."""
    import dgl.function as fn

    g.ndata["x"], g.edata["w"] = x, w
    g.ndata["old"] = x + 1
    edges = torch.nonzero(mask).view(-1)
    for name in ("sum", "mean", "max"):
        g.send_and_recv(edges, fn.u_mul_e("x", "w", "m"), getattr(fn, name)("m", name))
    g.send_and_recv(edges, fn.copy_u("x", "m"), fn.sum("m", "old"), lambda nodes: {"old": nodes.data["old"] * 3})
    g.send_and_recv(edges[:0], fn.copy_u("x", "m"), fn.sum("m", "none"))
    assert "none" not in g.ndata
    return {name: g.ndata[name] for name in ("sum", "mean", "max", "old")}


def sent_by_functions(g: Any, x: torch.Tensor, w: torch.Tensor, mask: torch.Tensor, layer: Any) -> Results:
    g.ndata["x"], g.edata["w"] = x, w
    g.send_and_recv(
        torch.nonzero(mask).view(-1),
        lambda edges: {"m": edges.src["x"] * edges.data["w"] + edges.dst["x"]},
        lambda nodes: {"out": nodes.mailbox["m"].tanh().sum(1)},
        lambda nodes: {"out": nodes.data["out"] + nodes.data["x"], "also": nodes.data["x"] * 2},
    )
    return {"out": g.ndata["out"], "also": g.ndata["also"]}


def filtered(g: Any, x: torch.Tensor, w: torch.Tensor, mask: torch.Tensor, layer: Any) -> Results:
    g.ndata["x"], g.edata["w"] = x, w
    mine = torch.nonzero(mask).view(-1)
    some = torch.arange(0, g.num_nodes(), 3)
    found = {
        "nodes": (g.num_nodes(), g.filter_nodes(lambda nodes: (nodes.data["x"] > 0).all(1))),
        "half": (g.num_nodes(), g.filter_nodes(lambda nodes: nodes.data["x"][:, 0] > 0)),
        "edges": (len(mask), g.filter_edges(lambda edges: edges.src["x"][:, 0] * edges.data["w"][:, 0] > 0)),
        "some_edges": (len(mask), g.filter_edges(lambda edges: edges.dst["x"][:, 1] > 0, mine)),
    }
    assert set(g.filter_nodes(lambda nodes: nodes.data["x"][:, 0] > 0, some).tolist()) == (
        set(found["half"][1].tolist()) & set(some.tolist())
    )
    return {name: torch.zeros(n).index_fill(0, ids, 1.0) for name, (n, ids) in found.items()}


def reversed_layer(g: Any, x: torch.Tensor, w: torch.Tensor, mask: torch.Tensor, layer: Any) -> Results:
    import dgl

    return {"nodes": layer(dgl.reverse(g), x).flatten(1)}


def reversed_attention(g: Any, x: torch.Tensor, w: torch.Tensor, mask: torch.Tensor, layer: Any) -> Results:
    """The attention of every edge, and an edge layer."""
    import dgl

    nodes, edges, attention = layer(dgl.reverse(g), x, w.expand(-1, 3), get_attention=True)
    return {"nodes": nodes.flatten(1), "edges": edges.flatten(1), "attention": attention.flatten(1)}


def reversed_messages(g: Any, x: torch.Tensor, w: torch.Tensor, mask: torch.Tensor, layer: Any) -> Results:
    """Messages and edge columns of every kind on the reversed graph."""
    import dgl
    import dgl.function as fn

    r = dgl.reverse(g)
    r.ndata["x"], r.edata["w"] = x, w
    found: Results = {}
    for name in ("copy_u", "u_mul_e", "u_add_v", "e_sub_v", "u_dot_v"):
        for reducer in ("sum", "mean"):
            fields = ["w" if side == "e" else "x" for side in name.split("_") if side in ("u", "v", "e")]
            r.update_all(getattr(fn, name)(*fields, "m"), getattr(fn, reducer)("m", "o"))
            found[f"{name}_{reducer}"] = r.dstdata["o"]
    r.update_all(lambda e: {"m": e.src["x"] * e.data["w"] - e.dst["x"].exp()}, fn.sum("m", "o"))
    found["function"] = r.dstdata["o"]
    r.apply_edges(fn.u_sub_v("x", "x", "d"))
    found["of_edges"] = r.edata["d"] * 1
    r.apply_edges(lambda e: {"p": (e.src["x"] * 2 + e.dst["x"]).tanh()})
    found["of_edges_by_function"] = r.edata["p"]
    r.apply_edges(fn.v_add_e("x", "w", "q"), torch.nonzero(mask).view(-1))
    found["of_some_edges"] = r.edata["q"]
    for norm_by in ("dst", "src"):
        found[f"softmax_{norm_by}"] = dgl.ops.edge_softmax(r, w * 3, norm_by=norm_by) * 1
    found["degrees"], found["out_degrees"] = r.in_degrees(), r.out_degrees()
    return found


def transformed(g: Any, x: torch.Tensor, w: torch.Tensor, mask: torch.Tensor, layer: Any) -> Results:
    """Transforms of DGL that need no more than messages."""
    import dgl

    g.ndata["x"] = x
    found: Results = {}
    for kind in ("raw", "rw", "gcn", "ppr"):
        made = dgl.SIGNDiffusion(k=2, in_feat_name="x", out_feat_name=kind, diffuse_op=kind, alpha=0.2)(g)
        found[f"{kind}_1"], found[f"{kind}_2"] = made.ndata[f"{kind}_1"], made.ndata[f"{kind}_2"]
    found["norm"] = dgl.GCNNorm()(g).edata["w"]
    return found


SUMS = [f"u_{op}_e_{by}" for op in ("add", "sub", "mul", "div") for by in ("sum", "max", "min", "mean")]
SUMS += [f"copy_{side}_{by}" for side in "ue" for by in ("sum", "max", "min", "mean")]
OF_EDGES = [f"{a}_{op}_{b}" for a in "uve" for b in "uve" if a != b for op in ("add", "sub", "mul", "div", "dot")]
OF_EDGES += ["copy_u", "copy_v", "copy_e"]


def operators(g: Any, x: torch.Tensor, w: torch.Tensor, mask: torch.Tensor, layer: Any) -> Results:
    """Every function that ``dgl.ops`` generates, and what they are made of, with shapes that broadcast. Extrema of
    nodes without messages are infinite in DGL, and their gradient goes astray there: they are replaced."""
    import dgl
    from dgl import ops

    w = torch.cat([w, w.sin(), w.cos(), w * w], 1)
    given = {"u": x, "v": x.flip(1), "e": w}
    found: Results = {}
    assert {*SUMS, *OF_EDGES} <= set(dir(ops))
    for name in SUMS + OF_EDGES:
        values = [given[side] for side in name.split("_") if side in ("u", "v", "e")]
        if "div" in name:
            values[1] = values[1].exp()
        found[name] = getattr(ops, name)(g, *values)
        if name in SUMS and name.endswith(("max", "min")):
            found[f"{name} without messages"] = found[name].isinf()
            found[name] = torch.where(found[name].isinf(), 0, found[name])
    heads = x.view(-1, 2, 2)
    found["heads"] = ops.u_mul_e_sum(g, heads, w[:, :2].unsqueeze(-1))
    found["one weight"] = ops.u_mul_e_sum(g, heads, w[:, :1])
    found["wide edges"] = ops.gspmm(g, "add", "mean", x, w.unsqueeze(1).expand(-1, 3, -1))
    found["gsddmm"] = ops.gsddmm(g, "sub", heads, x[:, :2], "v", "u")
    attention = ops.edge_softmax(g, ops.u_dot_v(g, heads, heads * 0.3))
    found["attention"] = ops.u_mul_e_sum(g, heads, attention)
    lazy = [ops.u_add_v(g, x, x), ops.copy_v(g, x), attention]
    assert all(isinstance(t, EdgeTensor) != isinstance(g, dgl.DGLGraph) for t in lazy)
    return found


def reversed_operators(g: Any, x: torch.Tensor, w: torch.Tensor, mask: torch.Tensor, layer: Any) -> Results:
    import dgl

    r = dgl.reverse(g)
    given = {"u": x, "v": x.flip(1), "e": w.expand(-1, WIDTH)}
    names = [name for name in OF_EDGES if "div" not in name]
    return {name: getattr(dgl.ops, name)(r, *(given[s] for s in name.split("_") if s in given)) for name in names}


OPERATIONS: dict[str, tuple[Callable[..., Results], tuple[str, dict[str, Any]] | None]] = {
    "removed": (removed, None),
    "removed_by_function": (removed_by_function, ("GraphConv", {"in_feats": WIDTH, "out_feats": 3})),
    "sent_built_in": (sent_built_in, None),
    "sent_by_functions": (sent_by_functions, None),
    "filtered": (filtered, None),
    "reversed_gat": (reversed_layer, ("GATConv", {"in_feats": WIDTH, "out_feats": 2, "num_heads": 3})),
    "reversed_gatv2": (reversed_layer, ("GATv2Conv", {"in_feats": WIDTH, "out_feats": 2, "num_heads": 3})),
    "reversed_dotgat": (reversed_layer, ("DotGatConv", {"in_feats": WIDTH, "out_feats": 2, "num_heads": 3})),
    "reversed_agnn": (reversed_layer, ("AGNNConv", {})),
    "reversed_gcn": (reversed_layer, ("GraphConv", {"in_feats": WIDTH, "out_feats": 3})),
    "reversed_sage": (reversed_layer, ("SAGEConv", {"in_feats": WIDTH, "out_feats": 3, "aggregator_type": "mean"})),
    "reversed_egat": (
        reversed_attention,
        (
            "EGATConv",
            {
                "in_node_feats": WIDTH,
                "in_edge_feats": 3,
                "out_node_feats": 2,
                "out_edge_feats": 2,
                "num_heads": 2,
            },
        ),
    ),
    "reversed_messages": (reversed_messages, None),
    "transformed": (transformed, None),
    "operators": (operators, None),
    "operators_in_single_precision": (operators, None),
    "reversed_operators": (reversed_operators, None),
}


def made(name: str) -> Any:
    """The layer of an operation, with the same parameters wherever it is made. Double precision."""
    import dgl.nn

    given = OPERATIONS[name][1]
    if given is None:
        return torch.nn.Identity()
    torch.manual_seed(7)
    layer = getattr(dgl.nn, given[0])(**given[1]).double()
    if hasattr(layer, "_allow_zero_in_degree"):
        layer._allow_zero_in_degree = True
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer


def outcome(g: Any, name: str, x: np.ndarray, w: np.ndarray, mask: np.ndarray) -> dict[str, Any]:
    """Results of an operation, and the gradients of the sum of their sines."""
    rows, weights = tensor(x, True), tensor(w, True)
    layer = made(name)
    results = OPERATIONS[name][0](g, rows, weights, torch.from_numpy(mask), layer)
    total = sum((v.sin().sum() for v in results.values() if v.requires_grad), torch.zeros((), dtype=torch.float64))
    if total.requires_grad:
        total.backward()
    assert rows is not None and weights is not None
    grads = {"x": rows.grad, "w": weights.grad, **{k: p.grad for k, p in layer.named_parameters()}}
    return {"results": numpy(results), "grads": numpy(grads)}


def run(part: dict[str, Any], name: str, x: np.ndarray, w: np.ndarray, mask: np.ndarray) -> dict[str, Any]:
    return outcome(build(part), name, x, w, mask)


def copies(part: dict[str, Any], x: np.ndarray, w: np.ndarray) -> dict[str, Any]:
    """Sums over copies of a graph, of which the original is gone; what pickling says."""
    import copy
    import gc
    import io
    import pickle

    from torch_geometric.data import Data

    import sar
    from sar.autograd.program import compiled

    graph, columns, weights = build(part), tensor(x), tensor(w)
    graph.ndata["h"], graph.edata["w"] = columns.clone(), weights
    data = Data(edge_index=sar.pyg.edge_index(graph), num_nodes=graph.num_nodes())
    others = {
        "deep": copy.deepcopy(graph),
        "shallow": copy.copy(graph),
        "relation": copy.deepcopy(graph[graph.canonical_etypes[0]]),
        "data": copy.deepcopy(data).edge_index.graph,
        "ends": copy.deepcopy(data.edge_index[0]).edges.graph,
    }
    graph.ndata["h"].add_(1)
    said = []
    for thing in (graph, data, data.edge_index, data.edge_index[1], graph._relations[0], compiled(_PROGRAM)):
        for save in (pickle.dumps, lambda t: torch.save(t, io.BytesIO())):
            said.append(refusal(save, thing))
    changed = float((others["deep"].ndata["h"] - columns).abs().max()) if len(columns) else 0.0
    del graph, data
    gc.collect()
    sums = {name: summed(g, columns, weights) for name, g in others.items()}
    return {"sums": numpy(sums), "said": said, "changed": changed}


_PROGRAM = '{"operands": [{"side": "u", "shape": [1]}], "code": [], "result": 0, "reduce": "max"}'
