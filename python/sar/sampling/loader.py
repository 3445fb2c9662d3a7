"""Neighbourhood sampler and data loader."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Deque,
    Iterator,
    List,
    Mapping,
    Optional,
    Protocol,
    Sequence,
    Tuple,
    Union,
)

import torch
from torch import Tensor

from sar._engine import session as _session
from sar.data.partition_book import CanonicalEtype, canonical
from sar.graph.manager import GraphShardManager

from . import batches
from .columns import Features, columns_of, readable, sign
from .engine import EngineBatch, EngineSampler
from .seeds import Seeds, ids_of, own_numbers, rows_by_type

__all__ = ["DataLoader", "DistNeighborSampler", "NodeCollator", "minibatch_partition"]

if TYPE_CHECKING:
    from sar.integrations.types import Block, DGLGraph


Fanout = Union[int, Mapping[str, int], Mapping[CanonicalEtype, int]]


class Sampler(Protocol):
    """Makes the blocks of a batch."""

    def sample(self, full_graph_manager: GraphShardManager, seeds: Tensor) -> List[Block]: ...


AHEAD = 2
"""Batches that the engine prepares while one is used."""


class DistNeighborSampler:
    """Samples the neighbourhood of seed nodes, layer by layer, in a graph split over all workers.

    :param fanouts: in-edges to draw per destination node, for each layer, the first one reads the input; -1 takes all.
        An int counts for every relation; ``{relation: int}`` gives one for each
    :param prob: name of a column of ``edata`` with one number >= 0 per edge: edges are drawn in proportion to it, those
        with 0 never. Relations without the column draw uniformly
    :param replace: draw with replacement; a node with in-edges then gets exactly its fan-out
    :param copy_edata: blocks carry the columns of ``edata``, and ``dgl.EID``: ids of edges, counted per relation over
        all workers. Without it the engine need not know the order of edges (8 bytes an edge less)
    :param input_node_features: ``{name: tensor}``, one row per own node, any dtype: ``srcdata`` of the first block.
        ``{name: {node type: tensor}}`` where there are several types
    :param output_node_features: the same for ``dstdata`` of the last block: labels, usually
    :param output_device: where blocks go; CPU by default
    :param feature_cache_bytes: memory for ``input_node_features`` of other workers' nodes, which then travel once: the
        nodes that batches meet first keep their place. The features must not be changed in place then. 0: no cache
    :param use_hybrid_partitioning: kept for scripts that set it. Blocks are drawn from the same distribution without
    :param batch_comm_overlap: kept for scripts that set it: features are always fetched in the background
    :raises ValueError: no fan-outs, or one below -1; a negative cache
    """

    def __init__(
        self,
        fanouts: Sequence[Fanout],
        prob: Optional[str] = None,
        replace: bool = False,
        copy_edata: bool = True,
        input_node_features: Optional[Features] = None,
        output_node_features: Optional[Features] = None,
        output_device: Optional[torch.device] = None,
        use_hybrid_partitioning: bool = False,
        batch_comm_overlap: bool = False,
        feature_cache_bytes: int = 0,
    ) -> None:
        self.fanouts = list(fanouts)
        if not self.fanouts:
            raise ValueError("fanouts is empty: give one fan-out for each layer")
        self.prob = prob
        self.replace = bool(replace)
        self.copy_edata = copy_edata
        self.input_node_features = input_node_features
        self.output_node_features = output_node_features
        self.output_device = output_device
        self.feature_cache_bytes = int(feature_cache_bytes)
        if self.feature_cache_bytes < 0:
            raise ValueError(f"feature_cache_bytes is {feature_cache_bytes}: give a number of bytes, or 0 for no cache")
        self._engine: Optional[Tuple[Any, EngineSampler]] = None

    def sample(self, full_graph_manager: GraphShardManager, seeds: Seeds) -> List[Block]:
        """The blocks of one batch, as many as there are fan-outs. Collective, also for workers without seeds.

        :param full_graph_manager: of :func:`sar.construct_full_graph`
        :param seeds: own nodes; see :class:`DataLoader`. Repeated ones count once
        :returns: DGL blocks, the first one reads the input: ``srcdata`` and ``dstdata`` with ``dgl.NID``, ids of nodes
            (counted per type where there are several), and the features asked for
        :raises ImportError: there is no DGL
        """
        numbers = own_numbers(full_graph_manager, seeds)
        key = int(torch.randint(1 << 62, ()))
        return self._finish(self._submit(full_graph_manager, numbers, key))

    def _submit(self, graph: GraphShardManager, numbers: Tensor, key: int) -> EngineBatch:
        return self.engine(graph).submit(rows_by_type(graph, numbers), key)

    def _finish(self, batch: EngineBatch) -> List[Block]:
        """The blocks of a batch, when it is there."""
        try:
            from sar.integrations.dgl import blocks as dgl_blocks
        except ImportError as error:
            raise ImportError(f"sampled blocks are DGL's, and DGL cannot be imported ({error}): install dgl") from error
        batch.wait()
        last = batch.sampler.layers - 1
        blocks = [
            dgl_blocks.sampled_block(
                batch.layer(number),
                batch.features(outputs=False) if number == 0 else {},
                batch.features(outputs=True) if number == last else {},
            )
            for number in range(last + 1)
        ]
        if self.output_device is not None and torch.device(self.output_device).type != "cpu":
            blocks = [block.to(self.output_device) for block in blocks]
        return blocks

    def engine(self, graph: GraphShardManager) -> EngineSampler:
        """The engine's sampler for a graph and the features as they are now. Collective the first time."""
        if len(graph._relations) != len(graph._state.relations):
            raise ValueError("sampling needs the whole graph, with all its relations; this is one relation of it")
        _session.current().follow_config()
        native = graph._relations[0].graph
        given = columns_of(graph, self.input_node_features, self.output_node_features, self.copy_edata, self.prob)
        cache = self.feature_cache_bytes
        signature = (native.handle, self.replace, self.copy_edata, cache, str(self.fanouts), tuple(map(sign, given)))
        if self._engine is None or self._engine[0] != signature:
            relations = graph.canonical_etypes
            columns = [readable(column) for column in given]
            fanouts = torch.tensor([self._per_relation(f, relations) for f in self.fanouts], dtype=torch.int64)
            made = EngineSampler(
                native, graph.ntypes, relations, fanouts, self.replace, bool(self.copy_edata), cache, columns
            )
            self._engine = (signature, made)
        return self._engine[1]

    def _per_relation(self, fanout: Fanout, relations: Sequence[CanonicalEtype]) -> List[int]:
        if not isinstance(fanout, Mapping):
            counts = [int(fanout)] * len(relations)
        else:
            named = {canonical(etype, relations): int(n) for etype, n in fanout.items()}
            missing = [r for r in relations if r not in named]
            if missing:
                raise ValueError(f"fanouts give no number for the relations {missing}; 0 draws none")
            counts = [named[r] for r in relations]
        for n in counts:
            if n < -1:
                raise ValueError(f"a fan-out is {n}: it must be -1, for every in-edge, or a number of edges")
        return counts


