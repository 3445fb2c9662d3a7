"""Attention over the in-edges of every node, fused, against DGL's chain of operations, in one run and one table.

The same code runs on DGL's graph and on ours, on one thread: logits of every edge (additive: ``u_add_v`` and
``leaky_relu``; dot: ``u_dot_v``; cosine: ``u_dot_v`` of rows of length 1, times a learnt number; gatv2: ``u_add_v``,
``leaky_relu``, times a vector, summed), ``edge_softmax``,
``update_all`` of ``u_mul_e`` and ``sum``. Beside them stands our own weighted sum alone (``u_mul_e`` of given weights).
The bench graph, float32, nodes in the same order for both. Times are processor time, the least over turns; peers take
turns, and a ratio is that of the two least times. Every result and gradient is compared first.

    python bench/attention.py [--turns 5] [--forms additive,dot,cosine,gatv2] [--shapes 1x64,4x32,8x16]
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from typing import Any, Callable, Dict, List, Tuple

os.environ.update(OMP_NUM_THREADS="1", SAR_NUM_THREADS="1")

import dgl
import dgl.function as fn
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

import common
import sar
from sar.cli.output import table
from sar.distributed.network import free_port

FORMS = ("additive", "dot", "cosine", "gatv2")


def attention(graph: Any, form: str, x: Dict[str, Tensor]) -> Tensor:
    """One attention layer's sparse half, as a layer of DGL writes it."""
    with graph.local_scope():
        graph.srcdata.update({"ft": x["ft"], "l": x["l"]})
        graph.dstdata["r"] = x["r"]
        if form in ("dot", "cosine"):
            graph.apply_edges(fn.u_dot_v("l", "r", "e"))
            logits = graph.edata.pop("e")
            logits = logits * x["beta"] if form == "cosine" else logits / x["ft"].shape[-1] ** 0.5
        else:
            graph.apply_edges(fn.u_add_v("l", "r", "e"))
            logits = leaky_relu(graph.edata.pop("e"), 0.2)
            if form == "gatv2":
                logits = (logits * x["a"]).sum(dim=-1, keepdim=True)
        graph.edata["a"] = dgl.ops.edge_softmax(graph, logits)
        graph.update_all(fn.u_mul_e("ft", "a", "m"), fn.sum("m", "out"))
        return graph.dstdata["out"]


def weighted(graph: Any, x: Dict[str, Tensor], weight: Tensor) -> Tensor:
    """A sum with a given weight per edge and head."""
    with graph.local_scope():
        graph.srcdata["ft"], graph.edata["w"] = x["ft"], weight
        graph.update_all(fn.u_mul_e("ft", "w", "m"), fn.sum("m", "out"))
        return graph.dstdata["out"]


def inputs(form: str, nodes: int, heads: int, width: int) -> Dict[str, Tensor]:
    torch.manual_seed(1)
    narrow = (nodes, heads, 1) if form == "additive" else (nodes, heads, width)
    x = {"ft": torch.randn(nodes, heads, width), "l": torch.randn(narrow), "r": torch.randn(narrow)}
    if form == "gatv2":
        x["l"] = x["ft"]  # as in the layer, where both are the projected sources
        x["a"] = torch.randn(1, heads, width)
    if form == "cosine":
        x["l"] = torch.nn.functional.normalize(x["ft"], dim=-1)
        x["r"] = x["l"]  # as in the layer, which compares nodes by the same rows
        x["beta"] = torch.ones(1)
    return x


def leaves(x: Dict[str, Tensor]) -> Dict[str, Tensor]:
    """The same tensors, to be differentiated; one that serves twice stays one."""
    made = {id(t): t.clone().requires_grad_() for t in x.values()}
    return {name: made[id(t)] for name, t in x.items()}


def step(graph: Any, form: str, x: Dict[str, Tensor], grad: Tensor) -> List[Any]:
    fresh = leaves(x)
    out = attention(graph, form, fresh)
    out.backward(grad)
    return [out.detach(), *(t.grad for t in fresh.values())]


