"""Runs functions batch by batch in forward, and again in backward unless results were saved."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Protocol, Sequence, Tuple

import torch
from torch import Tensor

from sar.autograd.once import calling_layer, differentiable_once
from sar.autograd.types import anchor
from sar.graph.edge_tensor.calls import autocast_state

from .batches import Batch, Read
from .outside import Outside, Replay, leaves_of
from .plan import Compute, Output, Slot

MASK = (1 << 63) - 1


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
    ones. The seed comes from torch's generator, which advances only if the function draws from it.

    :param compute: what is computed for a batch
    :param save: keep what forward computes
    :param outputs: what it returns by name, those wanted. None: what it returns for the first batch
    :param outside: what it uses besides rows. None: that is found while it runs
    """

    def __init__(
        self,
        compute: Compute,
        save: bool,
        outputs: Optional[Dict[str, Output]] = None,
        outside: Optional[Outside] = None,
    ) -> None:
        self.compute, self.saves_forward = compute, save
        self.outputs = dict(outputs or {})
        self.outside = outside or Outside()
        self._observes = outside is None
        self._cast = autocast_state()
        self._seed, self._drew = 0, False
        self._saved: List[Tuple[List[Tensor], Dict[str, Tensor]]] = []
        self._sizes: List[Tuple[int, int]] = []
        self.gradients: List[Optional[Tensor]] = []
        """Of :attr:`tensors`."""

    @property
    def tensors(self) -> List[Tensor]:
        """What is used besides rows: parameters, then results of earlier operations."""
        return [*self.outside.parameters, *self.outside.captured]

    @contextlib.contextmanager
    def forward_session(self) -> Iterator[None]:
        """Around the runs on all batches in forward."""
        before = torch.get_rng_state()
        self._seed = int(torch.randint(0, MASK, (1,)).item())
        after = torch.get_rng_state()
        try:
            yield
        finally:
            torch.set_rng_state(after if self._drew else before)

    @contextlib.contextmanager
    def backward_session(self) -> Iterator[None]:
        """Around the runs on all batches in backward: leaves the random state as it was."""
        state = torch.get_rng_state()
        self.gradients = [None] * len(self.tensors)
        try:
            yield
        finally:
            torch.set_rng_state(state)

    def forward(self, piece: PendingBatch) -> Dict[str, Tensor]:
        """Runs the function on a batch: what it returns."""
        self._sizes.append(piece.size)
        self._draw(len(self._sizes) - 1)
        before = torch.get_rng_state()
        # what the function uses shows in its gradients, also where they are not kept
        with torch.set_grad_enabled(self.saves_forward or (self._observes and torch.is_grad_enabled())):
            rows = piece.gather()
            if self._observes:
                found = self._observed(piece, rows)
            else:
                with Replay(self.outside, rows) if self.saves_forward else contextlib.nullcontext():
                    found = self.compute(piece.batch(rows))
        found = self._checked(found)
        if self.saves_forward:
            self._saved.append((rows, found))
        self._drew = self._drew or not torch.equal(before, torch.get_rng_state())
        return {name: value.detach() for name, value in found.items()}

    def _observed(self, piece: PendingBatch, rows: List[Tensor]) -> Dict[str, Tensor]:
        """Runs the function and takes note of what it uses and returns."""
        self.outside.begin(rows)
        with self.outside:
            found = self.compute(piece.batch(rows))
        self.outside.see(list(leaves_of(list(found.values()))))
        self.outside.begin(())
        for name, value in found.items():
            kind = Output(tuple(value.shape[1:]), value.dtype, value.requires_grad)
            before = self.outputs.setdefault(name, kind)
            self.outputs[name] = before._replace(differentiable=before.differentiable or kind.differentiable)
        return found

    def backward(
        self, number: int, piece: PendingBatch, gradient: Callable[[str, Tensor], Optional[Tensor]]
    ) -> List[Optional[Tensor]]:
        """Gradients of the rows of batch ``number``; adds those of what is used besides to what there is.

        :param gradient: of what the function returned, by name and value
        """
        if number >= len(self._sizes) or self._sizes[number] != piece.size:
            raise RuntimeError(
                "edges come in other blocks in backward than in forward: leave Config.window_bytes and "
                "Config.block_bytes as they are from forward to backward"
            )
        used = [*self.outside.parameters, *self.outside.instead]
        if self.saves_forward:
            rows, outputs = self._saved[number]
        else:
            self._draw(number)
            with torch.enable_grad():
                rows = piece.gather()
            cast = torch.autocast("cpu", enabled=self._cast[0], dtype=self._cast[1])
            with torch.enable_grad(), cast, Replay(self.outside, rows):
                outputs = self._checked(self.compute(piece.batch(rows)))
        pairs = [(value, gradient(name, value)) for name, value in outputs.items() if value.requires_grad]
        pairs = [(value, grad) for value, grad in pairs if grad is not None]
        wanted = [row for row in rows if row.requires_grad]
        if not pairs or not (wanted or used):
            return [None] * len(rows)
        grads = torch.autograd.grad(
            [value for value, _ in pairs],
            [*wanted, *used],
            [grad for _, grad in pairs],
            retain_graph=self.saves_forward,
            allow_unused=True,
        )
        for i, grad in enumerate(grads[len(wanted) :]):
            old = self.gradients[i]
            if grad is not None:
                self.gradients[i] = grad if old is None else old.add_(grad)
        of_rows = iter(grads[: len(wanted)])
        return [next(of_rows) if row.requires_grad else None for row in rows]

    def _draw(self, number: int) -> None:
        torch.default_generator.manual_seed((self._seed + number * 0x9E3779B97F4A7C15) & MASK)

    def _checked(self, outputs: Dict[str, Tensor]) -> Dict[str, Tensor]:
        """The outputs that are wanted, if they are what they were before."""
        for name, expected in self.outputs.items():
            if name not in outputs:
                there = ", ".join(sorted(outputs)) or "nothing"
                raise ValueError(f"the function returned no {name!r} this time: there is {there}")
            value = outputs[name]
            if tuple(value.shape[1:]) != expected.shape or value.dtype != expected.dtype:
                raise ValueError(
                    f"the function returned {name!r} as {value.dtype} {tuple(value.shape[1:])} per row, and as "
                    f"{expected.dtype} {expected.shape} before: shape and dtype must not depend on the rows"
                )
        return {name: outputs[name] for name in self.outputs}


