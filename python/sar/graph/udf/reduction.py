"""Reduces messages block by block, and computes the gradient of each."""

from __future__ import annotations

from math import prod
from typing import Mapping, Optional, Tuple

import torch
from torch import Tensor

from sar._engine.storage import computed_in
from sar.graph.relation import Relation

from .agreement import Output

At = Mapping[str, Tensor]
"""Of each message: its edge ("e"), the row of the destination ("v"), or of the node ("n"); int64 ``[m]``."""


class Reduction:
    """A reducer of messages of one shape and dtype.

    :param rows: destination rows
    :param shape: of one message
    :param dtype: of messages
    """

    def __init__(self, rows: int, shape: Tuple[int, ...], dtype: torch.dtype) -> None:
        self.rows, self.shape, self.width, self.dtype = rows, shape, prod(shape), dtype

    def add(self, at: At, messages: Tensor) -> None:
        """Takes messages ``[m, *shape]``. Their destinations ascend."""
        raise NotImplementedError

    def result(self) -> Tensor:
        """``[rows, *shape]``; 0 in rows that no message came to."""
        raise NotImplementedError

    def begin(self, grad: Tensor) -> None:
        """Takes the gradient of the result."""
        self._grad = grad.reshape(grad.shape[0], self.width)

    def gradient(self, at: At, messages: Tensor) -> Tensor:
        """Gradients ``[m, *shape]`` of the messages."""
        raise NotImplementedError


class Total(Reduction):
    """Sum, or mean where ``degrees`` int64 ``[rows]`` is given."""

    def __init__(self, rows: int, shape: Tuple[int, ...], dtype: torch.dtype, degrees: Optional[Tensor] = None) -> None:
        super().__init__(rows, shape, dtype)
        if dtype == torch.bool:
            dtype = torch.int64
        if degrees is not None and not dtype.is_floating_point and not dtype.is_complex:
            dtype = torch.get_default_dtype()
        self._rounded, dtype = dtype, computed_in(dtype)
        self._degrees = None if degrees is None else degrees.clamp(min=1).to(dtype).unsqueeze(1)
        self._sum: Optional[Tensor] = torch.zeros(rows, self.width, dtype=dtype)

    def add(self, at: At, messages: Tensor) -> None:
        assert self._sum is not None
        self._sum.index_add_(0, at["v"], messages.reshape(len(messages), self.width).to(self._sum.dtype))

    def result(self) -> Tensor:
        out, self._sum = self._sum, None
        assert out is not None
        if self._degrees is not None:
            out /= self._degrees
        return out.to(self._rounded).view(self.rows, *self.shape)

    def begin(self, grad: Tensor) -> None:
        super().begin(grad)
        if self._degrees is not None:
            self._grad = (self._grad / self._degrees).to(grad.dtype)

    def gradient(self, at: At, messages: Tensor) -> Tensor:
        return self._grad.index_select(0, at["v"]).view(len(messages), *self.shape)


class Extremum(Reduction):
    """Maximum or minimum."""

    def __init__(self, rows: int, shape: Tuple[int, ...], dtype: torch.dtype, largest: bool) -> None:
        super().__init__(rows, shape, dtype)
        self._scatter = "amax" if largest else "amin"
        wide = torch.uint8 if dtype == torch.bool else dtype
        self._worst: float = -float("inf") if largest else float("inf")
        if not dtype.is_floating_point:
            self._worst = torch.iinfo(wide).min if largest else torch.iinfo(wide).max
        self._best = torch.full((rows, self.width), self._worst, dtype=wide)

    def add(self, at: At, messages: Tensor) -> None:
        m = self._compared(messages.reshape(len(messages), self.width).to(self._best.dtype))
        rows, place = torch.unique_consecutive(at["v"], return_inverse=True)
        before = self._best.index_select(0, rows)
        best = before.scatter_reduce(0, place.unsqueeze(1).expand_as(m), m, self._scatter)
        self._best.index_copy_(0, rows, best)
        self._note(rows, place, at["e"], m == best.index_select(0, place), best == before)

    def _compared(self, messages: Tensor) -> Tensor:
        """What of messages takes part."""
        return messages

    def _note(self, rows: Tensor, place: Tensor, eid: Tensor, won: Tensor, as_before: Tensor) -> None:
        """Of messages of edges ``eid`` at ``rows[place]`` those that ``won`` are the best so far.

        :param as_before: of each row, where the best is what it was
        """
        raise NotImplementedError