def cpu(call: Callable[[], Any]) -> float:
    start = time.process_time()
    result = call()
    taken = time.process_time() - start
    del result
    return taken


def measure(graphs: Tuple[Any, Any], form: str, heads: int, width: int, turns: int) -> Dict[str, Any]:
    theirs, ours = graphs
    x = inputs(form, theirs.num_nodes(), heads, width)
    grad = torch.randn_like(x["ft"])
    for got, want in zip(step(ours, form, x, grad), step(theirs, form, x, grad)):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
    del got, want
    weight = torch.rand(theirs.num_edges(), heads, 1)

    def without(graph: Any) -> Tensor:
        with torch.no_grad():
            return attention(graph, form, x)

    calls = {
        "sar_forward": lambda: without(ours),
        "dgl_forward": lambda: without(theirs),
        "sar_both": lambda: step(ours, form, x, grad),
        "dgl_both": lambda: step(theirs, form, x, grad),
        "sar_weighted": lambda: weighted(ours, x, weight),
    }
    times: Dict[str, List[float]] = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            gc.collect()
            times[name].append(cpu(call))
    least = {name: min(taken) for name, taken in times.items()}
    return {
        "form": form,
        "heads": heads,
        "width": width,
        **least,
        "forward_to_dgl": least["sar_forward"] / least["dgl_forward"],
        "both_to_dgl": least["sar_both"] / least["dgl_both"],
        "forward_to_weighted": least["sar_forward"] / least["sar_weighted"],
        "all": times,
    }


def load() -> Tuple[Any, Any]:
    """The bench graph for DGL and for one worker of ours, nodes in the same order."""
    sar.initialize_comms(0, 1, "127.0.0.1", "sar", master_port_number=free_port())
    torch.set_num_threads(1)
    sar.set_num_threads(1)
    path = common.parts(1, "metis")
    data = sar.load_dgl_partition_data(path, 0, torch.device("cpu"))
    new = sar.suffix_key_lookup(data.node_features, "orig_id").argsort()
    with np.load(common.bench_graph()) as arrays:
        src, dst = new[torch.from_numpy(arrays["edge_index"]).long()]
    ours = sar.construct_full_graph(data)
    theirs = dgl.graph((src.int(), dst.int()), num_nodes=len(new))
    theirs.create_formats_()
    return theirs, ours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--shapes", default="1x64,4x32,8x16")
    given = parser.parse_args()
    machine = common.machine()
    print(common.machine_line(machine), flush=True)
    graphs = load()
    edges = graphs[0].num_edges()
    results = []
    for form in given.forms.split(","):
        for heads, width in (tuple(map(int, shape.split("x"))) for shape in given.shapes.split(",")):
            row = measure(graphs, form, heads, width, given.turns)
            results.append(row)
            print(
                f"{form} {heads}x{width}: forward {1e9 * row['sar_forward'] / edges:.0f} ns an edge, "
                f"{row['forward_to_dgl']:.2f} x DGL, {row['forward_to_weighted']:.2f} x the weighted sum; "
                f"with backward {1e9 * row['sar_both'] / edges:.0f} ns, {row['both_to_dgl']:.2f} x DGL",
                flush=True,
            )
    head = ["form", "heads x width", "forward ms", "DGL ms", "weighted sum ms", "with backward ms", "DGL ms"]
    head += ["forward / DGL", "with backward / DGL", "forward / weighted sum"]
    names = ("sar_forward", "dgl_forward", "sar_weighted", "sar_both", "dgl_both")
    rows = [
        [r["form"], f"{r['heads']}x{r['width']}"]
        + [f"{1e3 * r[k]:.0f}" for k in names]
        + [f"{r[k]:.2f}" for k in ("forward_to_dgl", "both_to_dgl", "forward_to_weighted")]
        for r in results
    ]
    print("Processor time of one thread, the least over turns; the same code on both graphs.")
    print(table(head, rows))
    common.save("attention", {"machine": machine, "edges": edges, "rows": results})
    sar.comm.shutdown()


if __name__ == "__main__":
    main()
