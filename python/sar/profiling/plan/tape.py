"""Simulates tensor lifetimes of one training step, in bytes.

A model is played as operations on tensors that have a size and nothing else. As in autograd, an operation keeps what
its backward needs; a tensor lives until its layer has ended and no operation keeps it; gradients live from the
operation that makes them to the one that takes them.
"""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence


class SizedTensor:
    """A tensor of which only the size is known."""

    def __init__(self, size: int, needs_grad: bool) -> None:
        self.size = size
        self.needs_grad = needs_grad
        self.holders = 1
        self.grad: Optional[SizedTensor] = None


class _Operation(NamedTuple):
    inputs: Sequence[SizedTensor]
    out: SizedTensor
    saved: List[SizedTensor]
    passes: bool
    scratch: int


class Tape:
    """Plays a training step and remembers the most that was alive at once, and what was kept between the passes."""

    def __init__(self) -> None:
        self.live = 0
        self.peak = 0
        self.saved = 0
        self._operations: List[_Operation] = []
        self._scope: List[SizedTensor] = []

    # ---- forward -----------------------------------------------------------

    def leaf(self, size: int, needs_grad: bool = False) -> SizedTensor:
        """A tensor that is there for the whole step; its bytes are not counted here."""
        tensor = SizedTensor(size, needs_grad)
        tensor.holders += 1  # by its owner, for good
        return tensor

    def run(
        self,
        inputs: Sequence[SizedTensor],
        size: int,
        saves: Sequence[SizedTensor] = (),
        saves_out: bool = False,
        saves_extra: int = 0,
        scratch: int = 0,
        scratch_back: Optional[int] = None,
        passes: bool = False,
        trains: bool = False,
    ) -> SizedTensor:
        """One operation: reads ``inputs``, makes a tensor of ``size`` bytes.

        :param saves: inputs that its backward needs; ``saves_out``: its result; ``saves_extra``: bytes beside them
        :param scratch: bytes that only the computation takes, in either pass; ``scratch_back``: in backward, beside the
            gradients of inputs, where that is not the same
        :param passes: the gradient of its result is that of its inputs, as in an addition
        :param trains: it has parameters of its own
        """
        out = self._new(size, trains or any(t.needs_grad for t in inputs))
        self._touch(scratch)
        saved = []
        if out.needs_grad:
            saved = [*saves, *([out] if saves_out else ())]
            for tensor in saved:
                tensor.holders += 1
            if saves_extra:
                saved.append(self._new(saves_extra, False, scoped=False))
            self._operations.append(
                _Operation(inputs, out, saved, passes, scratch if scratch_back is None else scratch_back)
            )
        return out

    def drop(self, out: SizedTensor, saved: SizedTensor) -> None:
        """The operation that made ``out`` keeps one of its tensors no longer, and will compute it again."""
        for op in self._operations:
            if op.out is out:
                op.saved.remove(saved)
                self._release(saved)

    def end_layer(self, result: SizedTensor) -> None:
        """Lets go of what only the layer's variables held."""
        for tensor in self._scope:
            if tensor is not result:
                self._release(tensor)
        self._scope = [result] if result in self._scope else []

    def kept(self) -> int:
        """Bytes that operations keep for backward, those of inputs that were there before included."""
        held = {id(tensor): tensor.size for op in self._operations for tensor in op.saved}
        return sum(held.values())

    # ---- backward ----------------------------------------------------------

    def backward(self, loss: SizedTensor) -> None:
        self.saved = self.live
        loss.grad = self._new(loss.size, False, scoped=False)
        for op in reversed(self._operations):
            grad = op.out.grad
            op.out.grad = None
            if grad is None:
                continue
            if not any(tensor.needs_grad for tensor in op.inputs):
                self._touch(op.scratch)
            for tensor in op.inputs:
                if not tensor.needs_grad:
                    continue
                if op.passes and tensor.size == grad.size:
                    part = grad
                    part.holders += 1
                else:
                    part = self._new(tensor.size, False, scoped=False)
                    self._touch(op.scratch)
                if tensor.grad is None:
                    tensor.grad = part
                elif tensor.grad.holders == 1:  # nobody else sees it: added to in place
                    self._release(part)
                else:
                    total = self._new(tensor.size, False, scoped=False)
                    self._release(tensor.grad)
                    self._release(part)
                    tensor.grad = total
            self._release(grad)
            for tensor in op.saved:
                self._release(tensor)
        self._operations = []

    # ---- bytes -------------------------------------------------------------

    def _new(self, size: int, needs_grad: bool, scoped: bool = True) -> SizedTensor:
        tensor = SizedTensor(size, needs_grad)
        self.live += size
        self.peak = max(self.peak, self.live)
        if scoped:
            self._scope.append(tensor)
        return tensor

    def _touch(self, scratch: int) -> None:
        self.peak = max(self.peak, self.live + scratch)

    def _release(self, tensor: SizedTensor) -> None:
        tensor.holders -= 1
        if tensor.holders == 0:
            self.live -= tensor.size
