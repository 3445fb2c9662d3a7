"""Runs Python functions batch by batch in forward, and again in backward unless results were saved."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple

import torch
from torch import Tensor

from sar.autograd.once import calling_layer, differentiable_once
from sar.autograd.types import anchor
from sar.graph.message_passing.builtin import called

from .batches import SIDES, Batch, Read
from .trace import Compute, Output, Slot, SubstituteTensors, kept_buffers, leaves_of

MASK = (1 << 63) - 1


class Plan(NamedTuple):
    """What to run.

    ``compute``: the functions; ``functions``: what users wrote of it; ``slots``: columns they read; ``names``: of all
    columns of each side, for messages; ``outputs``: what they return, those wanted; ``differentiable``: whether any
    worker needs gradients; ``return_grads``: per slot, whether gradients of rows of other workers travel;
    ``parameters`` and ``captured``: tensors used besides; ``random``: whether random numbers are drawn; ``edge_bytes``:
    what a run takes for each edge; ``save``: whether to keep what forward computes.
    """

    compute: Compute
    functions: Sequence[Any]
    slots: List[Slot]
    names: Mapping[str, Sequence[str]]
    outputs: Dict[str, Output]
    differentiable: bool
    return_grads: List[bool]
    parameters: List[Tensor]
    captured: List[Tensor]
    random: bool
    edge_bytes: int
    save: bool


class PendingBatch(NamedTuple):
    """A batch to come.

    ``size``: edges, and nodes of a reduce function; ``gather``: picks the rows of every slot, leaves of which those
    require gradients for which they are wanted; ``batch``: makes the batch of rows.
    """

    size: Tuple[int, int]
    gather: Callable[[], List[Tensor]]
    batch: Callable[[List[Tensor]], Batch]


class UdfExecutor:
    """The runs of one operation on its batches.

    Random numbers of a batch are determined by one seed and the number of the batch, so the second run draws the same
    ones. The seed comes from torch's generator, which advances only if the functions draw from it.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        state = torch.get_rng_state()
        self._seed = int(torch.randint(0, MASK, (1,)).item())
        if not plan.random:
            torch.set_rng_state(state)
        self._cast = _autocast()
        self.saves_forward = plan.save and plan.differentiable
        self._saved: List[Tuple[List[Tensor], Dict[str, Tensor], List[Tensor]]] = []
        self._sizes: List[Tuple[int, int]] = []
        self.parameter_grads: List[Optional[Tensor]] = []

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """Around the runs on all batches, in forward or backward: leaves the random state as it was."""
        state = torch.get_rng_state()
        try:
            yield
        finally:
            torch.set_rng_state(state)

    def forward(self, piece: PendingBatch) -> Dict[str, Tensor]:
        """Runs the functions on a batch: what they return."""
        self._sizes.append(piece.size)
        self._draw(len(self._sizes) - 1)
        if not self.saves_forward:
            with torch.no_grad():
                return self._checked(self.plan.compute(piece.batch(piece.gather())))
        self._saved.append(self._run(piece))
        return {name: value.detach() for name, value in self._saved[-1][1].items()}

    def backward(
        self, number: int, piece: PendingBatch, gradient: Callable[[str, Tensor], Optional[Tensor]]
    ) -> List[Optional[Tensor]]:
        """Gradients of the rows of batch ``number``; adds those of parameters to what there is.

        :param gradient: of what the functions returned, by name and value
        """
        if number >= len(self._sizes) or self._sizes[number] != piece.size:
            raise RuntimeError(
                "edges come in other blocks in backward than in forward: leave Config.window_bytes and "
                "Config.block_bytes as they are from forward to backward"
            )
        if self.saves_forward:
            return self._differentiate(*self._saved[number], gradient)
        self._draw(number)
        with kept_buffers(self.plan.functions):
            return self._differentiate(*self._run(piece), gradient)

    def _differentiate(
        self,
        leaves: List[Tensor],
        outputs: Dict[str, Tensor],
        substitutes: List[Tensor],
        gradient: Callable[[str, Tensor], Optional[Tensor]],
    ) -> List[Optional[Tensor]]:
        pairs = [(value, gradient(name, value)) for name, value in outputs.items() if value.requires_grad]
        pairs = [(value, grad) for value, grad in pairs if grad is not None]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        used = [*self.plan.parameters, *substitutes]
        undeclared = _undeclared([value for value, _ in pairs], [*wanted, *used])
        if not pairs or not (wanted or used or undeclared):
            return [None] * len(leaves)
        grads = torch.autograd.grad(
            [value for value, _ in pairs],
            [*wanted, *used, *undeclared],
            [grad for _, grad in pairs],
            retain_graph=self.saves_forward,
            allow_unused=True,
        )
        of_rows = iter(grads[: len(wanted)])
        of_used, of_strays = grads[len(wanted) :][: len(used)], grads[len(wanted) + len(used) :]
        self._add(of_used)
        for stray, grad in zip(undeclared, of_strays):
            if grad is not None:
                stray.grad = grad if stray.grad is None else stray.grad + grad
        return [next(of_rows) if leaf.requires_grad else None for leaf in leaves]

    def _run(self, piece: PendingBatch) -> Tuple[List[Tensor], Dict[str, Tensor], List[Tensor]]:
        """Runs the functions on leaves, with leaves in the places of captured tensors."""
        leaves = piece.gather()
        substitutes = [t.detach().requires_grad_() for t in self.plan.captured]
        substitution = SubstituteTensors(self.plan.captured, substitutes) if substitutes else contextlib.nullcontext()
        with torch.enable_grad(), torch.autocast("cpu", enabled=self._cast[0], dtype=self._cast[1]), substitution:
            outputs = self._checked(self.plan.compute(piece.batch(leaves)))
        return leaves, outputs, substitutes

    def _add(self, grads: Sequence[Optional[Tensor]]) -> None:
        if not self.parameter_grads:
            self.parameter_grads = [None] * len(grads)
        for i, grad in enumerate(grads):
            old = self.parameter_grads[i]
            if grad is not None:
                self.parameter_grads[i] = grad if old is None else old.add_(grad)

    def _draw(self, number: int) -> None:
        torch.default_generator.manual_seed((self._seed + number * 0x9E3779B97F4A7C15) & MASK)

    def _checked(self, outputs: Dict[str, Tensor]) -> Dict[str, Tensor]:
        """The outputs that are wanted, if they are what they were in the trial."""
        for name, expected in self.plan.outputs.items():
            if name not in outputs:
                there = ", ".join(sorted(outputs)) or "nothing"
                raise ValueError(f"the function returned no {name!r} this time: there is {there}")
            value = outputs[name]
            if tuple(value.shape[1:]) != expected.shape or value.dtype != expected.dtype:
                raise ValueError(
                    f"the function returned {name!r} as {value.dtype} {tuple(value.shape[1:])} per row, and as "
                    f"{expected.dtype} {expected.shape} before: shape and dtype must not depend on the rows"
                )
        return {name: outputs[name] for name in self.plan.outputs}


