"""Runs expressions on blocks of edges, as rows of other workers arrive, in forward and again in backward."""

from __future__ import annotations

from math import prod
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Sequence

import torch
from torch import Tensor

from sar.autograd.dtypes import refusal
from sar.autograd.expression import Expr
from sar.autograd.types import ordered
from sar.distributed.agreement import agree
from sar.graph.edge_tensor.calls import Call, computed, needs_grad
from sar.graph.edge_tensor.nested import tensors
from sar.graph.relation import Relation

from .agreement import Output, Slot, agreed_columns, agreed_outputs, described
from .batches import Batch
from .blocks import Streamed
from .executor import Executor
from .outside import Outside
from .reduction import reduction

RESULT = "message"


class EdgeFunction:
    """Expressions as a function of rows of edges.

    :param results: the expressions by name, of parts that treat each edge by itself
    :param slot: names the column of which a load picks rows, alike on all workers
    """

    def __init__(self, results: Mapping[str, Expr], slot: Optional[Callable[[Expr], Slot]] = None) -> None:
        self.results = dict(results)
        self.order = ordered(*results.values())
        self.columns: Dict[Slot, Tensor] = {}
        self._slots: Dict[int, Slot] = {}
        known: Dict[object, Slot] = {}
        for x in self.order:
            if isinstance(x, Call):
                x.check()
            elif x.op == "load" and x.tensor is not None:
                # a tensor that is read in several places travels once; each side is counted by itself, so that names of
                # columns that travel do not depend on what workers have of others
                name = f"{sum(side == x.side for side, _ in known.values()):03d}"
                numbered = known.setdefault((x.side, id(x.tensor)), (x.side, name))
                self._slots[id(x)] = found = numbered if slot is None else slot(x)
                self.columns[found] = x.tensor

    def __call__(self, batch: Batch) -> Dict[str, Tensor]:
        found: Dict[int, Any] = {}
        for x in self.order:
            found[id(x)] = batch.read(*self._slots[id(x)]) if x.op == "load" else computed(x, found)
        return {name: found[id(x)] for name, x in self.results.items()}

    @staticmethod
    def column(slot: Slot) -> Tensor:
        """:raises ValueError: another worker reads it, and this one does not"""
        raise ValueError("workers compute messages in different ways: the same code has to run on all of them")

    def outside(self) -> Outside:
        """The tensors with gradients that all edges share."""
        found = Outside()
        for x in self.order:
            found.see(list(_shared(x)))
        return found

    def outputs(self) -> Dict[str, Output]:
        """Feature shape and dtype of each result, and whether it needs a gradient."""
        return {name: Output(x.shape, x.dtype, needs_grad(x)) for name, x in self.results.items()}

    @property
    def edge_bytes(self) -> int:
        """Bytes that a run with its gradients takes for each edge, were everything kept."""
        made = [x for x in self.order if x.op not in ("param", "reshape") and not getattr(x, "view", False)]
        made = [x for x in made if not getattr(x, "several", False)]
        return 1 + 2 * sum(x.dtype.itemsize * prod(x.shape) for x in made)

    def describe(self) -> Dict[str, Any]:
        """What workers agree on."""
        return described(self.columns, self.outputs())


def _shared(x: Expr) -> Iterator[Tensor]:
    """Tensors with gradients that all edges share, of a part of an expression."""
    found = [*tensors(x.given), *x.used] if isinstance(x, Call) and x.grad else [x.tensor] if x.op == "param" else []
    return (t for t in found if t is not None and t.requires_grad)


def run(relation: Relation, x: Expr, reduce: Optional[str]) -> Tensor:
    """An expression for all edges, or reduced at their destinations. Collective.

    :param reduce: "sum", "mean", "max" or "min"; None: ``[num_edges, ...]``
    :returns: ``[num_dst, ...]``
    """
    function = EdgeFunction({RESULT: x})
    answers, _ = agree(function.describe())
    return run_all(relation, function, answers, function.column, reduce)[RESULT]


def run_all(
    relation: Relation,
    function: EdgeFunction,
    answers: Sequence[Dict[str, Any]],
    column: Callable[[Slot], Tensor],
    reduce: Optional[str],
) -> Dict[str, Tensor]:
    """The results of expressions by name, for all edges, or reduced at their destinations. Collective.

    :param answers: what workers said of their functions, see :func:`sar.graph.udf.agreement.described`
    :param column: gives a column that other workers read, and this one's expressions do not
    """
    columns, outputs = agreed_columns(answers, function.columns, column), agreed_outputs(answers)
    for name, out in outputs.items():
        if reduce is not None and out.dtype == torch.float16:
            raise TypeError(refusal(f"the message {name!r}", out.dtype))
    wanted = any(out.differentiable for out in outputs.values())
    blocks = Streamed(relation, function.edge_bytes)
    collect = lambda out: reduction(relation, reduce, out, wanted)  # noqa: E731
    executor = Executor(function, columns, blocks, collect, outputs, function.outside())
    executor.run()
    return executor.results("a function of edges")
