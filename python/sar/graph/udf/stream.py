"""Python message functions on blocks of edges, as rows of other workers arrive."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional

import torch
from torch import Tensor

from sar._engine import schedule
from sar.autograd.stream import Block, stream
from sar.config import Config
from sar.graph.relation import Relation

from .batches import Batch
from .executor import PendingBatch, UdfExecutor, rows_of
from .outside import Outside
from .plan import Plan
from .reduction import PerEdge, Reduction, reduction

LEAST_EDGES = 64
"""Blocks are not made smaller than this."""


class UdfJob(NamedTuple):
    """A message function on a relation.

    ``reduce``: what :func:`~sar.graph.udf.reduction.reduction` makes of the outputs, ``None``: they stay on edges;
    ``outside``: what the function uses besides rows.
    """

    relation: Relation
    plan: Plan
    reduce: Optional[str]
    outside: Outside


class _Edges(NamedTuple):
    """The edges of a block that the function runs on, and the rows of their sources."""

    peer: int
    rows: List[Tensor]
    at: Dict[str, Tensor]

    @property
    def size(self) -> int:
        return len(self.at["e"])


class Traversal:
    """Goes through the blocks, forward and again backward.

    :param needs: of which columns this worker wants gradients
    """

    def __init__(self, job: UdfJob, needs: List[bool]) -> None:
        self.job, self.needs = job, needs
        plan, relation = job.plan, job.relation
        self.executor = UdfExecutor(plan.compute, plan.save and plan.differentiable, plan.outputs, job.outside)
        self.max_edges = max(LEAST_EDGES, int(Config.block_bytes) // plan.edge_bytes)
        self.streamed = [i for i, (side, _) in enumerate(plan.slots) if side == "u"]
        self.return_grads = [plan.return_grads[i] for i in self.streamed]
        self.reductions: Dict[str, Reduction] = {}
        for name, out in plan.outputs.items():
            if job.reduce is None:
                self.reductions[name] = PerEdge(relation.num_edges, out.shape, out.dtype)
            else:
                edges = relation.num_edges if plan.differentiable else None
                degrees = relation.degrees(out=False) if job.reduce == "mean" else None
                self.reductions[name] = reduction(job.reduce, relation.num_dst, out.shape, out.dtype, degrees, edges)

    def forward(self, columns: List[Tensor]) -> List[Tensor]:
        def visit(block: Block) -> None:
            edges = self._edges(block)
            if edges.size:
                for name, value in self.executor.forward(self._piece(columns, edges, self.return_grads)).items():
                    self.reductions[name].add(edges.at["v"], edges.at["e"], value)

        with self.executor.forward_session():
            stream(self.job.relation, [columns[i] for i in self.streamed], visit, self.max_edges)
        self.operation = schedule.last()
        return [reductions.result() for reductions in self.reductions.values()]

    def backward(self, columns: List[Tensor], grads: List[Optional[Tensor]]) -> List[Optional[Tensor]]:
        given = {name: grad is not None for name, grad in zip(self.reductions, grads)}
        for reductions, grad in zip(self.reductions.values(), grads):
            if grad is not None:
                reductions.begin(grad)
        sums = [torch.zeros(c.shape, dtype=c.dtype) if n else None for c, n in zip(columns, self.needs)]
        number = 0

        def visit(block: Block) -> None:
            nonlocal number
            edges = self._edges(block)
            if not edges.size:
                return

            def gradient(name: str, value: Tensor) -> Optional[Tensor]:
                return self.reductions[name].gradient(edges.at["v"], edges.at["e"], value) if given[name] else None

            piece = self._piece(columns, edges, [g is not None for g in block.grad_rows])
            found = self.executor.backward(number, piece, gradient)
            number += 1
            rows = iter(block.grad_rows)
            for (side, _), total, grad in zip(self.job.plan.slots, sums, found):
                target = next(rows) if side == "u" else total
                if target is not None and grad is not None:
                    target.index_add_(0, edges.at[side], grad)

        fields = [columns[i] for i in self.streamed]
        own = [sums[i] if goes else None for i, goes in zip(self.streamed, self.return_grads)]
        goes, of = self.return_grads, self.operation
        with self.executor.backward_session():
            stream(self.job.relation, fields, visit, self.max_edges, own, return_grads=goes, of=of)
        return sums

    def _edges(self, block: Block) -> _Edges:
        return _Edges(block.peer, block.rows, {"u": block.src, "v": block.dst, "e": block.eid})

    def _piece(self, columns: List[Tensor], edges: _Edges, wanted: List[bool]) -> PendingBatch:
        """What to run on some edges.

        :param wanted: which streamed rows get gradients
        """
        plan = self.job.plan

        def gather() -> List[Tensor]:
            streamed = iter(zip(edges.rows, wanted))
            rows = []
            for (side, _), column, needs in zip(plan.slots, columns, self.needs):
                if side == "u":
                    column, needs = next(streamed)
                rows.append(column.detach().index_select(0, edges.at[side]).requires_grad_(needs))
            return rows

        def batch(rows: List[Tensor]) -> Batch:
            return Batch(edges.size, {}, rows_of(plan.slots, rows), edges.peer)

        return PendingBatch((edges.size, 0), gather, batch)
