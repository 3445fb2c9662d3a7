"""Rows of nodes at the ends of edges, and what is made of them: computed where they are reduced.

A :class:`LiftedTensor` is an edge tensor. While torch's functions on it are known to the engine, they extend its
expression, and what reduces it runs fused. Any other function that treats each edge by itself makes it a tensor of
steps (:mod:`sar.graph.edge_index.steps`), which run on blocks of edges when it is reduced. The values of all edges are
computed only for functions that look at several edges together.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Protocol, Tuple

import torch
from torch import Tensor

from sar.autograd.compile import uncompiled
from sar.autograd.expression import Expr, load
from sar.graph.edge_tensor.count import EdgeCount, warn_of_count
from sar.graph.edge_tensor.memory import refresh, remember, rewritten, writes_itself
from sar.graph.edge_tensor.rowwise import inplace_argument
from sar.graph.edge_tensor.tensor import (
    IN_PLACE,
    LAZY,
    METADATA,
    OF_HOOKS,
    EdgeTensor,
    changed_values,
    changes,
    say,
    values,
)
from sar.graph.relation import Relation

from .blocks import run
from .linear import Parts, on_nodes
from .own_edges import warn_of_own_edges
from .spelled import divided, note
from .steps import Step, apply, described, of_expression, rows_of

__all__ = ["LiftedTensor"]


class Edges(Protocol):
    """Whose tensors these are.

    ``on_nodes``: whether linear maps of rows of nodes may be computed before they are picked by edge
    """

    on_nodes: bool

    @property
    def relation(self) -> Relation: ...

    @property
    def num_edges(self) -> int: ...

    def compute(self, lifted: LiftedTensor) -> Tensor:
        """The values of a tensor for all edges."""


class LiftedTensor(EdgeTensor):
    """A tensor ``[num_edges, ...]`` of the edges of an edge index.

    :param edges: whose
    :param expr: the value of each edge, or
    :param step: the last of the steps that compute it
    """

    _edges: Edges
    _step: Optional[Step]
    _parts: Optional[Parts] = None
    """What a tensor computed by steps is besides: expressions side by side."""
    _as_steps: Optional[Tuple[bool, Step]] = None
    """The step of an expression, and whether gradients were enabled when it was made."""

    @staticmethod
    def __new__(cls, edges: Edges, expr: Expr) -> LiftedTensor:
        self: Any = EdgeTensor.__new__(cls, edges.relation, expr)
        self._edges, self._step = edges, None
        made: LiftedTensor = self
        return made

    def __init__(self, edges: Edges, expr: Expr) -> None:
        pass

    @staticmethod
    def of_step(edges: Edges, step: Step) -> LiftedTensor:
        """The result of a step, ``[num_edges, ...]``."""
        relation, meta = edges.relation, step.meta
        shape = (relation.num_edges, *meta.shape[1:])
        made: LiftedTensor = Tensor._make_wrapper_subclass(
            LiftedTensor, shape, dtype=meta.dtype, requires_grad=meta.requires_grad
        )
        made._relation, made._edges, made._step, made._value = relation, edges, step, None
        made._watch()
        return made

    @property
    def edges(self) -> Edges:
        """Whose edges these are."""
        return self._edges

    @property
    def step(self) -> Optional[Step]:
        """The last step, where it is computed by steps."""
        refresh(self)
        return self._step

    @property
    def made_of(self) -> Any:
        """What gives its values, which changes in place replace."""
        return self._expr if self.step is None else self._step

    @property
    def expr(self) -> Expr:
        return EdgeTensor.expr.fget(self) if self.step is None else load("e", self.materialize())  # type: ignore[attr-defined]

    def materialize(self) -> Tensor:
        if self.step is None:
            return super().materialize()
        return self._computed()

    def _compute(self) -> Tensor:
        return self._edges.compute(self)

    def compute_in_blocks(self) -> Tensor:
        """The values, computed on blocks of edges. Collective."""
        return super()._compute() if self._step is None else run(self._edges.relation, self._step, None)

    def extended(self, expr: Expr) -> EdgeTensor:
        return LiftedTensor(self._edges, expr)

    def _same(self) -> EdgeTensor:
        made = LiftedTensor.of_step(self._edges, self.step) if self.step else LiftedTensor(self._edges, self.expr)
        made._parts = self._parts
        self._share(made)
        return made

    def parts(self) -> Optional[Parts]:
        """Expressions that give it side by side; None where there are only steps."""
        return (self._expr,) if self.step is None else self._parts

    def as_step(self) -> Step:
        """The step that computes it. Collective where the expression has parts that look at several edges."""
        if self.step is not None:
            return self.step
        grad = torch.is_grad_enabled()
        if self._as_steps is None or self._as_steps[0] != grad:
            self._as_steps = grad, of_expression(self._relation, self.expr)
        return self._as_steps[1]

    def _take(self, other: Tensor) -> None:
        if isinstance(other, LiftedTensor) and other.step is not None:
            self._step, self._parts, self._value = other.step, other._parts, None
            self._follow(other)
            return
        self._step = self._parts = self._as_steps = None
        super()._take(other)

    def _rewritten(self, value: Tensor) -> Tensor:
        with torch.enable_grad():
            new = value.as_step() if isinstance(value, LiftedTensor) else rows_of("e", value)
            found = described(Step(rewritten, (self.as_step(), new)))
        return LiftedTensor.of_step(self._edges, found)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        made = f"expr={self._expr!r}" if self._step is None else f"steps={self._step!r}"
        return f"LiftedTensor(shape={tuple(self.shape)}, dtype={self.dtype}, {made})"

    @classmethod
    @uncompiled
    def __torch_function__(
        cls, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        if any(hasattr(kind, "numbers") for kind in types):
            return NotImplemented  # ends of edges know what to do
        kwargs = kwargs or {}
        made = divided(func, args, kwargs)
        if made is None:
            made = cls._applied(func, types, args, kwargs)
            remember(func, args, kwargs, made)
            if isinstance(made, LiftedTensor):
                note(func, args, made)
        return made

    @classmethod
    def _applied(cls, func: Any, types: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        if func in SIZES and isinstance(args[0], LiftedTensor):
            return _counted(func, args, kwargs)
        if func in METADATA or func in OF_HOOKS or (func is Tensor.view_as and args[0] is args[1]):
            return EdgeTensor.__torch_function__(func, types, args, kwargs)
        if func in NEW and not _wide(args, kwargs):
            return LAZY[func](*args, **kwargs)
        if func is Tensor.__setitem__ and writes_itself(args):
            return None
        args, kwargs, inplace = _not_in_place(func, args, kwargs)
        in_place = bool(args) and isinstance(args[0], LiftedTensor) and (inplace or changes(func))
        lifted = _lifted((args, kwargs))
        if isinstance(kwargs.get("out"), LiftedTensor):
            out = kwargs.pop("out")
            return out.become(func(*args, **kwargs))
        if kwargs.get("out") is not None or (changes(func) and not in_place):
            return _with_values(func, args, kwargs, lifted, "writes")
        if all(t.step is None for t in lifted):
            handler = None if func in NEW else LAZY.get(IN_PLACE.get(func, func))
            result = NotImplemented if handler is None else handler(*args, **kwargs)
            if result is not NotImplemented:
                return args[0].become(result) if in_place else result
        found = on_nodes(func, args, kwargs, LiftedTensor.parts) if lifted[0].edges.on_nodes and not in_place else None
        if isinstance(found, Expr):
            return lifted[0].extended(found)
        made = _by_steps(func, args, kwargs, lifted, in_place and not inplace)
        if made is NotImplemented:
            return _with_values(func, args, kwargs, lifted, "in place" if in_place and not inplace else "")
        if found is not None and isinstance(made, LiftedTensor):
            made._parts = found
        return args[0].become(made) if in_place else made


SIZES = frozenset([Tensor.shape.__get__, Tensor.size, Tensor.__len__])  # type: ignore[attr-defined]
NEW = frozenset(getattr(Tensor, name) for name in ("new_zeros", "new_ones", "new_empty", "new_full", "new_tensor"))


def _counted(func: Any, args: Any, kwargs: Any) -> Any:
    """Sizes, of which that of edges knows what it is."""
    with torch._C.DisableTorchFunctionSubclass():
        found = func(*args, **kwargs)
        dims = args[0].dim()
    if func is Tensor.__len__:
        warn_of_count("len() of a tensor of edges")
    if isinstance(found, torch.Size):
        return torch.Size((EdgeCount(found[0]), *found[1:]))
    dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
    return EdgeCount(found) if dim is not None and func is Tensor.size and dim % dims == 0 else found


def _wide(args: Any, kwargs: Any) -> bool:
    """Whether the sizes of a new tensor are those of rows of edges. One number for each edge is made at once."""
    size = args[1] if len(args) > 1 else kwargs.get("size", ())
    sizes = size if isinstance(size, (tuple, list)) else args[1:]
    return len(sizes) > 1 and type(sizes[0]) is EdgeCount


def _not_in_place(func: Any, args: Any, kwargs: Any) -> Tuple[Any, Any, bool]:
    """Arguments without ``inplace``, and what it was."""
    place = inplace_argument(func)
    if place is None:
        return args, kwargs, False
    if len(args) > place:
        return (*args[:place], False, *args[place + 1 :]), kwargs, bool(args[place])
    return args, {**kwargs, "inplace": False}, bool(kwargs.get("inplace"))


def _by_steps(func: Any, args: Any, kwargs: Any, lifted: List[LiftedTensor], in_place: bool) -> Any:
    """The results of a function as tensors computed by steps; NotImplemented where it does not treat each edge by
    itself."""
    edges = lifted[0].edges
    if any(t.relation is not edges.relation for t in lifted):
        raise ValueError(
            "tensors of the edges of two graphs were given to one function: edge_index with and without self loops are "
            "two graphs, for instance"
        )
    found = apply(edges.relation, func, args, kwargs, LiftedTensor, LiftedTensor.as_step, in_place)
    if found is None:
        return NotImplemented
    if isinstance(found, Step):
        return LiftedTensor.of_step(edges, found)
    return type(found)([LiftedTensor.of_step(edges, step) for step in found])


def _with_values(func: Any, args: Any, kwargs: Any, lifted: List[LiftedTensor], how: str) -> Any:
    """Calls a function with the values of this worker's edges.

    :param how: "writes" into a tensor that is not of edges; "in place": changes its first argument, which is of edges
    """
    warn_of_own_edges(func, args, kwargs, lifted[0].relation.num_edges, how == "writes")
    say(func)
    if how != "in place":
        return func(*values(args), **values(kwargs))
    return changed_values(func, args[0], args, kwargs)


def _lifted(tree: Any) -> List[LiftedTensor]:
    if isinstance(tree, LiftedTensor):
        return [tree]
    if isinstance(tree, (list, tuple)):
        return [t for item in tree for t in _lifted(item)]
    if isinstance(tree, dict):
        return _lifted(list(tree.values()))
    return []
