"""Types that the modules of this folder share."""

from __future__ import annotations

from typing import Any, List, Optional, Protocol, Sequence, TypeVar, Union

from torch import Tensor

from sar.data.partition_book import CanonicalEtype

from .relation import Relation
from .state import GraphState

Etype = Union[str, CanonicalEtype]
"""A relation: its name, or ``(source type, relation, destination type)``."""

ALL = "__ALL__"
"""What DGL passes for "every node"."""

Edges = Union[str, Sequence[int], Tensor]
"""Positions of edges, or of nodes, or a mask; or :data:`ALL`."""


class Graph(Protocol):
    """A graph split over workers: what functions on :class:`~sar.graph.manager.GraphShardManager` use of it."""

    _state: GraphState
    _relations: List[Relation]

    @property
    def canonical_etypes(self) -> List[CanonicalEtype]: ...
    @property
    def ntypes(self) -> List[str]: ...
    @property
    def is_homogeneous(self) -> bool: ...
    @property
    def src_is_tgt(self) -> bool: ...
    def num_dst_nodes(self, ntype: Optional[str] = None) -> int: ...
    def column_nodes(self, etype: Optional[Etype] = None) -> Tensor: ...
    def clone(self) -> Any: ...
    def __getitem__(self, etype: Etype) -> Any: ...
    def _relation(self, etype: Optional[Etype]) -> Relation: ...


AnyGraph = TypeVar("AnyGraph", bound=Graph)
