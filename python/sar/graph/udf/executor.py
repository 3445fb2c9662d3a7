"""Runs functions block by block in forward, and again in backward unless results were saved."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import Tensor

from sar._engine.storage import computed_in
from sar.autograd.autocast import autocast_state, under
from sar.autograd.double_backward import calling_layer, differentiable_once, refuse_transforms
from sar.autograd.stream import Block
from sar.autograd.types import anchor
from sar.config import Config

from .agreement import Column, Output, Slot
from .batches import Batch
from .blocks import Blocks
from .outside import Outside, Replay, leaves_of
from .reduction import Reduction

MASK = (1 << 63) - 1

Compute = Callable[[Batch], Dict[str, Tensor]]


class Executor:
    """The runs of one function on its blocks.

    Random numbers of a block are determined by one seed and the number of the block, so the second run draws the same
    ones. The seed comes from torch's generator, which advances only if the function draws from it.

    :param compute: what is computed for a block
    :param columns: of which it reads rows
    :param blocks: the blocks
    :param reduction: collects what the function returns under one name
    :param outputs: what it returns by name, those wanted. None: what it returns for the first block
    :param outside: what it uses besides rows. None: that is found while it runs
    :param names: of the columns of each side that it may read besides
    :param column: gives these
    """

    def __init__(
        self,
        compute: Compute,
        columns: Mapping[Slot, Column],
        blocks: Blocks,
        reduction: Callable[[Output], Reduction],
        outputs: Optional[Dict[str, Output]] = None,
        outside: Optional[Outside] = None,
        names: Optional[Mapping[str, Sequence[str]]] = None,
        column: Optional[Callable[[Slot], Tensor]] = None,
    ) -> None:
        self.compute, self.blocks = compute, blocks
        self.slots, self.columns = list(columns), [column.tensor for column in columns.values()]
        self.returns = [column.returns for slot, column in columns.items() if slot[0] == "u"]
        self.outputs = dict(outputs or {})
        self.outside = outside or Outside()
        self._reduction, self._names, self._column = reduction, names or {}, column
        self._observes = outside is None
        self._grad, self._cast = torch.is_grad_enabled(), autocast_state()
        wanted = self._grad if outputs is None else any(out.differentiable for out in outputs.values())
        self.saves_forward = bool(Config.disable_sr) and wanted
        self._seed, self._drew = 0, False
        self._saved: List[Tuple[List[Tensor], Dict[str, Tensor]]] = []
        self._sizes: List[Tuple[int, int]] = []
        self._results: Dict[str, Reduction] = {}
        self._sums: List[Optional[Tensor]] = []
        self._gradients: List[Optional[Tensor]] = []

    def run(self) -> None:
        """Runs the function on all blocks. Collective."""
        refuse_transforms()
        state = torch.get_rng_state()
        self._seed = int(torch.randint(0, MASK, (1,)).item())
        after = torch.get_rng_state()
        try:
            self.blocks.forward([column.detach() for column in self._of_sources(self.columns)], self._forward)
        finally:
            torch.set_rng_state(after if self._drew else state)

    def results(self, name: str) -> Dict[str, Tensor]:
        """What all blocks gave, by name, under autograd.

        :param name: what errors call the function
        """
        found = _Recomputed.apply(
            anchor(), self, calling_layer(name), len(self.columns), *self.columns, *self._used(self.outside.captured)
        )
        differentiable = any(out.differentiable for out in self.outputs.values())
        return {
            name: result if differentiable and result.is_floating_point() else result.detach()
            for name, result in zip(self.outputs, found)
        }

    def collected(self) -> List[Tensor]:
        """What all blocks gave, in the order of the outputs."""
        return [self._result(name).result() for name in self.outputs]

    def _result(self, name: str) -> Reduction:
        if name not in self._results:
            self._results[name] = self._reduction(self.outputs[name])
        return self._results[name]

    def _used(self, captured: List[Tensor]) -> List[Tensor]:
        """What is used besides rows: parameters, then results of earlier operations, or what stands for them."""
        return [*self.outside.parameters, *captured]

    def _of_sources(self, columns: Sequence[Any]) -> List[Any]:
        return [column for (side, _), column in zip(self.slots, columns) if side == "u"]

    # ---- a block -----------------------------------------------------------

    def _forward(self, block: Block) -> None:
        self._sizes.append(block.size)
        self._draw(len(self._sizes) - 1)
        before = torch.get_rng_state()
        # what the function uses shows in its gradients, also where they are not kept
        with torch.set_grad_enabled(self.saves_forward or (self._observes and self._grad)):
            rows = self._rows(block, self.returns)
            if self._observes:
                found = self._observed(block, rows)
            else:
                with Replay(self.outside, rows) if self.saves_forward else contextlib.nullcontext():
                    found = self.compute(self._batch(block, rows))
        found = self._checked(found)
        if self.saves_forward:
            self._saved.append((rows, found))
        self._drew = self._drew or not torch.equal(before, torch.get_rng_state())
        for name, value in found.items():
            self._result(name).add(block.at, value.detach())

    def _observed(self, block: Block, rows: List[Tensor]) -> Dict[str, Tensor]:
        """Runs the function and takes note of what it uses and returns."""
        self.outside.begin(rows)
        with self.outside:
            found = self.compute(self._batch(block, rows))
        self.outside.see(list(leaves_of(list(found.values()))))
        self.outside.begin(())
        for name, value in found.items():
            kind = Output(tuple(value.shape[1:]), value.dtype, value.requires_grad)
            before = self.outputs.setdefault(name, kind)
            self.outputs[name] = before._replace(differentiable=before.differentiable or kind.differentiable)
        return found

    def _rows(self, block: Block, of_sources: Sequence[Any]) -> List[Tensor]:
        """The rows of every slot, leaves.

        :param of_sources: true where those of sources get gradients
        """
        streamed = iter(zip(block.rows, of_sources))
        found = []
        for (side, _), column in zip(self.slots, self.columns):
            needs: Any = column.requires_grad
            if side == "u":
                column, needs = next(streamed)
            found.append(self._leaf(column, block.at[side], bool(needs)))
        return found

    def _leaf(self, column: Tensor, at: Tensor, needs: bool) -> Tensor:
        return column.detach().index_select(0, at).requires_grad_(needs and self._grad)

    def _batch(self, block: Block, rows: List[Tensor]) -> Batch:
        def read(side: str, name: str) -> Tensor:
            slot = (side, name)
            if slot not in self.slots:  # it becomes one when it is first read
                assert self._column is not None
                with torch._C.DisableTorchFunction():
                    self.slots.append(slot)
                    self.columns.append(self._column(slot))
                    rows.append(self._leaf(self.columns[-1], block.at[side], self.columns[-1].requires_grad))
                    self.outside.own(rows[-1])
            return rows[self.slots.index(slot)]

        return Batch(block.size[0], self._names, read, 0, block.size[1])

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

    # ---- backward ----------------------------------------------------------

    def backward(self, columns: List[Tensor], grads: Sequence[Optional[Tensor]]) -> List[Optional[Tensor]]:
        """Gradients of the columns, and of what is used besides, from those of the results. Collective."""
        self.columns = columns
        given = {name: grad is not None for name, grad in zip(self.outputs, grads)}
        for name, grad in zip(self.outputs, grads):
            if grad is not None:
                self._result(name).begin(grad)
        needs = [column.requires_grad and self._grad for column in columns]
        sums = [torch.zeros(c.shape, dtype=computed_in(c.dtype)) if n else None for c, n in zip(columns, needs)]
        used = self._used(self.outside.captured)
        self._gradients = [None] * len(used)
        self._sums = sums
        numbers = iter(range(len(self._sizes)))
        state = torch.get_rng_state()
        try:
            self.blocks.backward(
                self._of_sources(columns),
                self._of_sources(sums),
                self.returns,
                lambda block: self._backward(next(numbers, -1), block, given),
                not self.saves_forward,
            )
        finally:
            torch.set_rng_state(state)
        self._sums = []
        found = zip([*sums, *self._gradients], [*columns, *used])
        return [None if grad is None else grad.to(of.dtype) for grad, of in found]

    def _backward(self, number: int, block: Block, given: Mapping[str, bool]) -> None:
        if number < 0 or self._sizes[number] != block.size:
            raise RuntimeError(
                "edges come in other blocks in backward than in forward: leave Config.window_bytes and "
                "Config.block_bytes as they are from forward to backward"
            )
        if self.saves_forward:
            rows, outputs = self._saved[number]
        else:
            self._draw(number)
            with torch.enable_grad():
                rows = self._rows(block, [grad is not None for grad in block.grad_rows])
                with under(self._cast), Replay(self.outside, rows):
                    outputs = self._checked(self.compute(self._batch(block, rows)))
        named = {name: value for name, value in outputs.items() if value.requires_grad and given[name]}
        wanted, used = [row for row in rows if row.requires_grad], self._used(self.outside.instead)
        if not named or not (wanted or used):
            return
        grads = torch.autograd.grad(
            list(named.values()),
            [*wanted, *used],
            [self._result(name).gradient(block.at, value) for name, value in named.items()],
            retain_graph=self.saves_forward,
            allow_unused=True,
        )
        for i, of_used in enumerate(grads[len(wanted) :]):
            old = self._gradients[i]
            if of_used is not None:
                of_used = of_used.to(computed_in(of_used.dtype))
                self._gradients[i] = of_used if old is None else old.add_(of_used)
        of_rows, of_sources = iter(grads[: len(wanted)]), iter(block.grad_rows)
        for (side, _), total, row in zip(self.slots, self._sums, rows):
            grad = next(of_rows) if row.requires_grad else None
            target = next(of_sources) if side == "u" else total
            if target is not None and grad is not None:
                target.index_add_(0, block.at[side], grad.to(target.dtype))


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, executor: Executor, name: str, count: int, *tensors: Tensor
    ) -> Tuple[Tensor, ...]:
        ctx.name, ctx.executor, ctx.count = name, executor, count
        ctx.save_for_backward(*tensors)
        results = executor.collected()
        ctx.mark_non_differentiable(*(r for r in results if not r.is_floating_point()))
        return tuple(results)

    @staticmethod
    @differentiable_once(lambda ctx: ctx.name)
    def backward(ctx: Any, *grads: Optional[Tensor]) -> Tuple[Optional[Tensor], ...]:
        found = ctx.executor.backward(list(ctx.saved_tensors[: ctx.count]), grads)
        return (None, None, None, None, *found)
