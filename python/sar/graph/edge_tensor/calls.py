"""Functions of torch that are applied edge by edge, in blocks, when their result is reduced.

A :class:`Call` is an expression that the engine does not know: a function of torch with its arguments, which may be
other expressions. What it gives is known from running it on tensors without data (device "meta"); no row is made up. A
function belongs here if rows of its result depend on the same rows of its arguments alone, which a table says
(:mod:`sar.graph.edge_tensor.rowwise`).
"""

from __future__ import annotations

import contextlib
import operator
from collections import OrderedDict
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from sar.autograd.autocast import autocast_state, under
from sar.autograd.dtypes import FLOATS
from sar.autograd.expression import Expr, evaluate
from sar.autograd.types import Relation, check_version, ordered, version

from .base import BaseEdgeTensor
from .count import EdgeCount, warn_of_count
from .nested import leaves, mapped, tensors
from .rowwise_rules import ROWS, Arguments


class Call(Expr):
    """A function of torch, applied edge by edge.

    :ivar func: the function
    :ivar given: its arguments and those by name, with expressions in the places of tensors of edges
    :ivar in_place: the function changes its first argument, of which it gets a copy
    :ivar grad: whether gradients were enabled where it was called, and ``cast`` the state of autocast there
    :ivar used: tensors with gradients that it uses besides its arguments
    :ivar requires_grad: whether the result needs a gradient
    :ivar view: whether the result lies in the memory of an argument
    :ivar several: it gives several tensors, each of which another call takes
    """

    __slots__ = ("_versions", "cast", "func", "given", "grad", "in_place", "requires_grad", "several", "used", "view")

    def __init__(self, func: Callable[..., Any], args: Any = (), kwargs: Any = None, in_place: bool = False) -> None:
        self.func, self.given, self.in_place = func, (args, kwargs or {}), in_place
        inner = tuple(leaf for leaf in leaves(self.given) if isinstance(leaf, Expr))
        super().__init__("call", (), torch.float32, inner)  # until it is known what the function gives
        self.grad, self.cast = torch.is_grad_enabled(), autocast_state()
        self.requires_grad = self.view = self.several = False
        self.used: List[Tensor] = []
        self._versions = [(t, version(t)) for t in tensors(self.given)]

    def uses(self, others: Sequence[Tensor]) -> None:
        """Names what the function uses besides its arguments."""
        self.used = list(others)
        self._versions += [(t, version(t)) for t in others]

    def check(self) -> None:
        """:raises RuntimeError: a tensor that the function uses was changed in place since it was called"""
        for tensor, then in self._versions:
            check_version(tensor, then)

    def run(self, of: Callable[[Any], Any]) -> Any:
        """Calls the function.

        :param of: gives what is put in the place of an expression, or of a tensor that all edges share
        """
        args, kwargs = mapped(self.given, of)
        # also on blocks, in backward
        with contextlib.nullcontext() if self.grad else torch.no_grad(), under(self.cast):
            if not self.in_place:
                return self.func(*args, **kwargs)
            copied = args[0].clone()
            self.func(copied, *args[1:], **kwargs)
            return copied

    def __repr__(self) -> str:
        return f"{getattr(self.func, '__name__', self.func)}({', '.join(map(repr, self.args))})"


# ---- expressions ----------------------------------------------------------------


def rows(side: str, tensor: Tensor) -> Expr:
    """Rows of a tensor of any dtype, picked by edge."""
    if tensor.requires_grad and not torch.is_grad_enabled():
        tensor = tensor.detach()
    return Expr("load", tensor.shape[1:], tensor.dtype, tensor=tensor, side=side)


def in_engine(x: Expr) -> bool:
    """Whether the engine computes an expression."""
    return not isinstance(x, Call) and x.dtype in FLOATS


def needs_grad(x: Expr) -> bool:
    """Whether a tensor that the expression reads needs a gradient."""
    if isinstance(x, Call):
        return x.requires_grad
    return any(node.tensor is not None and node.tensor.requires_grad for node in ordered(x))


