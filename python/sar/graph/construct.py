"""Builds graphs from partitions."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from sar._engine import abi, allocator, blocks, session as _session
from sar.data.loading import lazy_partition_data, load_dgl_partition_data
from sar.data.partition import PartitionData
from sar.data.partition_book import CanonicalEtype
from sar.data.shard_edges import relation_edges, relation_features, triples_of
from sar.distributed.agreement import said_by_all
from sar.errors import ScheduleError
from sar.integrations.dgl.patches.on_import import adapt_layers

from .degrees import agree_on_degrees
from .frames import EdgeFrame, NodeFrame
from .layout import Layout, layout
from .manager import GraphShardManager, HeteroGraphShardManager
from .relation import NativeGraph, Relation
from .state import GraphState
from .totals import classes_of

if TYPE_CHECKING:
    from sar.integrations.types import DistGraph

PRIVATE = frozenset(["_ID", "_TYPE", "inner_node", "inner_edge", "part_id", "reltype"])
"""Columns that DGL's partitions keep for themselves."""

__all__ = ["construct_full_graph", "construct_mfgs", "convert_dist_graph"]


def construct_full_graph(partition_data: PartitionData) -> GraphShardManager:
    """Builds the full graph, of which this worker holds the in-edges of its own nodes. Collective.

    :param partition_data: of :func:`sar.load_dgl_partition_data`, or made by hand; not needed afterwards
    :returns: a :class:`HeteroGraphShardManager` where there are several node types or relations. Edge features, if
        there are any, are columns of its ``edata``
    :raises ValueError: the partition is not this worker's, or the number of partitions is not the number of workers
    :raises RuntimeError: before :func:`sar.initialize_comms`
    """
    whole = _FullGraph(partition_data)
    manager = whole.manager(whole.graph)
    allocator.give_back()  # training does not need the memory that edges were read into
    return manager


def load_graph(path: Union[str, os.PathLike[str]]) -> Tuple[GraphShardManager, Dict[str, Dict[str, Tensor]]]:
    """The graph of this worker's partition, and the columns of own nodes by type and name, which it does not hold.
    Collective.

    :param path: see :func:`sar.load`
    """
    data = load_dgl_partition_data(path, _session.current().rank)
    graph = construct_full_graph(data)
    columns: Dict[str, Dict[str, Tensor]] = {kind: {} for kind in graph.ntypes}
    for full_name, column in data.node_features.items():
        kind, _, name = full_name.rpartition("/")
        if kind in columns and name not in PRIVATE:
            is_mask = name.endswith("_mask") and column.dtype == torch.uint8  # files hold bools as such
            columns[kind][name] = column.bool() if is_mask else column
    graph._state.classes = classes_of(columns)
    return graph, columns


def construct_mfgs(
    partition_data: PartitionData, seed_nodes: Tensor, n_layers: int, keep_seed_nodes: bool = True
) -> List[GraphShardManager]:
    """Message-flow graphs (blocks): for each layer, the edges that the output at the seed nodes depends on. Collective.

    ``blocks[0]`` takes features of its source rows: ``features[blocks[0].input_nodes]``, with several node types
    ``features_of_type[blocks[0].srcnodes(type)]``. The rows that ``blocks[i]`` computes are the source rows of
    ``blocks[i + 1]``, and those of the last block are the seed nodes, ascending: row k is the node
    ``blocks[-1].seeds[k]``. Where they were given in another order, rank 0 warns.

    :param partition_data: of :func:`sar.load_dgl_partition_data`, or made by hand. One from a file keeps the full graph
        that blocks are cut out of, for the next call: let go of it (``del``) when there is none
    :param seed_nodes: own nodes, by their ids over all types (row number + ``node_ranges[rank][0]``), integers ``[n]``,
        each once, in any order. A worker may have none
    :param n_layers: number of blocks, the same on all workers
    :param keep_seed_nodes: destination nodes are the first source nodes too, whether anybody reads them or not, which
        layers need that look at the destination's own features
    :raises ValueError: seed nodes that are not this worker's or there twice, or fewer than 1 layer. The other workers
        raise RuntimeError then
    :raises TypeError: seed nodes that are not integers
    :raises sar.ScheduleError: workers ask for different numbers of layers, or ``keep_seed_nodes``
    """
    whole = _full_graph_of(partition_data)
    error, seeds = None, []
    try:
        seeds = whole.seeds(seed_nodes, n_layers)
    except (TypeError, ValueError) as found:
        error = found
    ascending = error is not None or _ascend(torch.as_tensor(seed_nodes))
    if _agree(n_layers if error is None else 0, keep_seed_nodes, error, ascending):
        warnings.warn(
            "construct_mfgs: the seed nodes given do not ascend, but the rows of the last block do: blocks[-1].seeds "
            "says which node a row is, so compare with labels[blocks[-1].seeds - node_ranges[rank][0]]. Seed nodes "
            "given in ascending order do without this warning",
            stacklevel=2,
        )
    managers = []
    for _ in range(int(n_layers)):
        graph = NativeGraph(blocks.graph_block(whole.graph.handle, seeds, keep_seed_nodes))
        managers.append(whole.manager(graph, keep_seed_nodes))
        seeds = [rows.rows(False) for rows in managers[-1]._state.nodes.values()]
    return managers[::-1]


