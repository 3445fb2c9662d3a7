"""Tensors of edges, computed where they are reduced.

An :class:`EdgeTensor` has the shape and dtype of a tensor with one row per edge, but holds what computes it: an
expression of the engine (:mod:`sar.autograd.expression`), or a call of a function of torch
(:mod:`sar.graph.edge_tensor.calls`). Arithmetic, activations, dropout, ``edge_softmax``, sums and other shapes of
features extend an expression; what reduces it runs all of it fused, and no tensor of edge size is made.

``apply_edges`` makes such tensors, and any other function of torch gets their values. Rows that are picked by the rows
of an edge index, and the columns that a message function reads, have ``edges`` besides: any function that treats each
edge by itself becomes a call, and calls run on blocks of edges when they are reduced. The values of all edges are
computed only for functions that look at several edges together.

Reading values is a collective operation wherever rows of source nodes are read: all ranks must do it, and layers do,
because they run the same code everywhere. Shape, dtype and the like are free.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Dict, List, Optional, Protocol, Tuple

import torch
from torch import Tensor

from sar._engine.log import log_once
from sar.autograd.compile import uncompiled
from sar.autograd.dtypes import joint
from sar.autograd.expression import Expr, as_type, evaluate, load
from sar.autograd.types import Relation

from . import engine, rowwise
from .base import BaseEdgeTensor, values
from .calls import Call, by_rows, described, detached, in_engine, needs_grad, recorded, rows
from .count import EdgeCount, warn_of_count
from .functions import CONVERSIONS, METADATA, OF_HOOKS, changes, converts_nothing
from .memory import contiguous, refresh, remember, rewritten, writes_itself, wrote
from .nested import tensors
from .on_nodes import Parts, on_nodes
from .own_edges import warn_of_own_edges
from .written_softmax import divided, note


class Edges(Protocol):
    """Whose tensors record functions that treat each edge by itself.

    ``on_nodes``: whether linear maps of rows of nodes may be computed before they are picked by edge
    """

    on_nodes: bool

    def compute(self, x: Expr) -> Tensor:
        """The values of an expression for all edges."""


class EdgeTensor(BaseEdgeTensor):
    """A tensor ``[num_edges, ...]`` in the order of the worker's in-edges.

    :param relation: whose edges
    :param computation: the value of each edge
    :param edges: records functions that the engine does not know. None: they get values
    """

    _edges: Optional[Edges]
    _parts: Optional[Parts] = None
    """What a call gives is besides: expressions side by side."""
    _by_rows: Optional[Tuple[bool, Expr]] = None
    """What computes it edge by edge, and whether gradients were enabled when that was made."""

    @staticmethod
    def __new__(cls, relation: Relation, computation: Expr, edges: Optional[Edges] = None) -> EdgeTensor:
        needs = needs_grad(computation)
        if needs and not torch.is_grad_enabled() and not isinstance(computation, Call):
            computation, needs = detached(computation), False
        shape = (relation.num_edges, *computation.shape)
        self: EdgeTensor = Tensor._make_wrapper_subclass(cls, shape, dtype=computation.dtype, requires_grad=needs)
        self._relation, self._edges, self._computation = relation, edges, computation
        if needs:
            self._watch()
        return self

    def _watch(self) -> None:
        """Has gradients that arrive at the tensor itself raise an error."""
        with torch._C.DisableTorchFunctionSubclass():
            self._backward_hooks = OrderedDict([(-1, _stray)])  # as register_hook does, which takes longer

    @property
    def edges(self) -> Optional[Edges]:
        """What records functions that the engine does not know."""
        return self._edges

    @property
    def computation(self) -> Expr:
        """What computes it, which changes in place replace.

        :raises RuntimeError: torch knows how to differentiate this tensor and the expression does not
        """
        with torch._C.DisableTorchFunctionSubclass():
            if self.grad_fn is not None and self.grad_fn.name() not in _IDENTITIES:
                raise RuntimeError(PAST_OVERRIDES)
        refresh(self)
        return self._computation

    @property
    def in_engine(self) -> bool:
        """Whether the engine computes it."""
        return in_engine(self.computation)

    @property
    def expr(self) -> Expr:
        """The value of each edge as an expression of the engine. Computes what the engine does not."""
        x = self.computation
        return x if in_engine(x) else load("e", self.materialize())

    def materialize(self) -> Tensor:
        """The values, ``[num_edges, ...]``, as an ordinary tensor; differentiable. They are kept for the next reader.

        Collective where rows of source nodes are read, and for calls.
        """
        x = self.computation
        if x.op == "load" and x.side == "e" and x.tensor is not None:
            self.lies_in(x.tensor)
            return x.tensor
        value = self.kept_value()
        if value is None:
            # torch does not count changes of what is made in inference mode, and records gradients outside of it
            grad = torch.is_grad_enabled()
            with torch.inference_mode(False), torch.set_grad_enabled(grad):
                value = self._compute(x)
                self._value = value = value.clone() if self._copied or value.is_inference() else value
            self._version_of_value = value._version
        return value

    def _compute(self, x: Expr) -> Tensor:
        view = self._view
        if view is not None and in_engine(x):
            found: Tensor = view.func(*values(view.args), **values(view.kwargs))  # in the memory of the other's values
            return found
        return evaluate(self._relation, x, None) if self._edges is None else self._edges.compute(x)

    def by_rows(self) -> Expr:
        """What computes it, of parts that treat each edge by itself. Collective where an expression has others."""
        x, grad = self.computation, torch.is_grad_enabled()
        if isinstance(x, Call):
            return x
        if self._by_rows is None or self._by_rows[0] != grad:
            self._by_rows = grad, by_rows(self._relation, x)
        return self._by_rows[1]

    def parts(self) -> Optional[Parts]:
        """Expressions of the engine that give it side by side; None where there are only calls."""
        return (self._computation,) if self.in_engine else self._parts

    def lies_in(self, column: Tensor) -> None:
        """Says that changes in place are to reach a tensor, which has the values."""
        if not column.is_inference():
            self._value, self._version_of_value = column, column._version

    def extended(self, computation: Expr) -> EdgeTensor:
        """A tensor of the same edges with another expression."""
        return EdgeTensor(self._relation, computation, self._edges)

    def _same(self) -> EdgeTensor:
        """Another tensor with the same expression.

        torch makes one if a module has backward hooks, or if a tensor has hooks of several. Reading values is
        collective and hooks may exist on one rank only, so no values are read. No gradient of edges is computed, so
        these hooks are not called.
        """
        # autograd, which makes a view of it, says itself whether that needs a gradient
        made: EdgeTensor = Tensor._make_wrapper_subclass(EdgeTensor, self.shape, dtype=self.dtype)
        made._relation, made._edges, made._computation = self._relation, self._edges, self.computation
        made._parts = self._parts
        made._value, made._version_of_value = self._value, self._version_of_value
        remember(Tensor.view, (self, (-1, *self.shape[1:])), {}, made)
        return made

    def become(self, other: Tensor) -> EdgeTensor:
        """Takes over the values of ``other``: what operations in place do."""
        if isinstance(other, EdgeTensor) and other.in_engine and joint(other.dtype, self.dtype) is not None:
            other = other.extended(as_type(other.computation, self.dtype))  # as torch does, written as it is stored
        if other.shape != self.shape or other.dtype != self.dtype:
            raise RuntimeError(
                f"an edge tensor {tuple(self.shape)} {self.dtype} cannot become {tuple(other.shape)} {other.dtype} in "
                "place: use the operation that returns a new tensor"
            )
        refresh(self)
        wrote(self, other)
        return self

    def _keep_what_was_read(self) -> None:
        """Before its values change in place: what was made of them, and is not computed yet, is made of a copy."""
        if self._computation.op == "load" and self._computation.side == "e":
            self._computation.copy_tensor()

    def _take(self, other: Tensor) -> None:
        """Has the values of another tensor, and requires a gradient if that does, as other tensors do."""
        if isinstance(other, EdgeTensor):
            self._computation, self._parts, self._edges = other.computation, other._parts, self._edges or other._edges
        else:
            with torch.enable_grad():
                self._computation, self._parts = rows("e", other), None
        self._value, self._by_rows, self._copied = None, None, False
        with torch._C.DisableTorchFunctionSubclass():
            if other.requires_grad and not self.requires_grad:
                self.requires_grad_()
                self._watch()

    def _rewritten(self, value: Tensor) -> Tensor:
        """A tensor of other values, with the gradients of this one."""
        with torch.enable_grad():
            if self._edges is None:
                return rewritten(self.materialize(), values(value))
            new = value.by_rows() if isinstance(value, EdgeTensor) else rows("e", value)
            return self.extended(described(Call(rewritten, (self.by_rows(), new))))

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"EdgeTensor(shape={tuple(self.shape)}, dtype={self.dtype}, {self._computation!r})"

    def __format__(self, format_spec: str) -> str:
        return repr(self)  # torch's own would read values, and one rank may print alone

    @classmethod
    @uncompiled
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in METADATA or func in OF_HOOKS or (func is Tensor.view_as and args[0] is args[1]):
            return _told(func, args, kwargs)
        if len(types) > 1 and any(hasattr(kind, "numbers") for kind in types):
            return NotImplemented  # ends of edges know what to do
        made = divided(func, args, kwargs)
        if made is None:
            made = _applied(func, args, kwargs)
            remember(func, args, kwargs, made)
            if isinstance(made, EdgeTensor):
                note(func, args, made)
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any = None) -> Any:  # type: ignore[override]
        # code that does not ask __torch_function__ arrives here: it gets the values
        if func is torch.ops.aten.view.default and list(args[1]) == list(args[0].shape):
            return args[0]._same()
        return func(*values(args), **values(kwargs or {}))


def as_expr(value: Tensor, side: str) -> Expr:
    """The expression for a tensor of a side ("u", "v", "e"), which may be an :class:`EdgeTensor` on side "e".

    :raises ValueError: an edge tensor on another side
    :raises TypeError: a dtype that expressions do not have
    """
    if isinstance(value, EdgeTensor):
        if side != "e":
            raise ValueError(f"a tensor of edges was given for side {side!r}: it belongs into edata")
        return value.expr
    return load(side, value)


# ---- functions of torch ----------------------------------------------------------

SIZES = frozenset([Tensor.shape.__get__, Tensor.size, Tensor.__len__])  # type: ignore[attr-defined]
NEW = frozenset(getattr(Tensor, name) for name in ("new_zeros", "new_ones", "new_empty", "new_full", "new_tensor"))


def _told(func: Any, args: Any, kwargs: Any) -> Any:
    """What a function gives that reads no values. The size that is the number of edges knows what it is."""
    if func in (Tensor.register_hook, Tensor.retain_grad):
        log_once(
            "hook on an edge tensor",
            "a hook on an edge tensor is not called, and retain_grad() keeps nothing: edge tensors are computed in one "
            "piece with what is made of them, and their gradients are not made. To have them, use the result of "
            "edge_tensor.materialize(), on all ranks",
        )
    with torch._C.DisableTorchFunctionSubclass():
        found = func(*args, **kwargs)
        if func not in SIZES or not isinstance(args[0], EdgeTensor) or args[0].edges is None:
            return found
        dims = args[0].dim()
    if func is Tensor.__len__:
        warn_of_count("len() of a tensor of edges")
    if isinstance(found, torch.Size):
        return torch.Size((EdgeCount(found[0]), *found[1:]))
    dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
    return EdgeCount(found) if dim is not None and func is Tensor.size and dim % dims == 0 else found


def _applied(func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    if func in NEW and not _wide(args, kwargs):
        return func(torch.empty(0, dtype=args[0].dtype), *args[1:], **kwargs)
    if func in CONVERSIONS and converts_nothing(func, args[0], args[1:], kwargs):
        return args[0].clone() if func is Tensor.contiguous and not contiguous(args[0]) else args[0]
    if func is Tensor.__setitem__ and writes_itself(args):
        return None
    if isinstance(kwargs.get("out"), EdgeTensor):
        return kwargs["out"].become(func(*args, **{key: value for key, value in kwargs.items() if key != "out"}))
    plain, named, inplace = _not_in_place(func, args, kwargs)
    changing = changes(func)
    in_place = (inplace or changing) and bool(args) and isinstance(args[0], EdgeTensor)
    writes = kwargs.get("out") is not None or (changing and not in_place)
    made = NotImplemented if writes else engine.by_element(func, plain, named)
    if made is NotImplemented:
        given = [t for t in tensors((args, kwargs)) if isinstance(t, EdgeTensor)]
        made = NotImplemented if writes else _lazily(func, plain, named, given, in_place and not inplace)
        if made is NotImplemented:
            return _with_values(func, args, kwargs, given, in_place, writes)
    return args[0].become(made) if in_place else made


def _lazily(func: Any, args: Any, kwargs: Any, given: List[EdgeTensor], in_place: bool) -> Any:
    """What a function gives, not computed; NotImplemented where it needs values.

    :param in_place: the function itself changes its first argument
    """
    relation = given[0].relation
    lazy = all([t.in_engine for t in given])
    call = rowwise.find(func, args, kwargs, relation.num_edges)
    made = engine.on_features(call) if lazy and call is not None else NotImplemented
    if made is not NotImplemented:
        return made
    edges = next((t.edges for t in given if t.edges is not None), None)
    if edges is None:
        return NotImplemented
    found = on_nodes(func, args, kwargs) if edges.on_nodes and not in_place else None
    if isinstance(found, Expr):
        return EdgeTensor(relation, found, edges)
    if call is not None and any(t.relation is not relation for t in given):
        raise ValueError(
            "tensors of the edges of two graphs were given to one function: edge_index with and without self loops are "
            "two graphs, for instance"
        )
    calls = None if call is None else recorded(call, in_place)
    if calls is None:
        return NotImplemented
    if not isinstance(calls, Expr):
        return type(calls)([EdgeTensor(relation, call, edges) for call in calls])
    made = EdgeTensor(relation, calls, edges)
    made._parts = found
    return made


def _wide(args: Any, kwargs: Any) -> bool:
    """Whether the sizes of a new tensor are those of rows of edges. One number for each edge is made at once."""
    size = args[1] if len(args) > 1 else kwargs.get("size", ())
    sizes = size if isinstance(size, (tuple, list)) else args[1:]
    return len(sizes) > 1 and type(sizes[0]) is EdgeCount


def _not_in_place(func: Any, args: Any, kwargs: Any) -> Tuple[Any, Any, bool]:
    """Arguments without ``inplace``, and what it was."""
    place = rowwise.inplace_argument(func)
    if place is None:
        return args, kwargs, False
    if len(args) > place:
        return (*args[:place], False, *args[place + 1 :]), kwargs, bool(args[place])
    return args, {**kwargs, "inplace": False}, bool(kwargs.get("inplace"))


def _with_values(func: Any, args: Any, kwargs: Any, given: List[EdgeTensor], in_place: bool, writes: bool) -> Any:
    """Calls a function with the values of this worker's edges.

    :param in_place: it changes its first argument, which is of edges
    :param writes: it writes into a tensor that is not of edges
    """
    if given[0].edges is not None:
        warn_of_own_edges(func, args, kwargs, given[0].relation.num_edges, writes)
    name = getattr(func, "__qualname__", None) or getattr(func, "__name__", None) or repr(func)
    log_once(
        f"edge tensor computed by {name}",
        f"{name} reads the values of an edge tensor, so a tensor with one row per edge is computed and kept: what "
        "avoids that is arithmetic, activations, sums over features, dropout and edge_softmax, or a message function",
    )
    if not in_place:
        return func(*values(args), **values(kwargs))
    # changes the values, or a copy of them where nobody has seen them
    target: EdgeTensor = args[0]
    seen = target.kept_value()
    if seen is None:
        changed = target.materialize().clone()
    else:
        changed = seen
        target._keep_what_was_read()
    func(changed, *values(args[1:]), **values(kwargs))
    if seen is not None:
        refresh(target)
        return target
    target._value = None
    return target.become(changed)


def _stray(grad: Tensor) -> Tensor:
    raise RuntimeError(PAST_OVERRIDES)


_IDENTITIES = ("BackwardHookFunctionBackward", "ViewBackward0")
"""Nodes by which torch calls hooks; :meth:`EdgeTensor._same` is what they give."""

PAST_OVERRIDES = (
    "an edge tensor went through an operation that does not follow torch's function overrides (often an "
    "autograd.Function), where its gradient would be lost: give that operation edge_tensor.materialize() instead. "
    "torch.utils.checkpoint(use_reentrant=True) is one, which DeepGCNLayer(ckpt_grad=True) calls: leave it out"
)
