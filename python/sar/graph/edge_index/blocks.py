"""Runs steps on blocks of edges, as rows of other workers arrive, in forward and again in backward."""

from __future__ import annotations

from typing import Dict, List, Optional

from torch import Tensor

from sar._engine import session as _session
from sar.graph.relation import Relation
from sar.graph.udf.batches import Batch
from sar.graph.udf.executor import execute
from sar.graph.udf.plan import Task, prepare
from sar.graph.udf.stream import Traversal, UdfJob

from .steps import Step, ordered

__all__ = ["run"]

RESULT = "message"


class StepFunction:
    """Steps as the message function of a graph.

    :param step: the last one
    """

    __qualname__ = "a function of edges"

    def __init__(self, step: Step) -> None:
        self.order = ordered(step)
        self.columns: Dict[str, Dict[str, Tensor]] = {"u": {}, "v": {}, "e": {}}
        self._names: Dict[int, str] = {}
        known: Dict[object, str] = {}
        for at in self.order:
            if at.tensor is not None:
                # a tensor that is read in several places travels once
                name = known.setdefault((at.side, id(at.tensor)), f"{len(known):03d}")
                self._names[id(at)] = name
                self.columns[at.side][name] = at.tensor

    @property
    def names(self) -> Dict[str, List[str]]:
        """Names of the columns of each side: the same on every worker."""
        return {side: list(columns) for side, columns in self.columns.items()}

    def column(self, side: str, name: str) -> Tensor:
        """A column of which rows are read.

        :raises ValueError: another worker reads it, and this one does not
        """
        if name not in self.columns[side]:
            raise ValueError(
                "workers compute messages in different ways: a tensor has as many rows as another worker has edges, "
                "and was taken for one of edges there. Make it a torch.nn.Parameter, or give it one more dimension in "
                "front"
            )
        return self.columns[side][name]

    def __call__(self, batch: Batch) -> Dict[str, Tensor]:
        found: Dict[int, Tensor] = {}
        for at in self.order:
            if at.tensor is not None:
                found[id(at)] = batch.read(at.side, self._names[id(at)])
                continue
            result = at.run(batch.size, lambda s: found[id(s)])
            found[id(at)] = result if at.pick is None else result[at.pick]
        return {RESULT: found[id(self.order[-1])]}


def run(relation: Relation, step: Step, reduce: Optional[str]) -> Tensor:
    """The result of a step for all edges, or reduced at their destinations. Collective.

    :param reduce: "sum", "mean", "max" or "min"; None: ``[num_edges, ...]``
    :returns: ``[num_dst, ...]``
    """
    function = StepFunction(step)
    names = function.names
    task = Task(function, [function], function.column, names, _session.current().rank, False, RESULT)
    plan, columns, _ = prepare(task)
    job = UdfJob(relation, plan, reduce, None)
    return execute(plan, columns, lambda needs: Traversal(job, needs))[RESULT]
