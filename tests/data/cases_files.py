"""Graphs of partitions on disk, on a worker."""

from __future__ import annotations

from typing import Any

import torch

import sar
from tests.support.worker import numpy, refusal


def from_files(json_file: str, feature: str) -> dict[str, Any]:
    """Weighted mean over the graph of a partition directory, with gradients."""
    data = sar.load_dgl_partition_data(json_file, sar.rank(), torch.device("cpu"))
    graph = sar.construct_full_graph(data).to(torch.device("cpu"))
    x = sar.suffix_key_lookup(data.node_features, feature).requires_grad_()
    with graph.local_scope():
        weight = graph.edata["w"].requires_grad_()
        graph.srcdata["h"] = x
        graph.update_all(sar.function.u_mul_e("h", "w", "m"), sar.function.mean("m", "out"))
        out = graph.dstdata["out"]
    out.sum().backward()
    counts = [graph.num_nodes(), graph.num_nodes_global(), graph.num_edges(), graph.num_edges_global()]
    return {
        "out": numpy(out),
        "x": numpy(x.grad),
        "w": numpy(weight.grad),
        "counts": [*counts, type(graph).__name__],
        "out_degrees": numpy(graph.out_degrees()),
    }


def hetero_from_files(json_file: str) -> dict[str, Any]:
    """Aggregation over each relation of a heterograph."""
    fn = sar.function
    data = sar.load_dgl_partition_data(json_file, sar.rank())
    graph = sar.construct_full_graph(data)
    papers = sar.suffix_key_lookup(data.node_features, "features")
    cites = graph["cites"]
    with graph.local_scope():
        cites.srcdata["h"] = papers
        cites.edata["v"] = cites.edata["w"].view(-1, 1)
        cites.update_all(fn.u_mul_e("h", "v", "m"), fn.sum("m", "out"))
        out = cites.dstdata["out"]
        graph.srcdata["one"] = {t: torch.ones(graph.num_nodes(t), 1, dtype=torch.float64) for t in graph.ntypes}
        graph.update_all(fn.copy_u("one", "m"), fn.sum("m", "writes"), etype="writes")
        graph.update_all(fn.copy_u("one", "m"), fn.sum("m", "reviewed"), etype=("paper", "reviewed", "author"))
        unnamed = refusal(lambda: graph.update_all(lambda edges: {"m": edges.src["one"]}, fn.sum("m", "x")))
        return {
            "cites": numpy(out),
            "writes": numpy(graph.dstdata["writes"]["paper"]),
            "reviewed": float(graph.dstdata["reviewed"]["author"].sum()),
            "class": type(graph).__name__,
            "types": [graph.ntypes, graph.canonical_etypes],
            "global": [
                graph.num_nodes_global(),
                graph.num_nodes_global("paper"),
                graph.num_edges_global(),
                graph.num_edges_global("cites"),
            ],
            "unnamed": unnamed,
            "columns": list(graph.ndata["one"]),
        }


def files_are_closed(json_file: str) -> list[Any]:
    """Whether the partition's memory is given back once the data is gone, though the graph lives on."""
    import gc
    import weakref

    data = sar.load_dgl_partition_data(json_file, sar.rank())
    graph = sar.construct_full_graph(data)
    stored = weakref.ref(data.stored)
    del data
    gc.collect()
    book = graph.partition_book
    return [stored() is None, len(book.partid2nids(sar.rank(), "_N"))]


def wrong_partition(json_file: str) -> str:
    data = sar.load_dgl_partition_data(json_file, 1 - sar.rank())
    return refusal(lambda: sar.construct_full_graph(data))


def load_message(json_file: str) -> str:
    return refusal(lambda: sar.load_dgl_partition_data(json_file, 0))
