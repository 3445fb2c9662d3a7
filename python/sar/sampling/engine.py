"""The engine's sampler and batches, as torch tensors."""

from __future__ import annotations

import ctypes as ct
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import torch
from torch import Tensor

from sar._engine import samplers as abi
from sar._engine.native import Native
from sar.data.partition_book import CanonicalEtype
from sar.data.records import SampledEdges, SampledLayer
from sar.graph.relation import NativeGraph

_Memory = ct.c_char * (1 << 46)
"""Memory at an address, for ``torch.frombuffer``, which looks at as much of it as it is told to. One type for all
sizes: ctypes makes a class for each."""


class Column(NamedTuple):
    """A feature that blocks carry: what it is for (``abi.INPUT`` ...), number of its node type or relation."""

    what: int
    kind: int
    name: str
    rows: Tensor


class EngineSampler(Native):
    """Draws batches in the background, in the order in which they are submitted.

    :param graph: the engine's graph
    :param ntypes: node types in its order
    :param relations: relations in its order
    :param fanouts: int64 ``[layers, relations]``
    :param edge_ids: whether blocks tell ids of edges
    :param cache_bytes: of input columns of other workers' nodes that the engine may keep
    :param columns: features, contiguous and in CPU memory, which the engine reads while it samples
    """

    def __init__(
        self,
        graph: NativeGraph,
        ntypes: Sequence[str],
        relations: Sequence[CanonicalEtype],
        fanouts: Tensor,
        replace: bool,
        edge_ids: bool,
        cache_bytes: int,
        columns: Sequence[Column],
    ) -> None:
        self.ntypes, self.relations, self.layers = list(ntypes), list(relations), len(fanouts)
        self.edge_ids = edge_ids
        self.columns = list(columns)
        self.graph = graph
        self.handle = abi.sampler_create(graph.handle, fanouts, replace, edge_ids, cache_bytes)
        # the columns outlive what the engine still does
        self._own(abi.sampler_free, self.handle, self.columns, graph)
        for column in self.columns:
            abi.sampler_column(self.handle, column.what, column.kind, column.rows)

    def submit(self, seeds: Sequence[Tensor], key: int) -> EngineBatch:
        """``seeds``: own rows of each node type, int64, none twice. Collective in order."""
        return EngineBatch(self, abi.sampler_submit(self.handle, seeds, key))

    def of(self, what: int, kind: int) -> List[Column]:
        """The columns of one purpose and type, in the order in which the engine knows them."""
        return [c for c in self.columns if c.what == what and c.kind == kind]


class EngineBatch(Native):
    """A batch on its way or done. Its memory lives as long as any tensor made from it."""

    def __init__(self, sampler: EngineSampler, handle: int) -> None:
        self.sampler, self.handle = sampler, handle
        self._own(abi.batch_free, handle)

    def wait(self) -> None:
        """Returns once the batch is there; raises what ended it."""
        abi.batch_wait(self.handle)

    def layer(self, number: int) -> SampledLayer:
        """One block, counted from the one that reads the input."""
        sampler = self.sampler
        nodes, num_dst, edges = {}, {}, {}
        for kind, ntype in enumerate(sampler.ntypes):
            address, size, num_dst[ntype] = abi.batch_array(self.handle, number, abi.NODES, kind)
            nodes[ntype] = self._tensor(address, size, torch.int64)
        for kind, relation in enumerate(sampler.relations):
            data = {
                column.name: self._column(number, abi.DATA, kind, place, column.rows)
                for place, column in enumerate(sampler.of(abi.EDGE, kind))
            }
            indptr, indices = (self._ids(number, what, kind) for what in (abi.INDPTR, abi.INDICES))
            ids = self._ids(number, abi.EDGE_IDS, kind) if sampler.edge_ids else indices[:0]
            edges[relation] = SampledEdges(indptr, indices, ids, data)
        return SampledLayer(nodes, num_dst, edges)

    def features(self, outputs: bool) -> Dict[Tuple[str, str], Tensor]:
        """``{(name, node type): rows}`` of the nodes that the first layer reads, or of the seeds."""
        purpose, what = (abi.OUTPUT, abi.BATCH_OUTPUT) if outputs else (abi.INPUT, abi.BATCH_INPUT)
        return {
            (column.name, ntype): self._column(0, what, kind, place, column.rows)
            for kind, ntype in enumerate(self.sampler.ntypes)
            for place, column in enumerate(self.sampler.of(purpose, kind))
        }

    def _ids(self, layer: int, what: int, kind: int) -> Tensor:
        address, size, _ = abi.batch_array(self.handle, layer, what, kind)
        return self._tensor(address, size, torch.int64)

    def _column(self, layer: int, what: int, kind: int, place: int, like: Tensor) -> Tensor:
        address, size, _ = abi.batch_array(self.handle, layer, what, kind, place)
        shape = like.shape[1:]
        if shape.numel() == 0:
            if what == abi.DATA:
                rows = self._ids(layer, abi.INDICES, kind).shape[0]
            else:
                number = self.sampler.layers - 1 if what == abi.BATCH_OUTPUT else 0
                _, bytes_, num_dst = abi.batch_array(self.handle, number, abi.NODES, kind)
                rows = num_dst if what == abi.BATCH_OUTPUT else bytes_ // 8
            return like.new_empty((rows, *shape))
        return self._tensor(address, size, like.dtype).view(-1, *shape)

    def _tensor(self, address: int, size: int, dtype: torch.dtype) -> Tensor:
        if size == 0:
            return torch.empty(0, dtype=dtype)
        memory: Any = _Memory.from_address(address)
        memory.batch = self
        return torch.frombuffer(memory, dtype=dtype, count=size // dtype.itemsize)
