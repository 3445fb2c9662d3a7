"""Python reduce functions: batches of nodes of equal in-degree, with all their messages.

A batch of nodes needs all its in-edges at once, whichever worker owns their sources, so its source rows are fetched by
column. All workers run the same number of batches; a worker with fewer runs empty ones.
"""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional

import torch
from torch import Tensor

from sar._engine import streams
from sar.autograd.fetch import fetch
from sar.config import Config
from sar.graph.relation import Relation

from .batches import Batch
from .executor import PendingBatch, Plan, UdfExecutor, rows_of

Bucket = Tensor
"""Rows of some destinations with equally many in-edges, int64."""


def _at(rows: Tensor, grads: Dict[str, Optional[Tensor]]) -> Callable[[str, Tensor], Optional[Tensor]]:
    """Gradients at some rows, by name."""

    def gradient(name: str, value: Tensor) -> Optional[Tensor]:
        grad = grads[name]
        return None if grad is None else grad.index_select(0, rows)

    return gradient


def buckets(degrees: Tensor, edge_bytes: int) -> List[Bucket]:
    """Destination rows that have in-edges, by degree ascending, in batches of bounded bytes or of one node.

    :param degrees: int64 ``[num_dst]``
    :param edge_bytes: what a message takes
    """
    edges = max(1, int(Config.block_bytes) // edge_bytes)
    order = torch.argsort(degrees, stable=True)
    kinds, counts = torch.unique_consecutive(degrees[order], return_counts=True)
    found: List[Bucket] = []
    for degree, rows in zip(kinds.tolist(), order.split(counts.tolist())):
        if degree:
            found += rows.split(max(1, edges // degree))
    return found


class UdfJob(NamedTuple):
    """A reduce function on a relation: ``batches`` on every worker, of which ``buckets`` are the first here."""

    relation: Relation
    plan: Plan
    buckets: List[Bucket]
    batches: int


class _Mail(NamedTuple):
    """A batch: rows of its nodes, and what each side's places are. ``columns`` are those of the sources, each once;
    ``at["u"]`` says which of them is an edge's."""

    rows: Tensor
    columns: Tensor
    at: Dict[str, Tensor]


class Traversal:
    """Goes through the batches, forward and again backward.

    :param needs: of which columns this worker wants gradients
    """

    def __init__(self, job: UdfJob, needs: List[bool]) -> None:
        self.job, self.needs = job, needs
        self.executor = UdfExecutor(job.plan)
        self._owner: Optional[Tensor] = None

    def forward(self, columns: List[Tensor]) -> List[Tensor]:
        n = self.job.relation.num_dst
        outs = {name: torch.zeros((n, *o.shape), dtype=o.dtype) for name, o in self.job.plan.outputs.items()}
        with self.executor.session():
            for number in range(self.job.batches):
                mail = self._mail(number)
                if not len(mail.rows):
                    self._rows(columns, mail)  # the others ask for theirs
                    continue
                for name, value in self.executor.forward(self._piece(columns, mail)).items():
                    outs[name].index_copy_(0, mail.rows, value)
        return list(outs.values())

    def backward(self, columns: List[Tensor], grads: List[Optional[Tensor]]) -> List[Optional[Tensor]]:
        plan, relation = self.job.plan, self.job.relation
        given = dict(zip(plan.outputs, grads))
        sums = [torch.zeros(c.shape, dtype=c.dtype) if n else None for c, n in zip(columns, self.needs)]
        with self.executor.session():
            for number in range(self.job.batches):
                mail = self._mail(number)
                found: List[Optional[Tensor]] = [None] * len(columns)
                if len(mail.rows):
                    found = self.executor.backward(number, self._piece(columns, mail), _at(mail.rows, given))
                elif not self.executor.saves_forward:
                    self._rows(columns, mail)
                for (side, _), column, goes, total, grad in zip(plan.slots, columns, plan.return_grads, sums, found):
                    if side != "u":
                        if total is not None and grad is not None:
                            total.index_add_(0, mail.at[side], grad)
                    elif goes:
                        back = torch.zeros((len(mail.columns), *column.shape[1:]), dtype=column.dtype)
                        if grad is not None:
                            back.index_add_(0, mail.at["u"], grad)
                        streams.fetch_backward(relation.handle, relation.index, mail.columns, back, total)
        return sums

    def _mail(self, number: int) -> _Mail:
        none = torch.empty(0, dtype=torch.int64)
        if number >= len(self.job.buckets):
            return _Mail(none, none, {"u": none, "v": none, "e": none, "n": none})
        rows = self.job.buckets[number]
        indptr, sources, eids = self.job.relation.in_edges(rows)
        columns, at = none, none
        if any(side == "u" for side, _ in self.job.plan.slots):
            columns, at = torch.unique(sources, return_inverse=True)
        dst = rows.repeat_interleave(indptr.diff())
        return _Mail(rows, columns, {"u": at, "v": dst, "e": eids, "n": rows})

    def _rows(self, columns: List[Tensor], mail: _Mail) -> List[Tensor]:
        """The rows of every slot, leaves. Collective."""
        plan = self.job.plan
        found = []
        for (side, _), column, needs, goes in zip(plan.slots, columns, self.needs, plan.return_grads):
            column = column.detach()
            if side == "u":
                column, needs = fetch(self.job.relation, mail.columns, column), goes
            found.append(column.index_select(0, mail.at[side]).requires_grad_(needs))
        return found

    def _piece(self, columns: List[Tensor], mail: _Mail) -> PendingBatch:
        plan, size = self.job.plan, len(mail.at["e"])

        def batch(rows: List[Tensor]) -> Batch:
            return Batch(size, plan.names, rows_of(plan.slots, rows), lambda: self._peers(mail), len(mail.rows))

        return PendingBatch((size, len(mail.rows)), lambda: self._rows(columns, mail), batch)

    def _peers(self, mail: _Mail) -> Tensor:
        """The owner of each edge's source."""
        if self._owner is None:
            self._owner = self.job.relation.columns_owner()
        return self._owner.index_select(0, self.job.relation.in_edges(mail.rows)[1])