# ---- batches ---------------------------------------------------------------


def minibatch_partition(
    sampling_graph: Union[GraphShardManager, DGLGraph],
    train_nodes: Tensor,
    batch_size: int,
    optimized_batches_cache: Optional[str] = None,
) -> List[Tensor]:
    """Splits seed nodes into batches of the same size with few edges between them, so that the nodes of a batch have
    neighbours in common and its blocks are smaller. Collective.

    :param sampling_graph: a graph manager, or a DGL graph in which ``train_nodes`` are node ids
    :param train_nodes: own seed nodes; repeated ones count once
    :param batch_size: at most so many seeds in a batch on the worker that has most
    :param optimized_batches_cache: prefix of files (``prefix_rank_batches``) that are read if they hold batches of
        these seeds, and written otherwise
    :returns: the same number of batches on every worker, int64 ids each; where a worker has fewer seeds than batches
        they are repeated, where it has none they are empty
    """
    seeds = ids_of(train_nodes)
    if isinstance(sampling_graph, GraphShardManager):
        own_numbers(sampling_graph, seeds)
        first = sampling_graph.tgt_node_range[0]
        edges = partial(batches.local_edges, sampling_graph)
        return batches.precomputed(seeds, _positive(batch_size), optimized_batches_cache, edges, first)
    ends = [end.to("cpu", torch.int64) for end in sampling_graph.edges()]
    near, place = torch.unique(torch.cat([seeds, *ends]), return_inverse=True)
    n = len(seeds)
    src, dst = place[n:].chunk(2)
    made = batches.precomputed(place[:n], _positive(batch_size), optimized_batches_cache, lambda: (src, dst, len(near)))
    return [near[batch] for batch in made]


def _positive(batch_size: int) -> int:
    if int(batch_size) < 1:
        raise ValueError(f"batch_size is {batch_size}: it must be at least 1")
    return int(batch_size)


