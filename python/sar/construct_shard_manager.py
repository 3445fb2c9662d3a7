"""Making graph objects out of partitions."""

from __future__ import annotations

from typing import Dict, List, Tuple

import torch

from . import _abi, _session
from ._book import CanonicalEtype
from ._partition import TYPE_KEY, PartitionData
from .core.degrees import agree_on_degrees
from .core.frame import EdgeFrame, NodeFrame
from .core.graphshard import GraphShardManager, HeteroGraphShardManager, Rows
from .core.relation import NativeGraph, Relation

__all__ = ["construct_full_graph"]


def construct_full_graph(partition_data: PartitionData) -> GraphShardManager:
    """The whole graph, of which this worker holds the in-edges of its own nodes. Collective.

    :param partition_data: of :func:`sar.load_dgl_partition_data`; not needed afterwards. Data made by hand works too
        where there is one relation
    :returns: a :class:`HeteroGraphShardManager` where there are several node types or relations. Edge features, if
        there are any, are columns of its ``edata``
    :raises ValueError: the partition is not this worker's, or the number of partitions is not the number of workers
    :raises RuntimeError: before :func:`sar.initialize_comms`
    """
    session = _session.current()
    ranges = list(partition_data.node_ranges)
    if len(ranges) != session.world:
        raise ValueError(
            f"the graph has {len(ranges)} partitions, but {session.world} workers take part: start {len(ranges)} "
            f"workers, or partition the graph into {session.world}"
        )
    stored = partition_data.stored
    if stored is not None and stored.part != session.rank:
        raise ValueError(
            f"partition {stored.part} was loaded by the worker of rank {session.rank}: call "
            "load_dgl_partition_data(file, sar.rank(), device)"
        )
    if stored is None:
        graph, triples = _from_edges(partition_data)
    else:
        # the order of edges is made when an edge tensor is first used: files hold edge features that nobody reads
        graph = NativeGraph(_abi.graph_build(session.handle, stored.handle, 0))
        triples = stored.edge_types
    relations = [Relation(graph, index, triple) for index, triple in enumerate(triples)]
    agree_on_degrees(relations)
    counts = _node_counts(partition_data, relations)
    frames = {t: NodeFrame(t, own, own, square=True) for t, (own, _) in counts.items()}
    edge_frames = {r.canonical: EdgeFrame(r.canonical[1], r.num_edges) for r in relations}
    for name, read in partition_data.edge_readers().items():
        triple_text, _, feature = name.rpartition("/")
        for triple, frame in edge_frames.items():
            if ":".join(triple) == triple_text or (len(edge_frames) == 1 and not triple_text):
                frame.later(feature, read)
    book = partition_data._book
    rows = Rows(relations, frames, edge_frames, counts, ranges, book)
    if len(relations) == 1 and len(counts) == 1:
        return GraphShardManager(rows)
    return HeteroGraphShardManager(rows)


def _node_counts(data: PartitionData, relations: List[Relation]) -> Dict[str, Tuple[int, int]]:
    """Own nodes and all nodes of each type."""
    if data.stored is not None:
        return {
            t: (runs[data.stored.part][1] - runs[data.stored.part][0], sum(end - start for start, end in runs))
            for t, runs in data.stored.node_ranges.items()
        }
    info = relations[0].info
    return {data.node_type_names[0]: (info.num_dst, info.num_dst_global)}


def _from_edges(data: PartitionData) -> Tuple[NativeGraph, List[CanonicalEtype]]:
    """A graph of one relation from edges in memory, in the order of the shards."""
    if len(data.node_type_names) != 1 or len(data.edge_type_names) != 1:
        raise NotImplementedError(
            "graphs of several types are built from partition files: write them with dgl.distributed.partition_graph "
            "and load them with sar.load_dgl_partition_data"
        )
    starts = torch.tensor([start for start, _ in data.node_ranges] + [data.node_ranges[-1][1]], dtype=torch.int64)
    shards = data.all_shard_edges
    src = torch.cat([shard.edges[0] for shard in shards]).to("cpu", torch.int64)
    dst = torch.cat([shard.edges[1] for shard in shards]).to("cpu", torch.int64)
    if not data._edge_features:
        names = [name for name in shards[0].edge_features if name != TYPE_KEY]
        data._edge_features = {name: torch.cat([s.edge_features[name] for s in shards]) for name in names}
    handle = _abi.graph_from_edges(_session.current().handle, starts, src, dst)
    relation = data.edge_type_names[0]
    node_type = data.node_type_names[0]
    triple = relation if isinstance(relation, tuple) else (node_type, str(relation), node_type)
    return NativeGraph(handle), [triple]
