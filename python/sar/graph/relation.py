"""Handles of the engine's graphs and relations."""

from __future__ import annotations

from typing import Callable, Dict, List, Optional, Tuple, Union

import torch
from torch import Tensor

from sar._engine import abi, session as _session, streams
from sar._engine.native import Native, shared
from sar.data.partition_book import CanonicalEtype


class NativeGraph(Native):
    """An engine graph; freed when the last object that uses it is gone."""

    what = "a graph split over workers"

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self._own(abi.graph_free, handle)


@shared
class Relation:
    """One relation of a graph: the in-edges of own destination nodes.

    :param graph: the engine's graph
    :param index: number of the relation in it
    :param canonical: ``(source type, relation, destination type)``
    """

    def __init__(self, graph: NativeGraph, index: int, canonical: CanonicalEtype) -> None:
        self.graph, self.handle = graph, graph.handle
        self.index, self.canonical = index, canonical
        self.info = info = abi.graph_relation_info(graph.handle, index)
        self.num_src, self.num_dst, self.num_edges = info.num_src, info.num_dst, info.num_edges
        self.num_columns = info.num_src + info.num_boundary
        """Source rows that own edges may read: own rows, then boundary rows."""
        self._owner_rows: Optional[Tensor] = None
        self.edge_keys: Union[None, Tensor, Callable[[], Tensor]] = None
        """int64 ``[num_edges]`` by which dropout draws random numbers, or what reads it. None: by rank and position."""
        self.zero_degree: Dict[bool, bool] = {}
        """Whether a node of any worker has no in-edge (False) or no out-edge (True), once that is agreed
        (:mod:`sar.graph.degrees`)."""

    def degrees(self, out: bool) -> Tensor:
        """int64: in-degrees ``[num_dst]``, or out-degrees over all workers ``[num_src]``."""
        _session.current()
        result = torch.empty(self.num_src if out else self.num_dst, dtype=torch.int64)
        abi.graph_degrees(self.handle, self.index, out, result)
        return result

    def boundary(self) -> List[Dict[str, int]]:
        """Rows exchanged with each peer: ``[{"peer": q, "receive_rows": n, "send_rows": n, "cover_rows": n,
        "cover_sums": n}]``. The last two are what a sum over edges receives: rows, and partial sums in place of the
        others, where these are fewer."""
        return abi.graph_boundary(self.handle, self.index)

    def in_edges(self, rows: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        """In-edges of own destination rows, those of each row in the order of edge tensors.

        :param rows: int64 ``[n]``, in any order; a row may occur more than once
        :returns: ``indptr`` int64 ``[n + 1]``; for edges ``indptr[i]..indptr[i + 1] - 1``, those of ``rows[i]``: the
            column of the source, int64, and the position in edge tensors, int64
        :raises ValueError: a row that is not there
        :raises TypeError: rows that are not int64
        """
        _session.current()
        rows = rows.contiguous()
        indptr = torch.empty(len(rows) + 1, dtype=torch.int64)
        streams.graph_in_edges(self.handle, self.index, rows, indptr, None, None)
        columns, edges = (torch.empty(int(indptr[-1]), dtype=torch.int64) for _ in range(2))
        streams.graph_in_edges(self.handle, self.index, rows, indptr, columns, edges)
        return indptr, columns, edges

    def columns_owner(self) -> Tensor:
        """int64 ``[num_columns]``: the rank that owns the row of each column."""
        _session.current()
        owner = torch.empty(self.num_columns, dtype=torch.int64)
        streams.graph_columns(self.handle, self.index, owner, None)
        return owner

    def columns_global(self) -> Tensor:
        """int64 ``[num_columns]``: the number of each column's row on the worker that owns it.

        The first call on a relation is collective: workers tell each other, and 4 bytes a column are kept.
        """
        _session.current()
        if self._owner_rows is None:
            rows = torch.empty(self.num_columns, dtype=torch.int64)
            streams.graph_columns(self.handle, self.index, None, rows)
            self._owner_rows = rows.to(torch.int32)
        return self._owner_rows.to(torch.int64)