class DGLExtremum(Extremum):
    """NaN never wins; infinite results are 0. Of equal messages the winner is the last edge in float32, else the first.

    :param edges: how many there are, where winners have to be known
    """

    def __init__(
        self, rows: int, shape: Tuple[int, ...], dtype: torch.dtype, largest: bool, edges: Optional[int]
    ) -> None:
        super().__init__(rows, shape, dtype, largest)
        self._found = None if dtype.is_floating_point else torch.zeros(rows, dtype=torch.bool)
        self._last = computed_in(dtype) == torch.float32
        number = torch.int32 if edges is not None and edges < 1 << 31 else torch.int64
        self._nobody = -1 if self._last else torch.iinfo(number).max
        self._winner = None if edges is None else torch.full((rows, self.width), self._nobody, dtype=number)

    def _compared(self, messages: Tensor) -> Tensor:
        return messages.masked_fill(messages.isnan(), self._worst) if messages.is_floating_point() else messages

    def _note(self, rows: Tensor, place: Tensor, eid: Tensor, won: Tensor, as_before: Tensor) -> None:
        if self._found is not None:
            self._found[rows] = True
        if self._winner is not None:
            old = self._winner.index_select(0, rows).masked_fill_(~as_before, self._nobody)
            mine = torch.where(won, eid.to(old.dtype).unsqueeze(1), self._nobody)
            index = place.unsqueeze(1).expand_as(mine)
            new = old.scatter_reduce(0, index, mine, "amax" if self._last else "amin")
            self._winner.index_copy_(0, rows, new)

    def result(self) -> Tensor:
        out = self._best
        out = out.masked_fill(out.isinf(), 0) if self._found is None else out * self._found.unsqueeze(1).to(out.dtype)
        if self._winner is not None and self._found is None:
            self._winner.masked_fill_(self._best.isinf(), -2)
        self._best = out[:0]
        return out.to(self.dtype).view(self.rows, *self.shape)

    def gradient(self, at: At, messages: Tensor) -> Tensor:
        assert self._winner is not None
        won = self._winner.index_select(0, at["v"]) == at["e"].unsqueeze(1)
        return (self._grad.index_select(0, at["v"]) * won).view(len(messages), *self.shape)


class PyGExtremum(Extremum):
    """As torch's ``scatter_reduce`` has it: NaN wins, infinite results stay, and equal messages share the gradient,
    with the 0 that a result begins with.

    :param count: whether gradients will be asked for
    """

    def __init__(self, rows: int, shape: Tuple[int, ...], dtype: torch.dtype, largest: bool, count: bool) -> None:
        super().__init__(rows, shape, dtype, largest)
        self._ties = torch.zeros_like(self._best, dtype=computed_in(self._best.dtype)) if count else None
        self._empty = torch.ones(rows, 1, dtype=torch.bool)

    def _note(self, rows: Tensor, place: Tensor, eid: Tensor, won: Tensor, as_before: Tensor) -> None:
        self._empty[rows] = False
        if self._ties is not None:
            ties = self._ties.index_select(0, rows) * as_before
            self._ties.index_copy_(0, rows, ties.index_add_(0, place, won.to(ties.dtype)))

    def result(self) -> Tensor:
        best = self._best.masked_fill_(self._empty, 0).view(self.rows, *self.shape)
        return best if self._ties is None else best.clone()  # a model may write into its result

    def begin(self, grad: Tensor) -> None:
        super().begin(grad)
        assert self._ties is not None
        self._grad = (self._grad / (self._ties + (self._best == 0))).to(grad.dtype)

    def gradient(self, at: At, messages: Tensor) -> Tensor:
        won = messages.detach().reshape(len(messages), self.width) == self._best.index_select(0, at["v"])
        return (self._grad.index_select(0, at["v"]) * won).view(len(messages), *self.shape)


class PerRow(Reduction):
    """No reduction: ``rows`` are edges ("e"), or nodes ("n")."""

    def __init__(self, rows: int, shape: Tuple[int, ...], dtype: torch.dtype, side: str) -> None:
        super().__init__(rows, shape, dtype)
        self._side = side
        self._values: Optional[Tensor] = torch.zeros(rows, self.width, dtype=dtype)

    def add(self, at: At, messages: Tensor) -> None:
        assert self._values is not None
        self._values.index_copy_(0, at[self._side], messages.reshape(len(messages), self.width))

    def result(self) -> Tensor:
        out, self._values = self._values, None
        assert out is not None
        return out.view(self.rows, *self.shape)

    def gradient(self, at: At, messages: Tensor) -> Tensor:
        return self._grad.index_select(0, at[self._side]).view(len(messages), *self.shape)


def reduction(relation: Relation, reducer: Optional[str], out: Output, wanted: bool) -> Reduction:
    """What collects messages.

    :param reducer: "sum", "mean", "max", "min", "max_shared" or "min_shared". None: they stay on edges
    :param out: what they are
    :param wanted: gradients of messages will be asked for
    """
    kind = out.shape, out.dtype
    if reducer is None:
        return PerRow(relation.num_edges, *kind, "e")
    if reducer in ("sum", "mean"):
        return Total(relation.num_dst, *kind, relation.degrees(out=False) if reducer == "mean" else None)
    if reducer in ("max_shared", "min_shared"):
        return PyGExtremum(relation.num_dst, *kind, reducer == "max_shared", wanted)
    return DGLExtremum(relation.num_dst, *kind, reducer == "max", relation.num_edges if wanted else None)
