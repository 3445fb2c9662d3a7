"""Sampled blocks as DGL's."""

from __future__ import annotations

from typing import Any

import dgl

from ..core.sampling_engine import SampledLayer


def sampled_block(layer: SampledLayer) -> Any:
    """A ``DGLBlock`` that shares the memory of ``layer``, with ids of nodes and, where they are known, of edges."""
    data = {
        relation: ("csc", (edges.indptr, edges.indices, edges.indices[:0])) for relation, edges in layer.edges.items()
    }
    block = dgl.create_block(
        data,
        num_src_nodes={ntype: len(ids) for ntype, ids in layer.nodes.items()},
        num_dst_nodes=dict(layer.num_dst),
    )
    for ntype, ids in layer.nodes.items():
        block.srcnodes[ntype].data[dgl.NID] = ids
        block.dstnodes[ntype].data[dgl.NID] = ids[: layer.num_dst[ntype]]
    for relation, edges in layer.edges.items():
        columns = block.edges[relation].data
        if len(edges.ids) == len(edges.indices):
            columns[dgl.EID] = edges.ids
        for name, rows in edges.data.items():
            columns[name] = rows
    return block
