"""State of a graph manager: its relations, its columns, and the rows of each node type on this worker."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from sar.data.partition_book import CanonicalEtype

from .edge_tensor.tensor import EdgeTensor
from .frames import EdgeFrame, NodeFrame
from .relation import Relation


class NodeRows(NamedTuple):
    """The rows of one node type on this worker.

    :param num_own: own nodes of the whole graph
    :param num_global: nodes of the whole graph, over all workers
    :param offset: first own node, counted from the worker's first node over all types
    :param first: id of the first own node, counted per type
    :param starts: that of every worker, and the end
    :param src: own nodes that are source rows, int64, ascending behind the destinations; ``None``: all
    :param dst: own nodes that are destination rows, likewise
    """

    num_own: int
    num_global: int
    offset: int = 0
    first: int = 0
    starts: Tuple[int, ...] = (0,)
    src: Optional[Tensor] = None
    dst: Optional[Tensor] = None

    @property
    def num_src(self) -> int:
        return self.num_own if self.src is None else len(self.src)

    @property
    def num_dst(self) -> int:
        return self.num_own if self.dst is None else len(self.dst)

    def rows(self, dst: bool) -> Tensor:
        """Own nodes, int64, in the order of source or destination rows."""
        which = self.dst if dst else self.src
        return torch.arange(self.num_own) if which is None else which


@dataclass
class GraphState:
    """Relations, columns and rows of a graph manager; slices of one graph share the frames.

    :param relations: in canonical order
    :param frames: columns of each node type
    :param edge_frames: columns of each relation
    :param nodes: rows of each node type
    :param part_ranges: node ids of each partition over all types
    :param partition_book: the partition book, or what makes it
    :param edges_global: edges of each relation of the whole graph, where the relations hold fewer
    :param keep_seeds: of a block, whether destination rows are the first source rows; ``None``: no block
    :param node_keys: by node type, what reads the original ids of own nodes, where the partition has them
    :param node_ids: by node type, the Parquet file that holds the users' ids of own nodes, where there is one
    :param classes: by node type, the number of classes of its labels, where :func:`sar.load` found some
    :param originals: by node type, which nodes have which original ids, once it was asked for (:mod:`sar.links`)
    """

    relations: List[Relation]
    frames: Dict[str, NodeFrame]
    edge_frames: Dict[CanonicalEtype, EdgeFrame]
    nodes: Dict[str, NodeRows]
    part_ranges: List[Tuple[int, int]]
    partition_book: Any
    edges_global: Dict[CanonicalEtype, int] = field(default_factory=dict)
    keep_seeds: Optional[bool] = None
    node_keys: Dict[str, Callable[[], Tensor]] = field(default_factory=dict)
    node_ids: Dict[str, str] = field(default_factory=dict)
    classes: Dict[str, int] = field(default_factory=dict)
    originals: Dict[str, Any] = field(default_factory=dict)
    sampling_graphs: Dict[Tuple[CanonicalEtype, ...], Any] = field(default_factory=dict, init=False)
    row_keys: Dict[str, Any] = field(default_factory=dict, init=False)
    """By node type, what dropout knows own rows by, once it was asked for."""

    def __post_init__(self) -> None:
        if not self.edges_global:
            self.edges_global = {r.canonical: r.info.num_edges_global for r in self.relations}

    @property
    def type_ranges(self) -> Dict[str, List[Tuple[int, int]]]:
        """Ids of each type that each worker owns, counted per type."""
        return {kind: list(zip(rows.starts[:-1], rows.starts[1:])) for kind, rows in self.nodes.items()}

    def with_relations(self, relations: List[Relation], edge_frames: Dict[CanonicalEtype, EdgeFrame]) -> GraphState:
        """The same nodes and columns of nodes with other edges."""
        return replace(self, relations=relations, edge_frames=edge_frames, edges_global={})

    def __deepcopy__(self, memo: Any) -> GraphState:
        """Copies of the columns; the relations, which do not change, are the same."""
        made = self.copy()
        for frame in made.frames.values():
            src, dst = ({k: _copied(v, memo) for k, v in side.items()} for side in frame.snapshot())
            frame.restore((src, dst))
        for edges in made.edge_frames.values():
            edges.restore({k: _copied(v, memo) for k, v in edges.snapshot().items()})
        return made

    def copy(self) -> GraphState:
        """The same rows and relations with columns of their own, which begin as these are."""
        frames, edge_frames = {}, {}
        for kind, frame in self.frames.items():
            frames[kind] = NodeFrame(kind, self.nodes[kind].num_src, self.nodes[kind].num_dst, frame.square)
            frames[kind].restore(frame.snapshot())
        for relation in self.relations:
            edges = EdgeFrame(relation.canonical[1], relation.num_edges)
            edges.restore(self.edge_frames[relation.canonical].snapshot())
            edge_frames[relation.canonical] = edges
        return replace(self, frames=frames, edge_frames=edge_frames)


def _copied(column: Any, memo: Any) -> Any:
    """A copy of a column; of one whose values nobody has read yet, one that is computed or read by itself."""
    if isinstance(column, EdgeTensor):
        return column.extended(column.expr)
    return deepcopy(column, memo) if isinstance(column, Tensor) else column