def convert_dist_graph(dist_graph: DistGraph) -> GraphShardManager:
    """The same graph for full-graph operations, out of a ``dgl.distributed.DistGraph`` that is trained on. Collective.

    Workers are the trainers of DistDGL, one for each partition: :func:`sar.initialize_comms` is called with the
    partition's number as rank. Rows are the nodes ``partition_book.partid2nids(rank, type)``; edge features are
    fetched from the DistGraph when they are first asked for.

    :param dist_graph: the distributed graph
    :raises ValueError: the DistGraph's partition is not this worker's
    """
    part, rank = dist_graph.get_partition_book().partid, _session.current().rank
    if part != rank:
        raise ValueError(
            f"the DistGraph of the worker of rank {rank} holds partition {part}: use one trainer per partition, and "
            "the partition's number (graph.get_partition_book().partid) as rank"
        )
    return construct_full_graph(lazy_partition_data(dist_graph))


def _full_graph_of(data: PartitionData) -> _FullGraph:
    """The full graph of a partition from a file, made once in a session. One made by hand may change between calls."""
    session, cached = _session.current(), getattr(data, "_whole", None)
    if cached is None or cached[0] is not session:
        cached = session, _FullGraph(data)
        if data.stored is not None:
            data._whole = cached
    whole: _FullGraph = cached[1]
    return whole


def _ascend(numbers: Tensor) -> bool:
    return bool((numbers[1:] > numbers[:-1]).all())


def _agree(n_layers: int, keep_seed_nodes: bool, error: Optional[Exception], ascending: bool) -> bool:
    """Turns an error on one worker into an error on all, before any worker waits. Returns whether this worker has to
    warn that seed nodes do not ascend."""
    rank, own = _session.current().rank, {"n_layers": int(n_layers), "keep_seed_nodes": int(bool(keep_seed_nodes))}
    said = said_by_all([own, error is not None, ascending])
    if error is not None:
        raise error
    for other, (_, refused, _) in enumerate(said):
        if refused:
            raise RuntimeError(f"construct_mfgs: the arguments of rank {other} were refused there; its error says why")
    for what, mine in own.items():
        for other, (given, _, _) in enumerate(said):
            if given[what] != mine:
                raise ScheduleError(
                    f"construct_mfgs: {what} is {mine} on rank {rank} and {given[what]} on rank {other}: all workers "
                    "must give the same",
                    other,
                )
    return rank == 0 and not all(ascend for _, _, ascend in said)


