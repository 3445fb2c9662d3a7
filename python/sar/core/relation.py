"""The engine's graph and its relations."""

from __future__ import annotations

import contextlib
import weakref
from typing import Dict, List, Optional

import torch
from torch import Tensor

from .. import _abi, _session
from .._book import CanonicalEtype
from .degrees import tagged


class NativeGraph:
    """An engine graph; freed when the last object that uses it is gone."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        release = weakref.finalize(self, _free_graph, handle)
        release.atexit = False


def _free_graph(handle: int) -> None:
    with contextlib.suppress(Exception):  # the session was closed, which frees graphs, or this is a forked child
        _abi.graph_free(handle)


class Relation:
    """One relation of a graph: the in-edges of own destination nodes.

    :param graph: the engine's graph
    :param index: number of the relation in it
    :param canonical: ``(source type, relation, destination type)``
    """

    def __init__(self, graph: NativeGraph, index: int, canonical: CanonicalEtype) -> None:
        self.graph = graph
        self.index = index
        self.canonical = canonical
        self.info = _abi.graph_relation_info(graph.handle, index)
        self.zero_in_degree: Optional[bool] = None
        """Whether a node of any worker has no in-edge, once that is agreed (:mod:`sar.core.degrees`)."""

    @property
    def handle(self) -> int:
        return self.graph.handle

    @property
    def num_src(self) -> int:
        return self.info.num_src

    @property
    def num_dst(self) -> int:
        return self.info.num_dst

    @property
    def num_edges(self) -> int:
        return self.info.num_edges

    def degrees(self, out: bool) -> Tensor:
        """int64: in-degrees ``[num_dst]``, or out-degrees over all workers ``[num_src]``."""
        _session.current()
        result = torch.empty(self.num_src if out else self.num_dst, dtype=torch.int64)
        _abi.graph_degrees(self.handle, self.index, out, result)
        return result if out or self.zero_in_degree is None else tagged(result, self.zero_in_degree)

    def boundary(self) -> List[Dict[str, int]]:
        """Rows exchanged with each peer: ``[{"peer": q, "receive_rows": n, "send_rows": n}]``."""
        return _abi.graph_boundary(self.handle, self.index)
