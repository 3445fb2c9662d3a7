"""What modules below :class:`~sar.graph.edge_tensor.tensor.EdgeTensor` know of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from sar.autograd.expression import Expr
from sar.autograd.types import Relation

from .nested import mapped


class View(NamedTuple):
    """How an edge tensor was made from another one in whose memory it lies.

    ``of``: the other one; ``func``, ``args``, ``kwargs``: the function; ``place``: among several results;
    ``apart``: gradients do not go to the other one, as with ``detach()``
    """

    of: BaseEdgeTensor
    func: Any
    args: Tuple[Any, ...]
    kwargs: Dict[str, Any]
    place: Optional[int]
    apart: bool


class BaseEdgeTensor(Tensor):
    """A tensor of edges.

    :ivar _computation: what computes it, as of when it was last looked at
    :ivar _value: its values, if they were computed
    :ivar _version_of_value: what torch counted of changes of these in place when they were last looked at
    :ivar _view: how it lies in the memory of another one
    :ivar _changes: how often it, or a view of it, was changed in place
    :ivar _seen: what that was, of the tensor that it is a view of, when its values were last taken from there
    :ivar _copied: whether its values are a copy of what computes them, which backward may need as it is
    :ivar _lost: whether a value that it has no gradients of was written into its memory
    """

    _relation: Relation
    _computation: Expr
    _value: Optional[Tensor] = None
    _version_of_value: int = 0
    _view: Optional[View] = None
    _changes: int = 0
    _seen: int = 0
    _copied: bool = False
    _lost: bool = False

    @property
    def relation(self) -> Relation:
        """Whose edges these are."""
        return self._relation

    def kept_value(self) -> Optional[Tensor]:
        """The values, where they were computed before, with gradients if they are wanted now."""
        with torch._C.DisableTorchFunctionSubclass():
            wanted = torch.is_grad_enabled() and self.requires_grad
        return None if self._value is None or (wanted and not self._value.requires_grad) else self._value

    if TYPE_CHECKING:  # what EdgeTensor has

        @property
        def in_engine(self) -> bool: ...
        @property
        def expr(self) -> Expr: ...
        def materialize(self) -> Tensor: ...
        def extended(self, computation: Expr) -> BaseEdgeTensor: ...
        def by_rows(self) -> Expr: ...
        def parts(self) -> Optional[Tuple[Expr, ...]]: ...
        def _keep_what_was_read(self) -> None: ...
        def _take(self, other: Tensor) -> None: ...
        def _rewritten(self, value: Tensor) -> Tensor: ...


def values(tree: Any) -> Any:
    """The same structure with every edge tensor computed. Collective, as that is."""
    return mapped(tree, lambda leaf: leaf.materialize() if isinstance(leaf, BaseEdgeTensor) else leaf)
