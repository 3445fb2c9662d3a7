"""Types that the modules of this folder share."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Protocol, Sequence, Tuple

import torch
from torch import Tensor

from .double_backward import refuse_transforms


class Relation(Protocol):
    """What an aggregation needs to know of a relation."""

    handle: int
    index: int
    num_src: int
    num_dst: int
    num_edges: int


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


def version(tensor: Tensor) -> Optional[int]:
    """What torch counted of changes of a tensor in place; of tensors of inference mode it counts none."""
    return None if tensor.is_inference() else tensor._version


def check_version(tensor: Tensor, then: Optional[int]) -> None:
    """:raises RuntimeError: a tensor was changed in place since its version was ``then``"""
    if version(tensor) != then:
        raise RuntimeError(
            f"a tensor of shape {tuple(tensor.shape)}, from which values of edges are computed, was changed in place "
            "before they were: change a copy of it, tensor.clone(), or use the operation that returns a new tensor"
        )


def check_count(tensor: Tensor, rows: int, what: str, name: str) -> None:
    """:raises ValueError: a tensor has another number of rows than there are nodes or edges"""
    if tensor.dim() == 0 or tensor.shape[0] != rows:
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}, but this worker has {rows} {what}: expected ({rows}, ...)"
        )


class Expr:
    """A value for every edge. Immutable; made by the functions of this module.

    It is computed later than a script writes it. A tensor that was changed in place since then raises an error.

    :ivar shape: feature shape, without the dimension of edges
    :ivar dtype: ``torch.float32``, ``torch.float64`` or ``torch.bfloat16``
    :ivar op: ``"load"``, ``"param"``, or the operation
    :ivar args: the expressions it is made of
    :ivar alpha: the number of an operation that takes one
    :ivar side: ``"u"``, ``"v"`` or ``"e"`` of loads, ``"p"`` of parameters
    """

    __slots__ = ("__weakref__", "_tensor", "_version", "alpha", "args", "dims", "dtype", "op", "seed", "shape", "side")

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
        self.side, self.dims, self.seed = side, dims, seed
        self._tensor, self._version = tensor, None if tensor is None else version(tensor)

    @property
    def tensor(self) -> Optional[Tensor]:
        """Of loads and parameters.

        :raises RuntimeError: it was changed in place
        """
        found = self._tensor
        if found is not None:
            check_version(found, self._version)
        return found

    def copy_tensor(self) -> None:
        """Has a copy of the tensor, which is about to be changed, perhaps without gradients."""
        assert self._tensor is not None
        with torch.enable_grad():
            self._tensor = self._tensor.clone()
        self._version = version(self._tensor)

    def __repr__(self) -> str:
        inner = ", ".join(map(repr, self.args)) if self.args else self.side
        return f"{self.op}({inner})"


def ordered(*exprs: Expr, inside: Callable[[Expr], Sequence[Expr]] = lambda x: x.args) -> List[Expr]:
    """Expressions and all that they are computed from, each after its arguments."""
    found: Dict[int, Expr] = {}
    stack = [*reversed(exprs)]
    while stack:
        x = stack[-1]
        missing = [] if id(x) in found else [a for a in inside(x) if id(a) not in found]
        if missing:
            stack.extend(reversed(missing))
        else:
            found.setdefault(id(x), stack.pop())
    return list(found.values())


def class_of(module: Any) -> Any:
    """The class of a module, without what :func:`sar.remat` put in front of it."""
    return vars(type(module)).get("_again_of", type(module))
