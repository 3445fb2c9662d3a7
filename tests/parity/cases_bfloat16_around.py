"""bfloat16 in what surrounds training: inference, rematerialization, checkpoints, files, sampling, heterographs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dgl
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import sar
from sar import function as fn
from sar._engine import library
from sar.autograd.fused import low_memory, row_blocks
from sar.inference import forward
from sar.inference.model import Built
from tests.parity import cases_pyg
from tests.parity.cases_bfloat16 import HALF, told
from tests.parity.cases_blocks import RGCN
from tests.support.worker import build, data_of, settings

WIDTH = 48


class Net(nn.Module):
    """Three layers, with batch norm and ReLU between them."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        road, _, name = kind.partition(" ")
        home = cases_pyg.pyg_nn() if road == "pyg" else dgl.nn if road == "dgl" else sar.nn
        loops = {} if road == "pyg" else {"allow_zero_in_degree": True}
        make = {
            "gcn": lambda a, b: home.GCNConv(a, b) if road == "pyg" else home.GraphConv(a, b, **loops),
            "sage": lambda a, b: home.SAGEConv(a, b, *([] if road == "pyg" else ["mean"])),
            "gat": lambda a, b: home.GATConv(a, b // 2, **{"heads" if road == "pyg" else "num_heads": 2, **loops}),
        }[name]
        self.pyg = road == "pyg"
        self.layers = nn.ModuleList([make(a, b) for a, b in ((WIDTH, WIDTH), (WIDTH, 2 * WIDTH), (2 * WIDTH, 8))])
        self.norms = nn.ModuleList([nn.BatchNorm1d(WIDTH), nn.BatchNorm1d(2 * WIDTH)])

    def forward(self, graph: Any, x: torch.Tensor) -> torch.Tensor:
        graph = sar.pyg.edge_index(graph) if self.pyg and not isinstance(graph, torch.Tensor) else graph
        for n, layer in enumerate(self.layers):
            x = (layer(x, graph) if self.pyg else layer(graph, x)).flatten(1)
            x = F.relu(self.norms[n](x)) if n < 2 else x
        return x


def net(kind: str) -> Net:
    torch.manual_seed(5)
    return Net(kind)


def inferred(part: dict[str, Any], x: np.ndarray, kinds: list[str]) -> dict[str, Any]:
    """What ``sar infer`` computes of models in bfloat16, and under autocast."""
    graph, found = build(part), {}
    for kind in kinds:
        for mode in ("half", "autocast"):
            model = net(kind).bfloat16() if mode == "half" else net(kind)
            rows = torch.from_numpy(x).to(HALF)
            columns = {"_N/features": low_memory.reread(rows.shape, HALF, rows.clone)}
            options = (graph, columns, ["_N"], "features", None)
            out = forward.run(Built(model, None), *options, autocast=mode == "autocast")
            found[kind, mode] = told(forward.rows_of(out, None)[1])
    return found


def again(part: dict[str, Any], x: np.ndarray, kinds: list[str]) -> list[str]:
    """Models whose layers are computed again in backward, and that are not: what differs."""
    graph, wrong = build(part), []
    rows = torch.from_numpy(x).to(HALF)
    for kind in kinds:
        for mode in ("half", "autocast"):
            found = []
            for kept in ("all", None, HALF):
                model = sar.convert_batchnorm(net(kind).bfloat16() if mode == "half" else net(kind))
                for layer in model.layers if kept != "all" else ():
                    sar.remat(layer, dtype=kept)
                with torch.autocast("cpu", HALF, enabled=mode == "autocast"):
                    out = model(graph, rows)
                out.float().square().sum().backward()
                sar.gather_grads(model)
                found.append([out.detach(), *(p.grad for p in model.parameters())])
            for way, tensors in zip(("None", "bfloat16"), found[1:]):
                # layers of PyG take their own steps then, and inputs that are float32 under autocast are rounded
                exact = kind.startswith("dgl") and (way == "None" or mode == "half")
                least = 0.02 * max(float(a.float().norm()) for a in found[0])  # a bias before a norm gets noise alone
                for n, (a, b) in enumerate(zip(found[0], tensors)):
                    error = float((a - b).float().norm() / a.float().norm().clamp(min=least))
                    if error > 0.1 * (not exact):
                        wrong.append(f"{kind}, {mode}, kept as {way}: tensor {n}: {error}")
    return wrong


def checkpointed(path: str, folder: str, save: bool) -> list[str]:
    """A model in bfloat16, its optimizer, and rows of nodes: saved, or loaded by another number of workers. Returns
    what is not as it was."""
    data = sar.load_dgl_partition_data(path, sar.rank(), torch.device("cpu"))
    graph, ids = sar.construct_full_graph(data), sar.suffix_key_lookup(data.node_features, "orig_id")
    model = net("sar sage").bfloat16()
    learned = nn.ParameterDict({"node": nn.Parameter(torch.zeros(len(ids), 3, dtype=HALF))})
    optimizer = torch.optim.Adam([*model.parameters(), *learned.parameters()], lr=0.1)
    saved = {"model": {"model": model, "learned": learned}, "optimizer": optimizer, "graph": graph}

    def step() -> None:
        x = learned["node"].repeat(1, WIDTH // 3) + torch.sin(ids.float())[:, None].to(HALF)
        loss = model(graph, x).float().square().sum()
        optimizer.zero_grad()
        loss.backward()
        sar.gather_grads(model)
        optimizer.step()

    step()
    if save:
        sar.save_checkpoint(folder, step=1, per_node={"learned.node": "_N"}, **saved)
        np.save(Path(folder, f"rows-{sar.rank()}.npy"), learned["node"].detach().float().numpy())
        np.save(Path(folder, f"ids-{sar.rank()}.npy"), ids.numpy())
        state = {k: v.float().numpy() for k, v in model.state_dict().items()}
        if sar.rank() == 0:
            np.savez(Path(folder, "state.npz"), **state)
        return []
    with torch.no_grad():
        for p in [*model.parameters(), *learned.parameters()]:
            p.add_(1)
    sar.load_checkpoint(folder, **saved)
    whole = np.zeros((graph.num_nodes_global(), 3), np.float32)
    for rows in Path(folder).glob("rows-*.npy"):
        whole[np.load(rows.with_name(rows.name.replace("rows", "ids")))] = np.load(rows)
    wrong = [] if (learned["node"].detach().float().numpy() == whole[ids]).all() else ["rows"]
    for name, value in np.load(Path(folder, "state.npz")).items():
        now = model.state_dict()[name]
        if not (now.float().numpy() == value).all() or now.is_floating_point() and now.dtype != HALF:
            wrong.append(name)
    moments = [v.dtype for s in optimizer.state.values() for k, v in s.items() if k != "step"]
    return wrong if set(moments) == {HALF} else [*wrong, f"moments {set(moments)}"]


def trained(path: str, how: str, kinds: list[str]) -> dict[str, Any]:
    """Losses of two steps under autocast on the features of a partition, and what these are in memory."""
    units = row_blocks.UNIT, row_blocks.MOST
    row_blocks.UNIT, row_blocks.MOST = 2, 4
    found: dict[str, Any] = {}
    try:
        with settings(features=how):
            data = sar.load_dgl_partition_data(path, sar.rank(), torch.device("cpu"))
        graph, x = sar.construct_full_graph(data), sar.suffix_key_lookup(data.node_features, "features")
        found["dtype"], found["mapped"] = str(x.dtype), sar.memory_stats()["mapped"]["live"]
        for kind in kinds:
            model = sar.convert_batchnorm(net(kind))
            optimizer, losses = torch.optim.SGD(model.parameters(), 1e-3), []
            for _ in range(2):
                with torch.autocast("cpu", HALF):
                    out = model(graph, x)
                loss = out.float().square().sum() / graph.num_nodes_global()
                optimizer.zero_grad()
                loss.backward()
                sar.gather_grads(model)
                optimizer.step()
                losses.append(loss.item().hex())
            found[kind] = losses
    finally:
        row_blocks.UNIT, row_blocks.MOST = units
    return found


def sampled(part: dict[str, Any], x: np.ndarray) -> list[str]:
    """Layers on sampled blocks that read features in bfloat16: what is wrong with their results."""
    graph, rows, wrong = build(part), torch.from_numpy(x).to(HALF), []
    sampler = sar.DistNeighborSampler([-1], input_node_features={"x": rows})
    seeds = torch.arange(*graph.tgt_node_range)
    graph.srcdata["x"] = rows
    for mode in ("half", "autocast"):
        layers = [dgl.nn.SAGEConv(x.shape[1], 6, "mean"), dgl.nn.GraphConv(x.shape[1], 6, allow_zero_in_degree=True)]
        layers = [layer.bfloat16() if mode == "half" else layer for layer in layers]
        with torch.no_grad(), torch.autocast("cpu", HALF, enabled=mode == "autocast"):
            whole = [layers[0](graph, rows)]
        for blocks in sar.DataLoader(graph, seeds, sampler, 7, precompute_optimized_batches=False):
            (block,) = blocks
            if block.srcdata["x"].dtype != HALF:
                wrong.append(f"features are {block.srcdata['x'].dtype}")
            at = block.dstdata[dgl.NID] - graph.tgt_node_range[0]
            with torch.autocast("cpu", HALF, enabled=mode == "autocast"):
                out = [layer(block, block.srcdata["x"]) for layer in layers]
            out[0].float().sum().backward()
            near = torch.allclose(out[0].float(), whole[0][at].float(), 2**-7, 2**-6)
            wrong += [] if near and out[0].dtype == whole[0].dtype else [f"{mode}: SAGE on a block"]
    return wrong


def mfgs(part: dict[str, Any], x: np.ndarray) -> dict[str, Any]:
    """SAGE on blocks of the whole neighbourhood, and on the graph: results of the seeds in both."""
    rows, seeds = torch.from_numpy(x).to(HALF), torch.arange(0, len(x), 2)
    first = int(part["start"][sar.rank()])
    block = sar.construct_mfgs(data_of(part), first + seeds, 1)[0]
    found: dict[str, Any] = {}
    for mode in ("half", "autocast"):
        torch.manual_seed(3)
        layer = dgl.nn.SAGEConv(x.shape[1], 6, "mean")
        layer = layer.bfloat16() if mode == "half" else layer
        results = []
        for graph, given in ((block, rows[block.input_nodes]), (build(part), rows)):
            with torch.autocast("cpu", HALF, enabled=mode == "autocast"):
                out = layer(graph, given)
            results.append(told(out if graph is block else out[seeds]))
        found[mode] = results
    return found


def rgcn(source: Any, sizes: list[int], x: dict[str, Any], grad: dict[str, Any], mode: str) -> dict[str, Any]:
    """Convolutions of all relations of a heterograph, or of that of DGL: results, gradients of rows and parameters."""
    alone = not isinstance(source, dict)
    graph = source if alone else sar.construct_full_graph(data_of(source["part"], source["features"]))
    torch.manual_seed(0)
    model = RGCN(graph.ntypes, graph.canonical_etypes, sizes, True)
    weights = graph.edges["cites"].data["w"] if alone else graph.edges[("paper", "cites", "paper")].data["w"]
    fed = {k: torch.from_numpy(v).float().bfloat16().float() for k, v in x.items()}
    weights = weights.float()
    if mode == "half":
        model, fed, weights = model.bfloat16(), {k: v.to(HALF) for k, v in fed.items()}, weights.to(HALF)
    fed = {k: v.requires_grad_() for k, v in fed.items()}
    with torch.autocast("cpu", HALF, enabled=mode == "autocast"):
        out = model([graph] * 2, fed, [weights] * 2)
    sum((out[k].float() * torch.from_numpy(grad[k]).float()).sum() for k in out).backward()
    if not alone:
        sar.gather_grads(model)
    return {
        "out": {k: told(v) for k, v in out.items()},
        "rows": {k: told(v.grad) for k, v in fed.items()},
        "parameters": {k: told(p.grad) for k, p in model.named_parameters() if p.grad is not None},
    }


def streamed(part: dict[str, Any], x: np.ndarray) -> dict[str, Any]:
    """Functions in Python whose backward streams rows of bfloat16 again; sums and gradients of rows."""
    graph, rows = build(part), torch.from_numpy(x).to(HALF).requires_grad_()
    before = sum(link["sent_payload"] for link in sar.stats()["links"])
    with settings(block_bytes=512):
        graph.srcdata["x"] = rows
        graph.update_all(lambda edges: {"m": torch.erf(edges.src["x"]) * edges.src["x"]}, fn.sum("m", "y"))
        y = graph.dstdata["y"]
        middle = sum(link["sent_payload"] for link in sar.stats()["links"])
        y.float().square().sum().backward()
    return {"y": told(y), "x": told(rows.grad), "forward": middle - before}


def by_policy(part: dict[str, Any], x: np.ndarray, policy: str) -> dict[str, Any]:
    """A sum and an attention of large tensors, their gradients, and the most that the engine computed with."""
    sar.set_allocator(policy)
    graph, rows = build(part), torch.from_numpy(x).to(HALF).requires_grad_()
    torch.manual_seed(0)
    layer = sar.nn.GATConv(x.shape[1], 16, 4, allow_zero_in_degree=True).bfloat16()
    sar.sync_params(layer)
    library.call("sar_reset_peaks")
    before = sar.memory_stats()["scratch"]["live"]
    graph.srcdata["x"] = rows
    graph.update_all(fn.copy_u("x", "m"), fn.sum("m", "y"))
    y = graph.dstdata.pop("y")
    z = layer(graph, y)
    z.float().square().sum().backward()
    assert rows.grad is not None
    scratch = sar.memory_stats()["scratch"]["peak"] - before
    return {"y": told(y), "z": told(z), "x": told(rows.grad), "scratch": scratch}
