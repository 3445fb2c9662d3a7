"""Runs steps on blocks of edges, as rows of other workers arrive, in forward and again in backward."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Optional, Sequence

import torch
from torch import Tensor

from sar.distributed.agreement import agree
from sar.graph.relation import Relation
from sar.graph.udf.batches import Batch
from sar.graph.udf.executor import execute
from sar.graph.udf.outside import Outside
from sar.graph.udf.plan import Output, Slot, agreed_plan, described
from sar.graph.udf.stream import Traversal, UdfJob

from .steps import Step, ordered

__all__ = ["StepFunction", "run", "run_all"]

RESULT = "message"


class StepFunction:
    """Steps as a message function.

    :param results: the last step of each result, by name
    :param slot: names the column of which a step picks rows, alike on all workers
    """

    def __init__(self, results: Mapping[str, Step], slot: Optional[Callable[[Step], Slot]] = None) -> None:
        self.results = dict(results)
        self.order = ordered(*results.values())
        self.columns: Dict[Slot, Tensor] = {}
        self._slots: Dict[int, Slot] = {}
        known: Dict[object, Slot] = {}
        for at in self.order:
            if at.tensor is not None:
                # a tensor that is read in several places travels once; each side is counted by itself, so that names of
                # columns that travel do not depend on what workers have of others
                name = f"{sum(side == at.side for side, _ in known.values()):03d}"
                numbered = known.setdefault((at.side, id(at.tensor)), (at.side, name))
                self._slots[id(at)] = found = numbered if slot is None else slot(at)
                self.columns[found] = at.tensor

    def __call__(self, batch: Batch) -> Dict[str, Tensor]:
        found: Dict[int, Any] = {}
        for at in self.order:
            if at.tensor is not None:
                found[id(at)] = batch.read(*self._slots[id(at)])
            else:
                found[id(at)] = at.run(lambda leaf: found[id(leaf)] if isinstance(leaf, Step) else leaf)
        return {name: found[id(step)] for name, step in self.results.items()}

    @staticmethod
    def column(slot: Slot) -> Tensor:
        """:raises ValueError: another worker reads it, and this one does not"""
        raise ValueError("workers compute messages in different ways: the same code has to run on all of them")

    def outside(self) -> Outside:
        """The tensors with gradients that all edges share."""
        found = Outside()
        for at in self.order:
            found.see(list(at.others()))
        return found

    def outputs(self) -> Dict[str, Output]:
        """Feature shape and dtype of each result, and whether it needs a gradient."""
        found = {name: step.meta for name, step in self.results.items()}
        return {k: Output(tuple(t.shape[1:]), t.dtype, t.requires_grad) for k, t in found.items()}

    @property
    def edge_bytes(self) -> int:
        """Bytes that a run with its gradients takes for each edge, were everything kept."""
        made = [s.meta for s in self.order if isinstance(s.meta, Tensor) and not s.view]
        return 1 + 2 * sum(t.element_size() * t.shape[1:].numel() for t in made)

    def describe(self) -> Dict[str, Any]:
        """What workers agree on."""
        return described(self.columns, self.outputs())


def run(relation: Relation, step: Step, reduce: Optional[str]) -> Tensor:
    """The result of a step for all edges, or reduced at their destinations. Collective.

    :param reduce: "sum", "mean", "max" or "min"; None: ``[num_edges, ...]``
    :returns: ``[num_dst, ...]``
    """
    function = StepFunction({RESULT: step})
    answers, _ = agree(function.describe())
    return run_all(relation, function, answers, function.column, reduce)[RESULT]


def run_all(
    relation: Relation,
    function: StepFunction,
    answers: Sequence[Dict[str, Any]],
    column: Callable[[Slot], Tensor],
    reduce: Optional[str],
) -> Dict[str, Tensor]:
    """The results of steps by name, for all edges, or reduced at their destinations. Collective.

    :param answers: what workers said of their functions, see :func:`sar.graph.udf.plan.agreed_plan`
    :param column: gives a column that other workers read, and this one's steps do not
    """
    plan = agreed_plan(answers, function, function.columns, function.edge_bytes, column)
    needs = [t.requires_grad and torch.is_grad_enabled() for t in plan.columns]
    traversal = Traversal(UdfJob(relation, plan, reduce, function.outside()), needs)
    return execute(traversal, plan.columns, plan.outputs, "a function of edges")