class _FullGraph:
    """The full graph of a partition, and what managers of it and of its blocks need."""

    def __init__(self, data: PartitionData) -> None:
        session = _session.current()
        self.rank = session.rank
        session.check_parts("the graph has", len(data.node_ranges))
        stored = data.stored
        if stored is not None and stored.part != session.rank:
            raise ValueError(
                f"partition {stored.part} was loaded by the worker of rank {session.rank}: call "
                "load_dgl_partition_data(file, sar.rank(), device)"
            )
        self.layout: Layout = layout(data)
        self.triples: Sequence[CanonicalEtype]
        if stored is None:
            self.triples = triples_of(data)
            self.graph = _from_edges(data, self.layout, self.triples)
            if not data._edge_features and data._relation_edges is None:
                data._edge_features = relation_features(data, self.triples)
        else:
            # the order of edges is made when an edge tensor is first used: files hold edge features that nobody reads
            self.triples = stored.edge_types
            self.graph = NativeGraph(abi.graph_build(session.handle, stored.handle, 0))
        self.readers = data.edge_readers()
        self.book = data._book
        self.node_keys = {} if stored is None else stored.node_keys()
        self.node_ids = {} if stored is None else stored.node_id_files()
        self.edges_global = {
            triple: abi.graph_relation_info(self.graph.handle, n).num_edges_global
            for n, triple in enumerate(self.triples)
        }

    def manager(self, graph: NativeGraph, keep_seeds: Optional[bool] = None) -> GraphShardManager:
        """The object that scripts see, of the full graph or of a block of it."""
        relations = [Relation(graph, index, triple) for index, triple in enumerate(self.triples)]
        agree_on_degrees(relations)
        if keep_seeds is None:
            nodes = self.layout.node_rows(self.rank)
        else:
            kinds = len(self.layout.kinds)
            sides = (blocks.block_rows(graph.handle, kinds, dst) for dst in (False, True))
            nodes = self.layout.node_rows(self.rank, *sides)
        frames = {t: NodeFrame(t, rows.num_src, rows.num_dst, keep_seeds is None) for t, rows in nodes.items()}
        edge_frames = {r.canonical: EdgeFrame(r.canonical[1], r.num_edges) for r in relations}
        for name, read in self.readers.items():
            triple_text, _, feature = name.rpartition("/")
            for relation in relations:
                if ":".join(relation.canonical) == triple_text or (len(relations) == 1 and not triple_text):
                    reader = read if keep_seeds is None else _of_block(relation, read)
                    edge_frames[relation.canonical].later(feature, reader)
                    if feature == "orig_id":  # what dropout knows edges by, the same for any partitioning
                        relation.edge_keys = reader
        state = GraphState(
            relations,
            frames,
            edge_frames,
            nodes,
            self.layout.part_ranges,
            self.book,
            self.edges_global,
            keep_seeds,
            self.node_keys,
            self.node_ids,
        )
        adapt_layers()
        if len(relations) == 1 and len(nodes) == 1:
            return GraphShardManager(state)
        return HeteroGraphShardManager(state)

    def seeds(self, seed_nodes: Any, n_layers: int) -> List[Tensor]:
        """Checked seeds, ascending, as own rows of each type."""
        if not isinstance(n_layers, int) or n_layers < 1:
            raise ValueError(f"n_layers is {n_layers!r}: give the number of layers of the model, at least 1")
        seeds = torch.as_tensor(seed_nodes).detach().cpu()
        if seeds.numel() == 0:
            seeds = seeds.new_zeros(0, dtype=torch.int64)
        if seeds.dtype == torch.bool or seeds.is_floating_point() or seeds.is_complex():
            raise TypeError(f"seed_nodes is {seeds.dtype}: give ids of nodes, integers, as mask.nonzero() makes them")
        if seeds.dim() != 1:
            raise ValueError(f"seed_nodes has shape {tuple(seeds.shape)}: expected one dimension")
        seeds = seeds.to(torch.int64).sort().values
        twice = seeds[1:][seeds.diff() == 0]
        if len(twice):
            raise ValueError(f"seed_nodes holds node {int(twice[0])} twice: give each node once")
        return self.layout.by_type(seeds, self.rank)


def _of_block(relation: Relation, read: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """An edge feature of the full graph, for the edges of a block."""

    def chosen() -> Tensor:
        whole = read()
        edges = blocks.block_edges(relation.handle, relation.index, relation.num_edges)
        return whole[edges.to(whole.device)]

    return chosen


def _from_edges(data: PartitionData, where: Layout, triples: Sequence[CanonicalEtype]) -> NativeGraph:
    """The graph of edges in memory; those of a relation keep the order in which the shards have them."""
    edges = relation_edges(data, triples)
    session = _session.current()
    if len(triples) == 1 and len(where.kinds) == 1:
        starts = torch.tensor([start for start, _ in data.node_ranges] + [data.node_ranges[-1][1]], dtype=torch.int64)
        return NativeGraph(abi.graph_from_edges(session.handle, starts, *edges[0]))
    return NativeGraph(
        blocks.graph_from_relations(session.handle, where.kinds, triples, where.counts.contiguous(), edges)
    )
