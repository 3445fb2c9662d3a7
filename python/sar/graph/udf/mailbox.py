"""Python reduce functions: batches of nodes of equal in-degree, with all their messages.

A batch of nodes needs all its in-edges at once, whichever worker owns their sources, so its source rows are fetched by
column. All workers run the same number of batches; a worker with fewer runs empty ones.
"""

from __future__ import annotations

from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

import torch
from torch import Tensor

from sar._engine import schedule, streams
from sar.autograd.fetch import fetch
from sar.config import Config
from sar.graph.relation import Relation

from .batches import Batch
from .executor import PendingBatch, UdfExecutor, rows_of
from .plan import Output, Plan, Slot

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
    """A reduce function on a relation.

    ``plan``: what makes messages and reduces them, and the columns that messages read; ``names``: of the columns that
    the reduce function may read, by side; ``node_column``: gives them; ``buckets``: nodes of each batch; ``batches``:
    how many there are on the worker that has most.
    """

    relation: Relation
    plan: Plan
    names: Mapping[str, Sequence[str]]
    node_column: Callable[[str], Tensor]
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

    :meth:`run` goes forward, before there is a node of autograd: which columns of nodes and which parameters the
    function uses, and what it returns, shows only then.

    :ivar slots: columns of which rows are read
    :ivar columns: their tensors
    :ivar error: what the function raised. The worker has gone on serving the others
    """

    def __init__(self, job: UdfJob) -> None:
        self.job = job
        self.slots: List[Slot] = list(job.plan.slots)
        self.columns: List[Tensor] = list(job.plan.columns)
        self.error: Optional[Exception] = None
        self.executor = UdfExecutor(job.plan.compute, job.plan.save and torch.is_grad_enabled())
        self._streamed = len(self.slots)
        self._outs: Dict[str, Tensor] = {}

    def run(self) -> None:
        """Runs the function on all batches. Collective."""
        with self.executor.forward_session():
            for number in range(self.job.batches):
                mail = self._mail(number)
                if not len(mail.rows) or self.error is not None:
                    self._rows(self.columns, mail)  # the others ask for theirs
                    continue
                try:
                    found = self.executor.forward(self._piece(self.columns, mail))
                except Exception as error:
                    self.error = error
                    continue
                for name, value in found.items():
                    self._out(name, value.shape[1:], value.dtype).index_copy_(0, mail.rows, value)
        self.operation = schedule.last()

    def agree(self, outputs: Dict[str, Output]) -> None:
        """Takes over what workers agreed that the function returns."""
        self.executor.outputs = outputs
        self._outs = {name: self._out(name, out.shape, out.dtype) for name, out in outputs.items()}

    def _out(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        if name not in self._outs:
            self._outs[name] = torch.zeros((self.job.relation.num_dst, *shape), dtype=dtype)
        return self._outs[name]

    def forward(self, columns: List[Tensor]) -> List[Tensor]:
        outs, self._outs = self._outs, {}
        return list(outs.values())

    def backward(self, columns: List[Tensor], grads: List[Optional[Tensor]]) -> List[Optional[Tensor]]:
        relation = self.job.relation
        given = dict(zip(self.executor.outputs, grads))
        sums = [torch.zeros(c.shape, dtype=c.dtype) if c.requires_grad else None for c in columns]
        with self.executor.backward_session():
            for number in range(self.job.batches):
                mail = self._mail(number)
                found: List[Optional[Tensor]] = [None] * len(columns)
                if len(mail.rows):
                    found = self.executor.backward(number, self._piece(columns, mail), _at(mail.rows, given))
                elif not self.executor.saves_forward:
                    self._rows(columns, mail)
                for (side, _), column, goes, total, grad in zip(self.slots, columns, self._goes(), sums, found):
                    if side != "u":
                        if total is not None and grad is not None:
                            total.index_add_(0, mail.at[side], grad)
                    elif goes:
                        back = torch.zeros((len(mail.columns), *column.shape[1:]), dtype=column.dtype)
                        if grad is not None:
                            back.index_add_(0, mail.at["u"], grad)
                        where = relation.handle, relation.index, mail.columns
                        streams.fetch_backward(*where, back, total, self.operation)
        return sums

    def _goes(self) -> List[bool]:
        """For each slot, whether gradients return to other workers."""
        return [*self.job.plan.return_grads, *[False] * (len(self.slots) - self._streamed)]

    def _mail(self, number: int) -> _Mail:
        none = torch.empty(0, dtype=torch.int64)
        if number >= len(self.job.buckets):
            return _Mail(none, none, {"u": none, "v": none, "e": none, "n": none})
        rows = self.job.buckets[number]
        indptr, sources, eids = self.job.relation.in_edges(rows)
        columns, at = none, none
        if any(side == "u" for side, _ in self.slots):
            columns, at = torch.unique(sources, return_inverse=True)
        dst = rows.repeat_interleave(indptr.diff())
        return _Mail(rows, columns, {"u": at, "v": dst, "e": eids, "n": rows})

    def _rows(self, columns: List[Tensor], mail: _Mail) -> List[Tensor]:
        """The rows of every slot, leaves. Collective."""
        found = []
        for (side, _), column, goes in zip(self.slots, columns, self._goes()):
            needs = column.requires_grad
            column = column.detach()
            if side == "u":
                column, needs = fetch(self.job.relation, mail.columns, column), goes
            found.append(_leaf(column, mail.at[side], needs and torch.is_grad_enabled()))
        return found

    def _piece(self, columns: List[Tensor], mail: _Mail) -> PendingBatch:
        size = len(mail.at["e"])

        def batch(rows: List[Tensor]) -> Batch:
            known = rows_of(self.slots, rows)

            def read(side: str, name: str) -> Tensor:
                return self._node_rows(rows, name, mail) if side == "n" else known(side, name)

            return Batch(size, self.job.names, read, 0, len(mail.rows))

        return PendingBatch((size, len(mail.rows)), lambda: self._rows(columns, mail), batch)

    def _node_rows(self, rows: List[Tensor], name: str, mail: _Mail) -> Tensor:
        """Rows of a column of nodes; in forward it becomes a slot when it is first read.

        :param rows: of the slots, for this batch
        """
        with torch._C.DisableTorchFunction():
            if ("n", name) not in self.slots:
                column = self.job.node_column(name)
                self.slots.append(("n", name))
                self.columns.append(column)
                rows.append(_leaf(column, mail.rows, column.requires_grad and torch.is_grad_enabled()))
                self.executor.outside.own(rows[-1])
            return rows[self.slots.index(("n", name))]


def _leaf(column: Tensor, at: Tensor, needs: bool) -> Tensor:
    return column.detach().index_select(0, at).requires_grad_(needs)