class NodeCollator:
    """Makes blocks of seeds, as the ``collate_fn`` of a loader does.

    :param full_graph_manager: of :func:`sar.construct_full_graph`
    :param graph_sampler: its ``sample`` makes the blocks
    """

    def __init__(self, full_graph_manager: GraphShardManager, graph_sampler: Sampler) -> None:
        self.full_graph_manager = full_graph_manager
        self.graph_sampler = graph_sampler

    def collate(self, indices_parts: Sequence[Union[int, Tensor]]) -> List[Block]:
        """Blocks of the union of ``indices_parts``: ids, or tensors of ids. Collective."""
        parts = [torch.as_tensor(part).reshape(-1) for part in indices_parts]
        seeds = torch.unique(torch.cat(parts)) if parts else torch.empty(0, dtype=torch.int64)
        blocks: List[Block] = self.graph_sampler.sample(self.full_graph_manager, seeds)
        return blocks


class DataLoader:
    """Batches of blocks, one after the other; the next ones are sampled and fetched in the background. Collective:
    every worker makes it, and iterates over it, at the same points of the script. Every worker yields the same number
    of batches, so that each may call :func:`sar.gather_grads`; one with fewer seeds repeats some.

    Draws follow from torch's random seed, the seeds and the partitioning.

    :param full_graph_manager: of :func:`sar.construct_full_graph`
    :param seed_nodes: own nodes, ids as in ``node_ranges``; ``{node type: ids of the type}`` where there are several
    :param graph_sampler: a :class:`DistNeighborSampler`, or an object whose ``sample(graph, seeds)`` makes blocks
    :param batch_size: seeds in a batch of this worker
    :param drop_last: leave out a last batch that is not full. Precomputed batches have one size and are all kept
    :param shuffle: another order in each epoch: of seeds, or of precomputed batches
    :param precompute_optimized_batches: batches with few edges between them (:func:`minibatch_partition`)
    :param optimized_batches_cache: prefix of the files that keep them
    :param num_workers: kept for scripts that set it: the engine prepares so many batches ahead, at least 2
    :param batch_comm_overlap: kept for scripts that set it
    :raises ValueError: a seed that this worker does not own; a batch size below 1
    """

    def __init__(
        self,
        full_graph_manager: GraphShardManager,
        seed_nodes: Seeds,
        graph_sampler: Sampler,
        batch_size: int = 1,
        drop_last: bool = False,
        shuffle: bool = False,
        precompute_optimized_batches: bool = True,
        optimized_batches_cache: Optional[str] = None,
        num_workers: int = 0,
        batch_comm_overlap: bool = False,
    ) -> None:
        self.graph = full_graph_manager
        self.graph_sampler = graph_sampler
        self.batch_size = _positive(batch_size)
        self.drop_last = bool(drop_last)
        self.shuffle = bool(shuffle)
        self.num_workers = int(num_workers)
        self._seeds = own_numbers(self.graph, seed_nodes)
        self._fixed: Optional[List[Tensor]] = None
        if precompute_optimized_batches:
            first = self.graph.tgt_node_range[0]
            made = minibatch_partition(self.graph, self._seeds + first, self.batch_size, optimized_batches_cache)
            self._fixed = [batch - first for batch in made]
            self._count = batches.Count(len(made), 0)
        else:
            self._count = batches.agree(len(self._seeds), self.batch_size, self.drop_last)

    def __len__(self) -> int:
        """Batches of an epoch, the same on every worker."""
        return self._count.batches

    def __iter__(self) -> Iterator[List[Block]]:
        if self._fixed is not None:
            order = torch.randperm(len(self._fixed)) if self.shuffle else torch.arange(len(self._fixed))
            plan = [self._fixed[i] for i in order.tolist()]
        else:
            places = batches.in_sequence(len(self._seeds), self.batch_size, self._count, self.shuffle)
            plan = [self._seeds[p] for p in places]
        key = int(torch.randint(1 << 62, ()))
        sampler = self.graph_sampler
        if not isinstance(sampler, DistNeighborSampler) or type(sampler).sample is not DistNeighborSampler.sample:
            for seeds in plan:
                yield sampler.sample(self.graph, torch.unique(seeds) + self.graph.tgt_node_range[0])
            return
        ahead: Deque[EngineBatch] = deque()
        for number, seeds in enumerate(plan):
            ahead.append(sampler._submit(self.graph, seeds, key + number))
            if len(ahead) > max(AHEAD, self.num_workers):
                yield sampler._finish(ahead.popleft())
        while ahead:
            yield sampler._finish(ahead.popleft())