def remade(
    x: Expr, args: Sequence[Expr], shape: Optional[Tuple[int, ...]] = None, tensor: Optional[Tensor] = None
) -> Expr:
    """The same operation of other expressions, or of another tensor."""
    shape, tensor = x.shape if shape is None else shape, x.tensor if tensor is None else tensor
    return Expr(x.op, shape, x.dtype, tuple(args), x.alpha, tensor, x.side, x.dims, x.seed)


def detached(x: Expr) -> Expr:
    """The same expression of tensors that need no gradient."""
    made: Dict[int, Expr] = {}
    for node in ordered(x):
        tensor = None if node.tensor is None else node.tensor.detach()
        made[id(node)] = remade(node, [made[id(a)] for a in node.args], tensor=tensor)
    return made[id(x)]


def by_rows(relation: Relation, x: Expr) -> Expr:
    """The same expression, of parts that treat each edge by itself: softmaxes and dropouts in it are computed, which is
    collective."""
    made: Dict[int, Expr] = {}
    for node in ordered(x, inside=lambda x: () if x.op in ("softmax", "dropout") else x.args):
        args = [made[id(a)] for a in node.args if id(a) in made]
        if node.op in ("softmax", "dropout"):
            made[id(node)] = rows("e", evaluate(relation, node, None))
        else:
            made[id(node)] = node if all(map(operator.is_, args, node.args)) else remade(node, args)
    found = made[id(x)]
    return detached(found) if needs_grad(found) and not torch.is_grad_enabled() else found


def computed(x: Expr, found: Dict[int, Any]) -> Any:
    """The value of an expression on some edges.

    :param found: those of its arguments, by id
    """
    if isinstance(x, Call):
        return x.run(lambda leaf: found[id(leaf)] if isinstance(leaf, Expr) else leaf)
    operation = OPERATIONS.get(x.op)
    args = [found[id(a)] for a in x.args]
    return operation(x, *args) if operation is not None else getattr(torch, x.op)(*args)


OPERATIONS: Dict[str, Callable[..., Any]] = {
    "param": lambda x: x.tensor,
    "dot": lambda x, a, b: (a * b).sum(-1, keepdim=True),
    "leaky_relu": lambda x, a: F.leaky_relu(a, x.alpha),
    "elu": lambda x, a: F.elu(a, x.alpha),
    "softplus": lambda x, a: F.softplus(a),
    "scale": lambda x, a: a * x.alpha,
    "shift": lambda x, a: a + x.alpha,
    "rsub": lambda x, a: x.alpha - a,
    "pow": lambda x, a: a**x.alpha,
    **dict.fromkeys(("clamp_min", "clamp_min_open"), lambda x, a: a.clamp(min=x.alpha)),
    **dict.fromkeys(("clamp_max", "clamp_max_open"), lambda x, a: a.clamp(max=x.alpha)),
    "total": lambda x, a: a.sum([d + 1 for d in x.dims], keepdim=True),
    "reshape": lambda x, a: a.reshape(a.shape[0], *x.shape).to(x.dtype),
}
"""The engine's operations on some rows; those that are not here have the name that they have in torch."""


# ---- what calls give ------------------------------------------------------------


class Form(NamedTuple):
    """What is known of a tensor without its data."""

    shape: Tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool
    view: bool = False


_forms: OrderedDict[Any, Any] = OrderedDict()
"""What functions gave, by the forms of their arguments: the latest."""
FORMS = 4096


def without_data(x: Any, device: str) -> Tensor:
    """A tensor like another one, or like rows of an expression, that has no data."""
    if isinstance(x, Expr):
        shape, needs = (ROWS, *x.shape), needs_grad(x)
    else:
        shape, needs = tuple(x.shape), x.requires_grad
    return torch.empty(shape, dtype=x.dtype, device=device).requires_grad_(needs)


def form_of(results: Any) -> Any:
    """The forms of tensors, in the same structure."""
    return mapped(results, lambda t: Form(tuple(t.shape), t.dtype, t.requires_grad, t._is_view()))


