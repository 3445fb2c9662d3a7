"""Converts sampled blocks to DGL's."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple

import dgl
import torch
from dgl import graph_index, heterograph_index
from dgl.frame import Frame
from dgl.heterograph import DGLBlock
from dgl.utils import toindex

from sar.data.partition_book import CanonicalEtype
from sar.data.records import SampledLayer

_FORMATS = ["coo", "csr", "csc"]


class _Types(NamedTuple):
    """Types of a block in the order of the graph, and the graph that they make."""

    nodes: List[str]
    relations: List[CanonicalEtype]
    metagraph: Any


@lru_cache(maxsize=64)
def _types(ntypes: Tuple[str, ...], relations: Tuple[CanonicalEtype, ...]) -> _Types:
    nodes, ordered = list(ntypes), list(relations)
    src = [nodes.index(source) for source, _, _ in ordered]
    dst = [nodes.index(target) + len(nodes) for _, _, target in ordered]
    return _Types(nodes, ordered, graph_index.from_coo(2 * len(nodes), src, dst, True))


def sampled_block(
    layer: SampledLayer,
    src: Mapping[Tuple[str, str], torch.Tensor],
    dst: Mapping[Tuple[str, str], torch.Tensor],
) -> Any:
    """A ``DGLBlock`` that shares the memory of ``layer``, with ids of nodes and, where they are known, of edges.

    This skips work of ``dgl.create_block``, which searches every array for its largest id, and builds a graph for each
    relation and one for the types, for each block.

    :param src: ``{(name, node type): rows}``, columns of the source nodes
    :param dst: columns of the destination nodes
    """
    types = _types(tuple(layer.nodes), tuple(layer.edges))
    relations = []
    edge_frames = []
    for relation in types.relations:
        edges = layer.edges[relation]
        sizes = len(layer.nodes[relation[0]]), layer.num_dst[relation[2]]
        # DGL takes none for these numbers too, but then refuses every message that reads edge data
        order = torch.arange(len(edges.indices))
        relations.append(
            heterograph_index.create_unitgraph_from_csr(
                2, *sizes, edges.indptr, edges.indices, order, _FORMATS, transpose=True
            )
        )
        columns = dict(edges.data)
        if len(edges.ids) == len(edges.indices):
            columns[dgl.EID] = edges.ids
        edge_frames.append(Frame(columns) if columns else None)
    counts = [len(layer.nodes[ntype]) for ntype in types.nodes] + [layer.num_dst[ntype] for ntype in types.nodes]
    index = heterograph_index.create_heterograph_from_relations(types.metagraph, relations, toindex(counts, "int64"))
    sources: List[Dict[str, Any]] = [{dgl.NID: layer.nodes[ntype]} for ntype in types.nodes]
    targets: List[Dict[str, Any]] = [{dgl.NID: layer.nodes[t][: layer.num_dst[t]]} for t in types.nodes]
    for given, frames in ((src, sources), (dst, targets)):
        for (name, ntype), rows in given.items():
            frames[types.nodes.index(ntype)][name] = rows
    return DGLBlock(
        index,
        (types.nodes, types.nodes),
        [name for _, name, _ in types.relations],
        node_frames=[Frame(columns) for columns in sources + targets],
        edge_frames=edge_frames,
    )
