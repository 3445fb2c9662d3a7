"""Runs a Python function of edges once, on tensors that record what is computed from them.

The columns that the function reads are edge tensors, so what it returns is a computation for each edge, which runs
later, on blocks of edges. Where the function needs values (it branches on them, or looks at several edges together), it
gets those of all the worker's edges. That takes rows of other workers, which some workers may need and others not, so a
worker whose function has returned serves the others until all have returned.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from sar.autograd.double_backward import differentiable_once
from sar.autograd.dtypes import FLOATS
from sar.autograd.expression import Expr, evaluate
from sar.autograd.fetch import fetch
from sar.autograd.types import ordered
from sar.distributed.agreement import agree
from sar.errors import PeerLostError, RemoteError, ScheduleError
from sar.graph.edge_tensor.calls import by_rows, rows
from sar.graph.edge_tensor.tensor import EdgeTensor, as_expr, values
from sar.graph.frames import is_lazy
from sar.graph.queries import edge_ends
from sar.graph.udf.agreement import Output, Slot, agreed_outputs, described
from sar.graph.udf.batches import Batch
from sar.graph.udf.edge_function import EdgeFunction, run_all

from .edge_space import EdgeSpace

DETACHED = "\0detached"
"""What follows the name of a column that was read where gradients are off."""


class Recording:
    """The edges that a function runs on.

    Read as the ``edges`` of edge tensors.

    :param space: the relation and its columns
    :param chosen: positions of the edges, int64; ``None``: all
    """

    on_nodes = False
    """Linear maps of columns are not computed on nodes: another worker may ask for columns alone."""

    def __init__(self, space: EdgeSpace, chosen: Optional[Tensor] = None) -> None:
        self.space, self.relation, self.chosen = space, space.relation, chosen
        self.num_edges = self.relation.num_edges if chosen is None else len(chosen)
        self._columns: Dict[Slot, Tensor] = {}
        self._slots: Dict[Tuple[str, int], Slot] = {}
        self._fetched: Dict[str, Tensor] = {}
        self._served: List[Tensor] = []

    # ---- columns -----------------------------------------------------------

    def batch(self) -> Batch:
        """The edges, for a function to run on."""
        read = self.recorded if self.chosen is None else self.rows
        return Batch(self.num_edges, self.space.names(), read, self._peers)

    def column(self, slot: Slot) -> Tensor:
        """A whole column. An edge column that is not computed yet is computed by all workers."""
        side, name = slot
        if slot not in self._columns:
            if side == "e" and name in self.space.edge and is_lazy(self.space.edge[name]):
                self._round(slot)
            else:
                self._keep(slot)
        return self._columns[slot]

    def _keep(self, slot: Slot) -> Tensor:
        side, name = slot
        plain = name[: -len(DETACHED)] if name.endswith(DETACHED) else name
        found = self.space.column(side, plain)
        self._columns[slot] = found if name == plain else found.detach()
        self._slots[side, id(self._columns[slot])] = slot
        return self._columns[slot]

    def recorded(self, side: str, name: str) -> Tensor:
        """A column picked by edge, not computed."""
        column = self.column((side, name))
        if column.requires_grad and not torch.is_grad_enabled():
            column = self.column((side, name + DETACHED))
        found = EdgeTensor(self.relation, rows(side, column), self)
        if side == "e":
            found.lies_in(column)
        return found

    def rows(self, side: str, name: str) -> Tensor:
        """A column picked by edge, computed."""
        column = self.column((side, name)) if side != "u" else self._fetched.get(name)
        if column is None:
            self._round((side, name))
            column = self._fetched[name]
        if side == "e":
            return column if self.chosen is None else column.index_select(0, self.chosen)
        return column.index_select(0, self._ends[side == "v"])

    @functools.cached_property
    def _ends(self) -> Tuple[Tensor, Tensor]:
        """Columns of sources and rows of destinations."""
        columns, rows = edge_ends(self.relation)
        return (columns, rows) if self.chosen is None else (columns[self.chosen], rows[self.chosen])

    def _peers(self) -> Tensor:
        """The worker that owns the source of each edge."""
        return self.relation.columns_owner().index_select(0, self._ends[0])

    # ---- values ------------------------------------------------------------

    def compute(self, x: Expr) -> Tensor:
        """The values of an expression, for all edges."""
        function = EdgeFunction({"": by_rows(self.relation, x)}, self.slot)
        return function(Batch(self.num_edges, {}, self.rows, 0))[""]

    def slot(self, x: Expr) -> Slot:
        """The column of which a load picks rows. A tensor of edges that the function brought along, or made, becomes
        one.

        :raises TypeError: rows of sources that are no column of the graph
        """
        assert x.tensor is not None
        side, tensor = x.side, x.tensor
        key = side, id(tensor)
        if key not in self._slots:
            slot = (side, f"\0{len(self._columns)}") if side != "u" else self._same_rows(tensor)
            self._columns[slot], self._slots[key] = tensor, slot
        return self._slots[key]

    def _same_rows(self, tensor: Tensor) -> Slot:
        """The column of sources that a tensor was detached from."""
        for (side, name), column in self._columns.items():
            alike = side == "u" and column.data_ptr() == tensor.data_ptr() and column.shape == tensor.shape
            if alike and column.dtype == tensor.dtype and not name.endswith(DETACHED):
                return side, name + DETACHED
        raise TypeError(
            "a function of edges used rows of source nodes that are not among its edges.src: put them into a column of "
            "the graph first"
        )

    def columns_of(self, tensors: Sequence[Tensor]) -> Dict[Slot, Tensor]:
        """The columns that edge tensors are computed from."""
        parts = [x for t in tensors if isinstance(t, EdgeTensor) for x in ordered(t.computation)]
        return {self.slot(x): x.tensor for x in parts if x.op == "load" and x.tensor is not None}

    def written(self, tensor: Tensor) -> Any:
        """An expression in words that are alike on all workers; None for what is no expression."""
        if not isinstance(tensor, EdgeTensor):
            return [str(tensor.dtype)] if tensor.dtype in FLOATS else None
        if not tensor.in_engine:
            return None
        order = ordered(tensor.expr)
        places = {id(x): n for n, x in enumerate(order)}
        return [
            [
                *(x.op, list(x.shape), str(x.dtype), x.alpha, list(x.dims), x.seed),
                self.slot(x) if x.side == "u" else x.side,
                [places[id(a)] for a in x.args],
            ]
            for x in order
        ]

    def _round(self, slot: Slot) -> None:
        """Computes a column of edges, or fetches the rows of one of sources, for the workers that want it. Collective:
        the others want something too, or are in :meth:`finish`."""
        self._serve(agree({"wanted": list(slot)})[0], slot)

    def _serve(self, answers: List[Dict[str, Any]], wanted: Optional[Slot] = None) -> None:
        for side, name in sorted({tuple(a["wanted"]) for a in answers if "wanted" in a}):
            column = self._columns[side, name] if (side, name) in self._columns else self._keep((side, name))
            if side == "u":
                mine = wanted == (side, name)
                found = fetch(self.relation, torch.arange(self.relation.num_columns if mine else 0), column)
                self._served.append(found)
                if mine:
                    self._fetched[name] = found

    def finish(self, mine: Dict[str, Any]) -> List[Dict[str, Any]]:
        """Serves other workers until the functions of all have returned. Collective.

        :param mine: what to tell them
        :returns: what each of them tells, or a single entry if all tell the same
        """
        while True:
            answers, _ = agree(mine)
            if not any("wanted" in a for a in answers):
                return answers
            self._serve(answers)

    def tied(self, result: Tensor) -> Tensor:
        """The same result. Its backward pass goes through all fetches, on every worker."""
        served = [t for t in self._served if t.requires_grad]
        if not served or not result.is_floating_point():
            return result
        tied: Tensor = _Tie.apply(result, *served)
        return tied


class _Tie(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, result: Tensor, *served: Tensor) -> Tensor:
        ctx.save_for_backward(*served)
        return result.view_as(result)

    @staticmethod
    @differentiable_once("a function of edges")
    def backward(ctx: Any, grad: Tensor) -> Tuple[Tensor, ...]:
        return (grad, *(torch.zeros_like(t) for t in ctx.saved_tensors))


class Recorded(NamedTuple):
    """What a function returned, and what all workers agreed on.

    ``tensors``: by name, those wanted; ``answers``: what the workers that have some said of theirs; ``fused``: they are
    the same expressions on all workers; ``recording``: by which they were made.
    """

    tensors: Dict[str, Tensor]
    answers: List[Dict[str, Any]]
    fused: bool
    recording: Recording

    def function(self) -> EdgeFunction:
        """What was returned, to run on blocks. Collective where an expression has softmaxes or dropouts."""
        found = {k: t.by_rows() if isinstance(t, EdgeTensor) else rows("e", t) for k, t in self.tensors.items()}
        return EdgeFunction(found, self.recording.slot)

    def results(self, reduce: Optional[str]) -> Dict[str, Tensor]:
        """For all edges, or reduced at their destinations. Collective."""
        recording, relation = self.recording, self.recording.relation
        outputs = agreed_outputs(self.answers)
        if recording.chosen is not None and reduce is None:
            none = {k: torch.zeros((0, *out.shape), dtype=out.dtype) for k, out in outputs.items()}
            found = {k: values(self.tensors.get(k, t)) for k, t in none.items()}
        elif self.fused:
            found = {k: evaluate(relation, as_expr(t, "e"), reduce) for k, t in self.tensors.items()}
        else:
            found = run_all(relation, self.function(), self.answers, recording.column, reduce)
        return {k: recording.tied(t) if outputs[k].differentiable else t for k, t in found.items()}


def record(
    space: EdgeSpace,
    function: Callable[[Batch], Dict[str, Tensor]],
    name: str,
    wanted: Optional[str] = None,
    chosen: Optional[Tensor] = None,
) -> Recorded:
    """Runs a function of edges. Collective.

    :param name: what errors call the function
    :param wanted: the one result that is needed; None: all
    :param chosen: positions of the edges to run on, int64; None: all
    :raises ValueError: the result wanted is not there
    :raises Exception: what the function raised
    :raises RemoteError: the function failed on another worker
    """
    recording = Recording(space, chosen)
    tensors: Dict[str, Tensor] = {}
    error: Optional[Exception] = None
    try:
        tensors = function(recording.batch())
        if wanted is not None:
            tensors = {wanted: _picked(tensors, wanted, name)}
        outputs = {k: Output(tuple(t.shape[1:]), t.dtype, t.requires_grad) for k, t in tensors.items()}
        mine = described(recording.columns_of(list(tensors.values())), outputs)
        mine["written"] = {k: recording.written(t) for k, t in tensors.items()}
    except (PeerLostError, ScheduleError):
        raise
    except Exception as caught:
        error, tensors = caught, {}
        mine = {"error": f"{type(caught).__name__}: {caught}"[:_LONGEST], "edges": recording.num_edges > 0}
    answers = recording.finish(mine)
    failed = [n for n, a in enumerate(answers) if a.get("edges")]
    if error is not None and (recording.num_edges or all("error" in a for a in answers)):
        raise error
    if failed:
        text = answers[failed[0]]["error"]
        raise RemoteError(f"{name} failed on rank {failed[0]}, so no rank goes on: {text}", failed[0])
    good = [a for a in answers if "error" not in a]
    first = good[0]["written"]
    fused = len(good) == len(answers) and None not in first.values() and all(a["written"] == first for a in good)
    return Recorded(tensors, good, fused, recording)


_LONGEST = 4000
"""Characters of an error that other workers are told."""


def _picked(tensors: Dict[str, Tensor], wanted: str, name: str) -> Tensor:
    if wanted not in tensors:
        raise ValueError(
            f"{name} returned {', '.join(map(repr, sorted(tensors))) or 'nothing'}, but the reducer reads {wanted!r}: "
            "give both the same name"
        )
    return tensors[wanted]