def _form(call: Call) -> Any:
    """The forms of the results of a call; raises what the function raises on such arguments."""
    key: List[Any] = [call.func, call.in_place, call.grad, call.cast]

    def note(leaf: Any) -> Any:
        if isinstance(leaf, Expr):
            key.append(((ROWS, *leaf.shape), leaf.dtype, needs_grad(leaf)))
        elif isinstance(leaf, Tensor):
            key.append((leaf.shape, leaf.dtype, leaf.requires_grad))
        else:
            key.append((type(leaf), leaf))
        return 0

    key.append(repr(mapped(call.given, note)))
    indexed = call.func in INDEXED and any(not t.is_floating_point() for t in tensors(call.given))
    whole_key: Any = None if indexed else tuple(key)
    try:
        hash(whole_key)
    except TypeError:  # a slice, for instance
        whole_key = None
    if whole_key is None:
        return _anew(call)
    if whole_key not in _forms:
        _forms[whole_key] = _anew(call)
        if len(_forms) > FORMS:
            _forms.popitem(last=False)
    return _forms[whole_key]


INDEXED = frozenset([Tensor.__getitem__, Tensor.__setitem__])
"""Functions whose results depend on how many entries of a mask are set."""


def _anew(call: Call) -> Any:
    lowered = call.cast.on
    device = "cpu" if lowered else "meta"

    def given(leaf: Any) -> Any:
        if isinstance(leaf, torch.device) and leaf.type == "cpu":
            return torch.device(device)
        if isinstance(leaf, Tensor) and call.func in INDEXED and not leaf.is_floating_point():
            return leaf  # read alone, for how many entries are picked
        return without_data(leaf, device) if isinstance(leaf, (Expr, Tensor)) else leaf

    # Hooks of the user's, as torch.utils.checkpoint has them, would see what is saved here, and that is not done again.
    with fake_tensors() if lowered else contextlib.nullcontext(), saved_tensors_hooks(_nothing, _nothing):
        return form_of(call.run(given))


def _nothing(saved: Any) -> Any:
    """In place of a tensor that no backward will need."""


def fake_tensors() -> Any:
    """Tensors without data that say they are on the CPU, for which autocast changes the dtype of results."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


# ---- making calls ---------------------------------------------------------------


def recorded(found: Arguments, in_place: bool) -> Any:
    """A function as a call, or several in the form that it gives its results in; None where it fails on such arguments:
    what the values of all edges raise says more.

    :param in_place: the function changes its first argument, which stays as it is here
    """
    made: Dict[int, Expr] = {}  # a tensor that is given twice is read once

    def given(leaf: Any) -> Any:
        if type(leaf) is EdgeCount and leaf == found.edges:
            warn_of_count(f"size(0) of a tensor of edges, given to {getattr(found.func, '__name__', found.func)},")
            return int(leaf)
        if not isinstance(leaf, BaseEdgeTensor) and id(leaf) not in found.of_edges:
            return leaf
        if id(leaf) not in made:
            made[id(leaf)] = leaf.by_rows() if isinstance(leaf, BaseEdgeTensor) else rows("e", leaf)
        return made[id(leaf)]

    call = Call(found.func, mapped(found.args, given), mapped(found.kwargs, given), in_place)
    try:
        return described(call)
    except Exception:
        return None


def described(call: Call) -> Any:
    """A call that knows what it gives, or several; raises what its function raises on such arguments."""
    return formed(call, _form(call))


def formed(call: Call, form: Any) -> Any:
    """A call that gives results of a form, or calls that give one of several each; None where they are not rows of
    edges."""
    if isinstance(form, Form):
        return call if _set_form(call, form) else None
    if not isinstance(form, (tuple, list)) or not form:
        return None
    call.several = True
    made = [Call(operator.getitem, (call, n)) for n in range(len(form))]
    fits = all([_set_form(one, its) for one, its in zip(made, form)])
    return type(form)(made) if fits else None


def _set_form(call: Call, form: Any) -> bool:
    if not isinstance(form, Form) or form.shape[:1] != (ROWS,):
        return False
    call.shape, call.dtype, call.requires_grad, call.view = form.shape[1:], form.dtype, form.requires_grad, form.view
    return True
