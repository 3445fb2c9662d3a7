"""Training on sampled neighbourhoods: a sampler, a loader of batches, and batches with few edges between them."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any, Deque, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
import torch
from torch import Tensor

from .. import _abi_sample as abi
from .. import _session
from .._book import CanonicalEtype, canonical
from . import sampling_batches as batches
from .graphshard import GraphShardManager
from .sampling_engine import Column, EngineBatch, EngineSampler

__all__ = ["DataLoader", "DistNeighborSampler", "NodeCollator", "minibatch_partition"]

Fanout = Union[int, Mapping[Any, int]]
Seeds = Union[Tensor, Mapping[str, Tensor]]
Features = Mapping[str, Union[Tensor, Mapping[str, Tensor]]]

AHEAD = 2
"""Batches that the engine prepares while one is used."""

UNCOPIED = ("orig_id",)
"""Edge columns that blocks do not carry: what ``sar partition`` notes for itself."""


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

    def sample(self, full_graph_manager: GraphShardManager, seeds: Seeds) -> List[Any]:
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

    def _finish(self, batch: EngineBatch) -> List[Any]:
        """The blocks of a batch, when it is there."""
        try:
            from ..interop import dgl_blocks
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
        if len(graph._relations) != len(graph._rows.relations):
            raise ValueError("sampling needs the whole graph, with all its relations; this is one relation of it")
        _session.current().follow_window()
        native = graph._relations[0].graph
        given = self._columns(graph)
        cache = self.feature_cache_bytes
        signature = (native.handle, self.replace, self.copy_edata, cache, str(self.fanouts), tuple(map(_sign, given)))
        if self._engine is None or self._engine[0] != signature:
            relations = graph.canonical_etypes
            columns = [_readable(column) for column in given]
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

    def _columns(self, graph: GraphShardManager) -> List[Column]:
        columns = []
        for what, features in ((abi.INPUT, self.input_node_features), (abi.OUTPUT, self.output_node_features)):
            for name, value in (features or {}).items():
                for ntype, rows in _by_type(graph, name, value).items():
                    columns.append(Column(what, graph.ntypes.index(ntype), name, rows))
        frames = [graph._rows.edge_frames[r] for r in graph.canonical_etypes]
        if self.copy_edata:
            for kind, frame in enumerate(frames):
                for name in sorted(set(frame) - set(UNCOPIED)):
                    columns.append(Column(abi.EDGE, kind, name, frame[name]))
        if self.prob is not None:
            if not any(self.prob in frame for frame in frames):
                known = sorted({name for frame in frames for name in frame})
                raise KeyError(f"prob names the edge column {self.prob!r}; there are: {', '.join(known) or 'none'}")
            for kind, (frame, relation) in enumerate(zip(frames, graph._relations)):
                rows = frame[self.prob] if self.prob in frame else torch.ones(relation.num_edges)
                columns.append(Column(abi.WEIGHT, kind, self.prob, rows))
        return columns


def _by_type(graph: GraphShardManager, name: str, value: Any) -> Dict[str, Tensor]:
    """A feature by node type, with as many rows as there are own nodes."""
    if not isinstance(value, Mapping):
        if len(graph.ntypes) > 1:
            raise ValueError(f"feature {name!r}: this graph has several node types, give {{node type: tensor}}")
        value = {graph.ntypes[0]: value}
    for ntype, rows in value.items():
        if ntype not in graph.ntypes:
            raise KeyError(f"feature {name!r}: node type {ntype!r} is unknown; there are: {', '.join(graph.ntypes)}")
        own = graph._rows.nodes[ntype].num_own
        if not isinstance(rows, Tensor) or rows.dim() == 0 or len(rows) != own:
            shape = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
            raise ValueError(
                f"feature {name!r} has shape {shape}, but this worker owns {own} nodes of type {ntype!r}: expected "
                f"({own}, ...)"
            )
    return dict(value)


def _sign(column: Column) -> Tuple[Any, ...]:
    """What a column must share with the one that the engine knows. Copies are made again when the original changed."""
    rows = column.rows
    if not isinstance(rows, Tensor):
        return (column.what, column.kind, column.name, id(rows))
    copied = column.what == abi.WEIGHT or not rows.is_contiguous()
    return (
        column.what,
        column.kind,
        column.name,
        rows.data_ptr(),
        rows.dtype,
        tuple(rows.shape),
        rows.stride(),
        rows._version if copied else None,
    )


def _readable(column: Column) -> Column:
    """The column in one piece of CPU memory; weights as float32 [n]."""
    rows = column.rows
    if not isinstance(rows, Tensor) and hasattr(rows, "materialize"):
        rows = rows.materialize()
    if rows.device.type != "cpu":
        raise TypeError(f"feature {column.name!r} is on {rows.device}: give sampling features in CPU memory")
    rows = rows.detach()
    if column.what == abi.WEIGHT:
        if rows.dim() > 1 and rows.numel() == len(rows):
            rows = rows.reshape(-1)
        if rows.dim() != 1:
            shape = tuple(rows.shape)
            raise ValueError(f"edge column {column.name!r} has shape {shape}: prob needs one number per edge")
        rows = rows.to(torch.float32)
    return column._replace(rows=rows.contiguous())


# ---- seeds -----------------------------------------------------------------


def own_numbers(graph: GraphShardManager, seeds: Seeds) -> Tensor:
    """Seeds, int64, numbered over all types from the worker's first node.

    :raises ValueError: a seed that this worker does not own
    :raises KeyError: an unknown node type
    """
    first, end = graph.tgt_node_range
    if not isinstance(seeds, Mapping):
        numbers = _ids(seeds) - first
        _check_owned(numbers, end - first, first, "")
        return numbers
    found = [torch.empty(0, dtype=torch.int64)]
    for ntype, ids in seeds.items():
        if ntype not in graph.ntypes:
            raise KeyError(f"seed nodes of type {ntype!r}: there are the types {', '.join(graph.ntypes)}")
        info = graph._rows.nodes[ntype]
        rows = _ids(ids) - info.first
        _check_owned(rows, info.num_own, info.first, f" of type {ntype!r}")
        found.append(rows + info.offset)
    return torch.cat(found)


def rows_by_type(graph: GraphShardManager, numbers: Tensor) -> List[Tensor]:
    """Own rows by node type, ascending and none twice, of what :func:`own_numbers` gives."""
    ordered = np.sort(numbers.numpy())  # np.unique hashes, which takes longer than all the rest
    ordered = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
    found = []
    for ntype in graph.ntypes:
        info = graph._rows.nodes[ntype]
        low, high = np.searchsorted(ordered, (info.offset, info.offset + info.num_own))
        found.append(torch.from_numpy(ordered[low:high] - info.offset))
    return found


def _ids(ids: Any) -> Tensor:
    ids = torch.as_tensor(ids)
    if ids.dim() != 1 or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise ValueError(f"seed nodes are {ids.dtype} of shape {tuple(ids.shape)}: give ids, integers in one dimension")
    return ids.detach().to("cpu", torch.int64)


def _check_owned(rows: Tensor, own: int, first: int, what: str) -> None:
    if len(rows) and (int(rows.min()) < 0 or int(rows.max()) >= own):
        bad = rows[(rows < 0) | (rows >= own)][0]
        raise ValueError(
            f"seed node {int(bad) + first}{what} is not of this worker, which owns {first} to {first + own - 1}: give "
            "each worker seeds among its own nodes"
        )


# ---- batches ---------------------------------------------------------------


def minibatch_partition(
    sampling_graph: Any,
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
    seeds = _ids(train_nodes)
    if isinstance(sampling_graph, GraphShardManager):
        own_numbers(sampling_graph, seeds)
        first = sampling_graph.tgt_node_range[0]
        edges = partial(batches.local_edges, sampling_graph)
        return batches.precomputed(seeds, _positive(batch_size), optimized_batches_cache, edges, first)
    near, place = torch.unique(torch.cat([seeds, *_ends(sampling_graph)]), return_inverse=True)
    n = len(seeds)
    src, dst = place[n:].chunk(2)
    made = batches.precomputed(
        place[:n], _positive(batch_size), optimized_batches_cache, lambda: (src, dst, len(near))
    )
    return [near[batch] for batch in made]


def _ends(graph: Any) -> List[Tensor]:
    return [end.to("cpu", torch.int64) for end in graph.edges()]


def _positive(batch_size: int) -> int:
    if int(batch_size) < 1:
        raise ValueError(f"batch_size is {batch_size}: it must be at least 1")
    return int(batch_size)


class NodeCollator:
    """Makes blocks of seeds, as the ``collate_fn`` of a loader does.

    :param full_graph_manager: of :func:`sar.construct_full_graph`
    :param graph_sampler: its ``sample`` makes the blocks
    """

    def __init__(self, full_graph_manager: GraphShardManager, graph_sampler: Any) -> None:
        self.full_graph_manager = full_graph_manager
        self.graph_sampler = graph_sampler

    def collate(self, indices_parts: Sequence[Any]) -> List[Any]:
        """Blocks of the union of ``indices_parts``: ids, or tensors of ids. Collective."""
        parts = [torch.as_tensor(part).reshape(-1) for part in indices_parts]
        seeds = torch.unique(torch.cat(parts)) if parts else torch.empty(0, dtype=torch.int64)
        blocks: List[Any] = self.graph_sampler.sample(self.full_graph_manager, seeds)
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
        graph_sampler: Any,
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
            edges, first = partial(batches.local_edges, self.graph), self.graph.tgt_node_range[0]
            made = batches.precomputed(self._seeds + first, self.batch_size, optimized_batches_cache, edges, first)
            self._fixed = [batch - first for batch in made]
            self._count = batches.Count(len(made), 0)
        else:
            self._count = batches.agree(len(self._seeds), self.batch_size, self.drop_last)

    def __len__(self) -> int:
        """Batches of an epoch, the same on every worker."""
        return self._count.batches

    def __iter__(self) -> Iterator[List[Any]]:
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
