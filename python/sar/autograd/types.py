"""Types that the modules of this folder share."""

from __future__ import annotations

from typing import Optional, Protocol, Sequence, Tuple

import torch
from torch import Tensor

from .double_backward import refuse_transforms

Shape = Tuple[int, ...]


class Relation(Protocol):
    """What an aggregation needs to know of a relation."""

    @property
    def handle(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def num_src(self) -> int: ...
    @property
    def num_dst(self) -> int: ...
    @property
    def num_edges(self) -> int: ...


class Agreed:
    """Carries the agreed bits out of forward."""

    bits = 0


def anchor() -> Tensor:
    """An argument of an autograd function that makes torch call its backward on every worker, also where none of the
    worker's own tensors needs a gradient.

    :raises RuntimeError: one of torch.func's transforms runs
    """
    refuse_transforms()
    return torch.empty(0, requires_grad=torch.is_grad_enabled())


class Expr:
    """A value for every edge. Immutable; made by the functions of this module.

    :ivar shape: feature shape, without the dimension of edges
    :ivar dtype: ``torch.float32`` or ``torch.float64``
    :ivar op: ``"load"``, ``"param"``, or the operation
    :ivar args: the expressions it is made of
    :ivar alpha: the number of an operation that takes one
    :ivar tensor: of loads and parameters
    :ivar side: ``"u"``, ``"v"`` or ``"e"`` of loads, ``"p"`` of parameters
    """

    __slots__ = ("__weakref__", "alpha", "args", "dims", "dtype", "op", "seed", "shape", "side", "tensor")

    def __init__(
        self,
        op: str,
        shape: Sequence[int],
        dtype: torch.dtype,
        args: Tuple[Expr, ...] = (),
        alpha: float = 0.0,
        tensor: Optional[Tensor] = None,
        side: str = "",
        dims: Tuple[int, ...] = (),
        seed: int = 0,
    ) -> None:
        self.op, self.shape, self.dtype, self.args, self.alpha = op, tuple(shape), dtype, args, alpha
        self.tensor, self.side, self.dims, self.seed = tensor, side, dims, seed

    def __repr__(self) -> str:
        inner = ", ".join(map(repr, self.args)) if self.args else self.side
        return f"{self.op}({inner})"
