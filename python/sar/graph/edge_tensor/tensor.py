"""Lazy edge tensors: computed when their values are first read.

What ``apply_edges`` puts into ``edata`` is an :class:`EdgeTensor`: it has the shape and dtype of a tensor with one row
per edge, but holds an expression (:mod:`sar.autograd.expression`). Arithmetic, activations, dropout,
``edge_softmax``, sums and other shapes of features extend the expression; ``update_all`` then runs all of it fused, and
no tensor of edge size is made. Any other operation computes the values first.

Reading values is a collective operation wherever the expression reads rows of source nodes: all ranks must do it, and
layers do, because they run the same code everywhere. Shape, dtype and the like are free.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import torch
import torch.nn.functional as F
from torch import Tensor

from sar._engine.log import log_once
from sar.autograd.compile import uncompiled
from sar.autograd.expression import Expr, evaluate, load
from sar.autograd.types import Relation

from .memory import Viewed, refresh, remember, rewritten, wrote
from .nested import mapped

__all__ = ["EdgeTensor", "as_expr"]

Handler = Callable[..., Any]
"""Takes the arguments of a torch function; returns ``NotImplemented`` where values are needed."""

LAZY: Dict[Any, Handler] = {}
"""Torch functions that extend an expression; :mod:`sar.graph.edge_tensor.arithmetic` and its neighbour fill it."""

IN_PLACE: Dict[Any, Any] = {}
"""For each torch function that changes its first argument: the function in :data:`LAZY` that does the same, or None."""


class EdgeTensor(Viewed):
    """A tensor ``[num_edges, ...]`` in the order of the worker's in-edges, given by an expression.

    :param relation: whose edges
    :param expr: the value of each edge
    """

    _relation: Relation
    _expr: Expr

    @staticmethod
    def __new__(cls, relation: Relation, expr: Expr) -> EdgeTensor:
        needs = needs_grad(expr)
        if needs and not torch.is_grad_enabled():
            expr, needs = detached(expr), False
        shape = (relation.num_edges, *expr.shape)
        self: EdgeTensor = Tensor._make_wrapper_subclass(cls, shape, dtype=expr.dtype, requires_grad=needs)
        self._relation, self._expr, self._value = relation, expr, None
        self._watch()
        return self

    def __init__(self, relation: Relation, expr: Expr) -> None:
        pass

    def _watch(self) -> None:
        """Has gradients that arrive at the tensor itself raise an error."""
        with torch._C.DisableTorchFunctionSubclass():
            if self.requires_grad:
                self.register_hook(_stray)

    @property
    def relation(self) -> Relation:
        """Whose edges these are."""
        return self._relation

    @property
    def expr(self) -> Expr:
        """The value of each edge, not computed.

        :raises RuntimeError: torch knows how to differentiate this tensor and the expression does not
        """
        with torch._C.DisableTorchFunctionSubclass():
            if self.grad_fn is not None and self.grad_fn.name() not in _IDENTITIES:
                raise RuntimeError(PAST_OVERRIDES)
        refresh(self)
        return self._expr

    def materialize(self) -> Tensor:
        """The values, ``[num_edges, ...]``, as an ordinary tensor; differentiable. They are kept for the next reader.

        Collective where the expression reads rows of source nodes.
        """
        expr = self.expr
        if expr.op == "load" and expr.side == "e" and expr.tensor is not None:
            return expr.tensor
        return self._computed()

    def _computed(self) -> Tensor:
        """The values, computed if need be, and kept."""
        value = self.kept_value()
        if value is None:
            # torch does not count changes of what is made in inference mode, and records gradients outside of it
            grad = torch.is_grad_enabled()
            with torch.inference_mode(False), torch.set_grad_enabled(grad):
                value = self._compute()
                self._value = value = value.clone() if self._copied or value.is_inference() else value
            self._version_of_value = value._version
        return value

    def _compute(self) -> Tensor:
        view = self._view
        if view is None:
            return evaluate(self._relation, self.expr, None)
        found: Tensor = view.func(*values(view.args), **values(view.kwargs))  # in the memory of the other's values
        return found

    def _same(self) -> EdgeTensor:
        """Another tensor with the same expression.

        torch makes one if a module has backward hooks, or if a tensor has hooks of several. Reading values is
        collective and hooks may exist on one rank only, so no values are read. No gradient of edges is computed, so
        these hooks are not called.
        """
        made: EdgeTensor = Tensor._make_wrapper_subclass(EdgeTensor, self.shape, dtype=self.dtype)
        made._relation, made._expr = self._relation, self.expr
        self._share(made)
        return made

    def _share(self, made: EdgeTensor) -> None:
        """Another tensor with the same values is a view of this one."""
        made._value, made._version_of_value = self._value, self._version_of_value
        remember(Tensor.view, (self, (-1, *self.shape[1:])), {}, made)

    def extended(self, expr: Expr) -> EdgeTensor:
        """An edge tensor of the same edges with another expression."""
        return EdgeTensor(self._relation, expr)

    def become(self, other: Union[EdgeTensor, Tensor]) -> EdgeTensor:
        """Takes over the values of ``other``: what operations in place do."""
        if other.shape != self.shape or other.dtype != self.dtype:
            raise RuntimeError(
                f"an edge tensor {tuple(self.shape)} {self.dtype} cannot become {tuple(other.shape)} {other.dtype} in "
                "place: use the operation that returns a new tensor"
            )
        refresh(self)
        wrote(self, other)
        return self

    def _take(self, other: Tensor) -> None:
        self._expr, self._value, self._copied = as_expr(other, "e"), None, False
        self._follow(other)

    def _rewritten(self, value: Tensor) -> Tensor:
        with torch.enable_grad():
            return rewritten(self.materialize(), values(value))

    def _follow(self, other: Tensor) -> None:
        """Requires a gradient from now on if what it took over requires one, as other tensors do."""
        with torch._C.DisableTorchFunctionSubclass():
            if other.requires_grad and not self.requires_grad:
                self.requires_grad_()
                self._watch()

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"EdgeTensor(shape={tuple(self.shape)}, dtype={self.dtype}, expr={self._expr!r})"

    def __format__(self, format_spec: str) -> str:
        return repr(self)  # torch's own would read values, and one rank may print alone

    @classmethod
    @uncompiled
    def __torch_function__(
        cls, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if func in OF_HOOKS or (func is Tensor.view_as and args[0] is args[1]):
            if func in (Tensor.register_hook, Tensor.retain_grad):
                log_once(
                    "hook on an edge tensor",
                    "a hook on an edge tensor is not called, and retain_grad() keeps nothing: edge tensors are "
                    "computed in one piece with what is made of them, and their gradients are not made. To have them, "
                    "use the result of edge_tensor.materialize(), on all ranks",
                )
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        handler = LAZY.get(func)
        if handler is not None:
            result = handler(*args, **kwargs)
            if result is not NotImplemented:
                remember(func, args, kwargs, result)
                return result
        if args and isinstance(args[0], EdgeTensor) and changes(func):
            return _in_place(func, args[0], args, kwargs)
        say(func)
        return func(*values(args), **values(kwargs))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        # code that does not ask __torch_function__ arrives here: it gets the values
        if func is torch.ops.aten.view.default and list(args[1]) == list(args[0].shape):
            return args[0]._same()
        return func(*values(args), **values(kwargs or {}))


def register(handler: Handler, *names: str) -> None:
    """Has the handler stand for functions of these names in ``torch``, ``Tensor`` and ``torch.nn.functional``."""
    for name in names:
        for function in _named(name):
            LAZY[function] = handler


def register_in_place(*pairs: Tuple[str, str]) -> None:
    """Has functions that change their first argument do what another one does: pairs of the names of both."""
    for name, of in pairs:
        for function in _named(name):
            IN_PLACE[function] = getattr(Tensor, of, None) or getattr(F, of)


def _named(name: str) -> List[Any]:
    found = (getattr(home, name, None) for home in (torch, Tensor, F))
    return [function for function in found if function is not None]


def extended(like: EdgeTensor, expr: Expr) -> EdgeTensor:
    """An edge tensor of the same edges with another expression."""
    return like.extended(expr)


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


def values(tree: Any) -> Any:
    """The same structure with every :class:`EdgeTensor` computed."""
    return mapped(tree, lambda leaf: leaf.materialize() if isinstance(leaf, EdgeTensor) else leaf)


def needs_grad(expr: Expr) -> bool:
    """Whether a tensor that the expression reads needs a gradient."""
    seen, open_ = set(), [expr]
    while open_:
        node = open_.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.tensor is not None and node.tensor.requires_grad:
            return True
        open_.extend(node.args)
    return False


def detached(expr: Expr, done: Optional[Dict[int, Expr]] = None) -> Expr:
    """The same expression of tensors that need no gradient."""
    done = {} if done is None else done
    if id(expr) not in done:
        done[id(expr)] = Expr(
            expr.op,
            expr.shape,
            expr.dtype,
            tuple(detached(a, done) for a in expr.args),
            expr.alpha,
            None if expr.tensor is None else expr.tensor.detach(),
            expr.side,
            expr.dims,
            expr.seed,
        )
    return done[id(expr)]


def _metadata() -> frozenset[Any]:
    getters = """shape dtype device ndim layout requires_grad is_sparse is_sparse_csr is_quantized is_nested is_meta
        is_mkldnn is_cuda is_leaf grad_fn output_nr names"""
    methods = """dim ndimension size numel nelement __len__ __hash__ is_floating_point is_complex get_device
        element_size is_signed is_same_size is_inference has_names"""
    found = [getattr(Tensor, name).__get__ for name in getters.split() if hasattr(Tensor, name)]
    found += [getattr(Tensor, name) for name in methods.split() if hasattr(Tensor, name)]
    found += [torch.is_floating_point, torch.is_complex, torch.numel, torch.is_same_size]
    return frozenset(found)


METADATA = _metadata()
"""Functions that ask for nothing but shape, dtype and the like."""

OF_HOOKS = frozenset(
    [
        *(getattr(Tensor, name) for name in ("register_hook", "retain_grad")),
        *(getattr(Tensor, name).__get__ for name in ("grad", "retains_grad", "_version", "_backward_hooks")),
    ]
)
"""Functions that are about gradients that arrive at a tensor, and read no values."""

OF_AUTOGRAD = OF_HOOKS | {Tensor.backward, torch.autograd.grad, torch.autograd.backward}
"""Those, and the passes that begin or end at a tensor."""


def changes(func: Any) -> bool:
    """Whether a function changes its first argument."""
    name = getattr(func, "__name__", "")
    in_place = name in AUGMENTED or (name.endswith("_") and not name.endswith("__"))
    return func in IN_PLACE or (in_place and name != "requires_grad_")


AUGMENTED = frozenset(
    ["__setitem__", "__iadd__", "__isub__", "__imul__", "__idiv__", "__itruediv__", "__ifloordiv__", "__imod__"]
    + ["__ipow__", "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__"]
)
"""Functions that change their first argument, and do not say so with an underscore behind their name."""


def _in_place(func: Any, target: EdgeTensor, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    lazily = IN_PLACE.get(func)
    if lazily is not None:
        result = LAZY[lazily](*args, **kwargs)
        if result is not NotImplemented:
            return target.become(result)
    say(func)
    return changed_values(func, target, args, kwargs)


def changed_values(func: Any, target: EdgeTensor, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> EdgeTensor:
    """Computes the values of a tensor, and changes them, or a copy of them where nobody has seen them."""
    seen = target.kept_value()
    changed = target.materialize().clone() if seen is None else seen
    func(changed, *values(args[1:]), **values(kwargs))
    if seen is not None:
        refresh(target)
        return target
    target._value = None
    return target.become(changed)


def say(func: Any) -> None:
    name = getattr(func, "__qualname__", None) or getattr(func, "__name__", None) or repr(func)
    log_once(
        f"edge tensor computed by {name}",
        f"{name} reads the values of an edge tensor, so a tensor with one row per edge is computed and kept: what "
        "avoids that is arithmetic, activations, sums over features, dropout and edge_softmax, or a message function",
    )


def _stray(grad: Tensor) -> Tensor:
    raise RuntimeError(PAST_OVERRIDES)


_IDENTITIES = ("BackwardHookFunctionBackward", "ViewBackward0")
"""Nodes by which torch calls hooks; :meth:`EdgeTensor._same` is what they give."""

PAST_OVERRIDES = (
    "an edge tensor went through an operation that does not follow torch's function overrides (often an "
    "autograd.Function), where its gradient would be lost: give that operation edge_tensor.materialize() instead"
)