class Traversal(Protocol):
    """Goes through the batches of an operation, forward and again backward. Both are collective."""

    executor: UdfExecutor

    def forward(self, columns: List[Tensor]) -> List[Tensor]:
        """The results, one for each output, from the columns of every slot."""

    def backward(self, columns: List[Tensor], grads: List[Optional[Tensor]]) -> List[Optional[Tensor]]:
        """Gradients of the columns from those of the results."""


def execute(
    traversal: Traversal, columns: Sequence[Tensor], outputs: Dict[str, Output], name: str
) -> Dict[str, Tensor]:
    """Runs a traversal, under autograd. Collective.

    :param columns: of every slot
    :param outputs: what workers agreed that it returns
    :param name: what errors call it
    :returns: results by name
    """
    outside = traversal.executor.tensors
    results = _Recomputed.apply(anchor(), traversal, calling_layer(name), len(columns), *columns, *outside)
    differentiable = any(out.differentiable for out in outputs.values())
    return {
        name: result if differentiable and result.is_floating_point() else result.detach()
        for name, result in zip(outputs, results)
    }


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, traversal: Traversal, name: str, count: int, *tensors: Tensor
    ) -> Tuple[Tensor, ...]:
        ctx.name, ctx.traversal, ctx.count = name, traversal, count
        results = traversal.forward(list(tensors[:count]))
        ctx.save_for_backward(*tensors)
        ctx.mark_non_differentiable(*(r for r in results if not r.is_floating_point()))
        return tuple(results)

    @staticmethod
    @differentiable_once(lambda ctx: ctx.name)
    def backward(ctx: Any, *grads: Optional[Tensor]) -> Tuple[Optional[Tensor], ...]:
        of_columns = ctx.traversal.backward(list(ctx.saved_tensors[: ctx.count]), list(grads))
        return (None, None, None, None, *of_columns, *ctx.traversal.executor.gradients)


def rows_of(slots: Sequence[Slot], rows: Sequence[Tensor]) -> Read:
    """Reads the rows that were picked for a batch."""
    found = dict(zip(slots, rows))
    return lambda side, name: found[side, name]
