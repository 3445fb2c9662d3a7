"""The lives of tensors in one training step, in bytes.

A model is played as operations on tensors that have a size and nothing else. As in autograd, an operation keeps what
its backward needs; a tensor lives until its layer has ended and no operation keeps it; gradients live from the
operation that makes them to the one that takes them.
"""

from __future__ import annotations

from typing import List, Optional, Sequence


class Ghost:
    """A tensor of which only the size is known."""

    def __init__(self, size: int, needs_grad: bool) -> None:
        self.size = size
        self.needs_grad = needs_grad
        self.holders = 1
        self.grad: Optional[Ghost] = None


class _Operation:
    def __init__(self, inputs: Sequence[Ghost], out: Ghost, kept: List[Ghost], passes: bool, scratch: int) -> None:
        self.inputs, self.out, self.kept, self.passes, self.scratch = inputs, out, kept, passes, scratch


class Tape:
    """Plays a training step and remembers the most that was alive at once, and what was kept between the passes."""

    def __init__(self) -> None:
        self.live = 0
        self.peak = 0
        self.saved = 0
        self._operations: List[_Operation] = []
        self._scope: List[Ghost] = []

    # ---- forward -----------------------------------------------------------

    def leaf(self, size: int, needs_grad: bool = False) -> Ghost:
        """A tensor that is there for the whole step; its bytes are not counted here."""
        ghost = Ghost(size, needs_grad)
        ghost.holders += 1  # by its owner, for good
        return ghost

    def run(
        self,
        inputs: Sequence[Ghost],
        size: int,
        keeps: Sequence[Ghost] = (),
        keeps_out: bool = False,
        keeps_extra: int = 0,
        scratch: int = 0,
        scratch_back: Optional[int] = None,
        passes: bool = False,
        trains: bool = False,
    ) -> Ghost:
        """One operation: reads ``inputs``, makes a tensor of ``size`` bytes.

        :param keeps: inputs that its backward needs; ``keeps_out``: its result; ``keeps_extra``: bytes beside them
        :param scratch: bytes that only the computation takes, in either pass; ``scratch_back``: in backward, beside the
            gradients of inputs, where that is not the same
        :param passes: the gradient of its result is that of its inputs, as in an addition
        :param trains: it has parameters of its own
        """
        out = self._new(size, trains or any(t.needs_grad for t in inputs))
        self._touch(scratch)
        kept = []
        if out.needs_grad:
            kept = [*keeps, *([out] if keeps_out else ())]
            for ghost in kept:
                ghost.holders += 1
            if keeps_extra:
                kept.append(self._new(keeps_extra, False, scoped=False))
            self._operations.append(
                _Operation(inputs, out, kept, passes, scratch if scratch_back is None else scratch_back)
            )
        return out

    def drop(self, out: Ghost, kept: Ghost) -> None:
        """The operation that made ``out`` keeps one of its tensors no longer, and will compute it again."""
        for op in self._operations:
            if op.out is out:
                op.kept.remove(kept)
                self._release(kept)

    def end_layer(self, result: Ghost) -> None:
        """Lets go of what only the layer's variables held."""
        for ghost in self._scope:
            if ghost is not result:
                self._release(ghost)
        self._scope = [result] if result in self._scope else []

    # ---- backward ----------------------------------------------------------

    def backward(self, loss: Ghost) -> None:
        self.saved = self.live
        loss.grad = self._new(loss.size, False, scoped=False)
        for op in reversed(self._operations):
            grad = op.out.grad
            op.out.grad = None
            if grad is None:
                continue
            if not any(ghost.needs_grad for ghost in op.inputs):
                self._touch(op.scratch)
            for ghost in op.inputs:
                if not ghost.needs_grad:
                    continue
                if op.passes and ghost.size == grad.size:
                    part = grad
                    part.holders += 1
                else:
                    part = self._new(ghost.size, False, scoped=False)
                    self._touch(op.scratch)
                if ghost.grad is None:
                    ghost.grad = part
                elif ghost.grad.holders == 1:  # nobody else sees it: added to in place
                    self._release(part)
                else:
                    total = self._new(ghost.size, False, scoped=False)
                    self._release(ghost.grad)
                    self._release(part)
                    ghost.grad = total
            self._release(grad)
            for ghost in op.kept:
                self._release(ghost)
        self._operations = []

    # ---- bytes -------------------------------------------------------------

    def _new(self, size: int, needs_grad: bool, scoped: bool = True) -> Ghost:
        ghost = Ghost(size, needs_grad)
        self.live += size
        self.peak = max(self.peak, self.live)
        if scoped:
            self._scope.append(ghost)
        return ghost

    def _touch(self, scratch: int) -> None:
        self.peak = max(self.peak, self.live + scratch)

    def _release(self, ghost: Ghost) -> None:
        ghost.holders -= 1
        if ghost.holders == 0:
            self.live -= ghost.size