class Traversal(Protocol):
    """Goes through the batches of an operation, forward and again backward. Both are collective."""

    executor: UdfExecutor

    def forward(self, columns: List[Tensor]) -> List[Tensor]:
        """The results, one for each output, from the columns of every slot."""

    def backward(self, columns: List[Tensor], grads: List[Optional[Tensor]]) -> List[Optional[Tensor]]:
        """Gradients of the columns from those of the results."""


def execute(plan: Plan, columns: Sequence[Tensor], make: Callable[[List[bool]], Traversal]) -> Dict[str, Tensor]:
    """Runs a plan, under autograd. Collective.

    :param columns: of every slot
    :param make: makes the traversal, given of which columns this worker needs gradients
    :returns: results by name
    """
    name = calling_layer(f"the function {called(plan.functions[-1])}")
    results = _Recomputed.apply(anchor(), make, name, len(columns), *columns, *plan.parameters, *plan.captured)
    return {
        name: result if plan.differentiable and result.is_floating_point() else result.detach()
        for name, result in zip(plan.outputs, results)
    }


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, make: Callable[[List[bool]], Traversal], name: str, count: int, *tensors: Tensor
    ) -> Tuple[Tensor, ...]:
        ctx.name = name
        ctx.traversal = make(list(ctx.needs_input_grad[4 : 4 + count]))
        results = ctx.traversal.forward(list(tensors[:count]))
        ctx.save_for_backward(*tensors)
        ctx.count = count
        ctx.mark_non_differentiable(*(r for r in results if not r.is_floating_point()))
        return tuple(results)

    @staticmethod
    @differentiable_once(lambda ctx: ctx.name)
    def backward(ctx: Any, *grads: Optional[Tensor]) -> Tuple[Optional[Tensor], ...]:
        tensors = ctx.saved_tensors
        ctx.traversal.executor.parameter_grads = []
        of_columns = ctx.traversal.backward(list(tensors[: ctx.count]), list(grads))
        of_others = ctx.traversal.executor.parameter_grads or [None] * (len(tensors) - ctx.count)
        return (None, None, None, None, *of_columns, *of_others)


def rows_of(slots: Sequence[Slot], rows: Sequence[Tensor]) -> Read:
    """Reads the rows that were picked for a batch."""
    found = dict(zip(slots, rows))

    def read(side: str, name: str) -> Tensor:
        if (side, name) in found:
            return found[side, name]
        raise KeyError(
            f"{SIDES[side]}[{name!r}] was not read when the function was tried on a few rows, so it is not there now: "
            "read the same columns whatever the rows hold"
        )

    return read


def _undeclared(outputs: Sequence[Tensor], known: Sequence[Tensor]) -> List[Tensor]:
    """Leaves with gradients that the trial did not show: theirs are added to ``grad`` directly."""
    ours = {id(t) for t in known}
    found = {id(t): t for t in leaves_of(outputs) if id(t) not in ours}
    return list(found.values())


def _autocast() -> Tuple[bool, torch.dtype]:
    """Whether operations run in a lower precision, and in which."""
    try:
        return torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    except (TypeError, AttributeError):  # before torch 2.4
        return torch.is_autocast_cpu_enabled(), torch.get_autocast_cpu_dtype()
