"""The edges of a worker as edge indices know them, and edges made of them: with self loops, without, or some."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple, Optional
from weakref import WeakSet

import torch
from torch import Tensor

from sar._engine.native import shared
from sar.autograd.expression import Expr, evaluate
from sar.distributed.agreement import anywhere
from sar.graph.edge_tensor.calls import in_engine
from sar.graph.edge_tensor.tensor import EdgeTensor
from sar.graph.queries import edge_ends
from sar.graph.relation import Relation
from sar.graph.udf.edge_function import run

if TYPE_CHECKING:
    from sar.graph.manager import GraphShardManager


class LoopCounts(NamedTuple):
    """Self loops of the whole graph: whether there are none, and whether every node has exactly one."""

    none: bool
    one_each: bool


@shared
class SplitEdges:
    """The in-edges of a worker's own nodes in one relation.

    Edges derived from it are made once and kept, because layers derive them in every forward. Making them is
    collective, and so is the first use of :attr:`relation` of edges without self loops: they become a graph only where
    messages are sent along them.

    :param graph: a graph manager of one relation
    :cvar alive: all that there are
    """

    alive: ClassVar[WeakSet[SplitEdges]] = WeakSet()
    on_nodes = True

    def __init__(self, graph: Optional[GraphShardManager]) -> None:
        self.alive.add(self)
        self._graph = graph
        self._with_loops: Optional[SplitEdges] = None
        self._without_loops: Optional[SplitEdges] = None
        self._loops: Optional[LoopCounts] = None

    @property
    def graph(self) -> GraphShardManager:
        """The graph manager."""
        assert self._graph is not None
        return self._graph

    @property
    def relation(self) -> Relation:
        """The engine's relation."""
        relation: Relation = self.graph._relations[0]
        return relation

    @property
    def num_edges(self) -> int:
        """In-edges of own nodes."""
        return self.relation.num_edges

    @property
    def num_edges_global(self) -> int:
        """Edges of all workers."""
        return self.relation.info.num_edges_global

    def compute(self, x: Expr) -> Tensor:
        """The values of an expression for all edges. Collective for calls, and where it reads rows of sources."""
        return evaluate(self.relation, x, None) if in_engine(x) else run(self.relation, x, None)

    def tensor(self, x: Expr) -> EdgeTensor:
        """A tensor of these edges."""
        return EdgeTensor(self.relation, x, self)

    def check_graph(self, messages: Tensor) -> None:
        """:raises ValueError: a tensor of the edges of another graph"""
        if isinstance(messages, EdgeTensor) and messages.relation is not self.relation:
            raise ValueError(
                "messages along the edges of one graph are reduced by an edge_index of another one: edge_index with "
                "and without self loops are two graphs, for instance"
            )

    def rows(self, side: str) -> int:
        """Own nodes at which edges begin ("u") or end ("v")."""
        return self.relation.num_src if side == "u" else self.relation.num_dst

    @property
    def square(self) -> bool:
        """Whether edges begin and end at the same nodes."""
        source, _, target = self.relation.canonical
        return source == target and bool(self.graph.src_is_tgt)

    def numbers(self) -> Tensor:
        """Columns of sources and rows of destinations, int64 ``[2, num_edges]``. Local.

        A column below ``rows("u")`` is an own node; those above are halo rows, which ``graph.column_nodes`` names.
        """
        return torch.stack(edge_ends(self.relation))

    def loops(self) -> LoopCounts:
        """What self loops the graph has. Collective the first time."""
        if self._loops is None:
            self.check_square()
            columns, rows = self.numbers()
            own = torch.bincount(rows[columns == rows], minlength=self.rows("v"))
            some, others = anywhere((own != 0).any(), (own != 1).any())
            self._loops = LoopCounts(not some, not others)
        return self._loops

    def with_loops(self, any_order: bool = False) -> SplitEdges:
        """These edges, and behind them one from each node to itself. Collective the first time.

        :param any_order: nobody has tensors of these edges, so they may come in another order
        """
        if self._with_loops is None:
            self.check_square()
            with torch.no_grad():  # what is made once is no part of what torch.utils.checkpoint runs again
                self._with_loops = SplitEdges(self.graph.add_self_loop())
        return self._with_loops

    def without_loops(self) -> SplitEdges:
        """These edges but for self loops. Collective the first time."""
        if self.loops().none:
            return self
        if self._without_loops is None:
            self._without_loops = _WithoutLoops(self)
        return self._without_loops

    def some(self, mask: Tensor) -> SplitEdges:
        """The edges of a mask, bool ``[num_edges]``. Collective."""
        graph = self.graph.clone()
        graph.keep_edges({self.relation.canonical: mask})
        return SplitEdges(graph)

    def check_square(self) -> None:
        """:raises ValueError: these edges have no self loops, because they lead from one node type to another"""
        if not self.square or not self.graph.is_homogeneous:
            source, _, target = self.relation.canonical
            raise ValueError(
                "self loops are added to, removed from and counted in graphs of one node type and one relation, and "
                f"these edges go from {source!r} to {target!r} nodes. Make layers that add self loops by default "
                "(GATConv, GATv2Conv, FeaStConv, PointNetConv, PPFConv, PointTransformerConv) with add_self_loops=False"
            )


class _WithoutLoops(SplitEdges):
    """Edges without self loops, which become a graph when messages are sent along them.

    Layers that remove self loops add one to each node next. Where each node has one, that gives the edges as they were,
    and this graph is never made.
    """

    def __init__(self, before: SplitEdges) -> None:
        super().__init__(None)
        self._before = before
        self._loops = LoopCounts(True, False)

    @property
    def graph(self) -> GraphShardManager:
        if self._graph is None:
            with torch.no_grad():
                self._graph = self._before.graph.remove_self_loop()
        return self._graph

    @property
    def num_edges(self) -> int:
        return self.numbers().shape[1] if self._graph is None else self.relation.num_edges

    @property
    def square(self) -> bool:
        return True

    def numbers(self) -> Tensor:
        if self._graph is not None:
            return super().numbers()
        numbers = self._before.numbers()
        return numbers[:, numbers[0] != numbers[1]]

    def rows(self, side: str) -> int:
        return self._before.rows(side)

    def with_loops(self, any_order: bool = False) -> SplitEdges:
        return self._before if any_order and self._before.loops().one_each else super().with_loops()
