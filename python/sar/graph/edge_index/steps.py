"""Functions of torch that are applied edge by edge, in blocks, when their result is reduced.

A :class:`Step` is a function of torch with its arguments, which may be other steps. What it gives is known from running
it on tensors without data (device "meta"); no row is made up. A function belongs here if rows of its result depend on
the same rows of its arguments alone, which a table says (:mod:`sar.graph.edge_tensor.rowwise`).
"""

from __future__ import annotations

import contextlib
import operator
from collections import OrderedDict
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from sar.autograd.expression import Expr, evaluate
from sar.autograd.types import Relation
from sar.graph.edge_tensor import rowwise
from sar.graph.edge_tensor.count import EdgeCount, warn_of_count
from sar.graph.edge_tensor.nested import leaves, mapped, tensors
from sar.graph.udf.executor import autocast_state

__all__ = ["ROWS", "Step", "apply", "described", "form_of", "formed", "of_expression", "ordered", "rows_of"]

ROWS = 1009
"""Rows of tensors without data: a prime number, which no size is a multiple of by chance."""


class Step:
    """A function of torch, applied edge by edge; or rows of a tensor.

    :ivar func: the function; None for rows of a tensor
    :ivar args: its arguments, with steps in the places of tensors of edges
    :ivar kwargs: likewise
    :ivar in_place: the function changes its first argument, of which it gets a copy
    :ivar grad: whether gradients were enabled where it was called
    :ivar used: tensors with gradients that it uses besides its arguments
    :ivar side: "u", "v" or "e", of rows of a tensor
    :ivar tensor: whose rows
    :ivar meta: what it gives, without data: ``[ROWS, ...]``, or several such tensors
    :ivar view: whether the result lies in the memory of an argument
    """

    __slots__ = ("args", "func", "grad", "in_place", "kwargs", "meta", "side", "tensor", "used", "view")
    meta: Any

    def __init__(
        self, func: Optional[Callable[..., Any]], args: Any = (), kwargs: Any = None, in_place: bool = False
    ) -> None:
        self.func, self.args, self.kwargs, self.in_place = func, args, kwargs or {}, in_place
        self.grad = torch.is_grad_enabled()
        self.view = False
        self.used: List[Tensor] = []
        self.side = ""
        self.tensor: Optional[Tensor] = None

    def inputs(self) -> Iterator[Step]:
        """The steps among the arguments."""
        return (leaf for leaf in leaves((self.args, self.kwargs)) if isinstance(leaf, Step))

    def others(self) -> Iterator[Tensor]:
        """Tensors with gradients that all edges share."""
        for t in [*tensors((self.args, self.kwargs)), *self.used]:
            if t.requires_grad and self.grad:
                yield t

    def run(self, of: Callable[[Any], Any]) -> Any:
        """Calls the function.

        :param of: gives what is put in the place of a step, or of a tensor that all edges share
        """
        assert self.func is not None
        args, kwargs = mapped((self.args, self.kwargs), of)
        with contextlib.nullcontext() if self.grad else torch.no_grad():  # also on blocks, in backward
            if not self.in_place:
                return self.func(*args, **kwargs)
            copied = args[0].clone()
            self.func(copied, *args[1:], **kwargs)
            return copied

    def __repr__(self) -> str:
        if self.func is None:
            return f"load({self.side})"
        return f"{getattr(self.func, '__name__', self.func)}({', '.join(map(repr, self.inputs()))})"


def ordered(*steps: Step) -> List[Step]:
    """Steps and all that they are computed from, each after its arguments."""
    found: Dict[int, Step] = {}
    stack = [*reversed(steps)]
    while stack:
        at = stack[-1]
        missing = [] if id(at) in found else [s for s in at.inputs() if id(s) not in found]
        if missing:
            stack.extend(missing)
        else:
            found.setdefault(id(at), stack.pop())
    return list(found.values())


# ---- what steps give ------------------------------------------------------------


class Form(NamedTuple):
    """What is known of a tensor without its data."""

    shape: Tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool
    view: bool = False


_forms: OrderedDict[Any, Any] = OrderedDict()
"""What functions gave, by the forms of their arguments: the latest."""
FORMS = 4096


def without_data(shape: Any, dtype: torch.dtype, requires_grad: bool, device: str = "meta") -> Tensor:
    """A tensor that has no data."""
    return torch.empty(shape, dtype=dtype, device=device).requires_grad_(requires_grad)


def _form(step: Step) -> Any:
    """The forms of the results of a step; raises what the function raises on such arguments."""
    key: List[Any] = [step.func, step.in_place, step.grad, autocast_state()]

    def note(leaf: Any) -> Any:
        leaf = leaf.meta if isinstance(leaf, Step) else leaf
        key.append((leaf.shape, leaf.dtype, leaf.requires_grad) if isinstance(leaf, Tensor) else (type(leaf), leaf))
        return leaf

    indexed = step.func in INDEXED and any(not t.is_floating_point() for t in tensors((step.args, step.kwargs)))
    structure = mapped((step.args, step.kwargs), note)
    key.append(repr(mapped(structure, lambda leaf: 0)))
    try:
        whole_key = None if indexed else tuple(key)
        hash(whole_key)
    except TypeError:  # a slice, for instance
        whole_key = None
    if whole_key is None or whole_key not in _forms:
        found = _anew(step)
        if whole_key is None:
            return found
        _forms[whole_key] = found
        if len(_forms) > FORMS:
            _forms.popitem(last=False)
    return _forms[whole_key]


INDEXED = frozenset([Tensor.__getitem__, Tensor.__setitem__])
"""Functions whose results depend on how many entries of a mask are set."""


def _anew(step: Step) -> Any:
    lowered = autocast_state()[0]
    device = "cpu" if lowered else "meta"

    def given(leaf: Any) -> Any:
        if isinstance(leaf, Step):
            leaf = leaf.meta
        elif isinstance(leaf, Tensor) and step.func in INDEXED and not leaf.is_floating_point():
            return leaf  # read alone, for how many entries are picked
        elif isinstance(leaf, torch.device) and leaf.type == "cpu":
            return torch.device(device)
        if not isinstance(leaf, Tensor):
            return leaf
        return without_data(leaf.shape, leaf.dtype, leaf.requires_grad, device)

    with fake_tensors() if lowered else contextlib.nullcontext():
        found = step.run(given)
    return form_of(found)


def form_of(results: Any) -> Any:
    """The forms of tensors, in the same structure."""
    return mapped(results, lambda t: Form(tuple(t.shape), t.dtype, t.requires_grad, t._is_view()))


def fake_tensors() -> Any:
    """Tensors without data that say they are on the CPU, for which autocast changes the dtype of results."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


# ---- making steps ---------------------------------------------------------------


def rows_of(side: str, tensor: Tensor) -> Step:
    """Rows of a tensor, picked by edge."""
    step = Step(None)
    step.side, step.tensor = side, tensor.detach() if tensor.requires_grad and not step.grad else tensor
    step.meta = without_data((ROWS, *tensor.shape[1:]), tensor.dtype, tensor.requires_grad and step.grad)
    return step


def of_expression(relation: Relation, expr: Expr) -> Step:
    """An expression as steps. Softmaxes and dropouts in it are computed first, which is collective."""
    return _of_expression(relation, expr, {})


def _of_expression(relation: Relation, x: Expr, made: Dict[int, Step]) -> Step:
    if id(x) not in made:
        if x.op == "load":
            assert x.tensor is not None
            made[id(x)] = rows_of(x.side, x.tensor)
        elif x.op in ("softmax", "dropout"):
            made[id(x)] = rows_of("e", evaluate(relation, x, None))
        else:
            args = [a.tensor if a.op == "param" else _of_expression(relation, a, made) for a in x.args]
            step = made[id(x)] = Step(_function(x), args)
            grad = step.grad and any(t.requires_grad for t in [*tensors(args), *(s.meta for s in step.inputs())])
            step.meta, step.view = without_data((ROWS, *x.shape), x.dtype, grad), x.op == "reshape"
    return made[id(x)]


def _function(x: Expr) -> Callable[..., Any]:
    alpha = x.alpha
    plain: Dict[str, Callable[..., Any]] = {
        "add": torch.add,
        "sub": torch.sub,
        "mul": torch.mul,
        "div": torch.div,
        "dot": lambda a, b: (a * b).sum(-1, keepdim=True),
        "leaky_relu": lambda a: F.leaky_relu(a, alpha),
        "elu": lambda a: F.elu(a, alpha),
        "softplus": F.softplus,
        "scale": lambda a: a * alpha,
        "shift": lambda a: a + alpha,
        "rsub": lambda a: alpha - a,
        "pow": lambda a: a**alpha,
        "clamp_min": lambda a: a.clamp(min=alpha),
        "clamp_max": lambda a: a.clamp(max=alpha),
        "clamp_min_open": lambda a: a.clamp(min=alpha),
        "clamp_max_open": lambda a: a.clamp(max=alpha),
        "total": lambda a: a.sum([d + 1 for d in x.dims], keepdim=True),
        "reshape": lambda a: a.reshape(a.shape[0], *x.shape),
    }
    return plain.get(x.op) or getattr(torch, x.op)


def apply(
    relation: Relation, func: Any, args: Any, kwargs: Any, is_edge: Any, as_step: Callable[[Any], Step], in_place: bool
) -> Any:
    """A function as a step, or several in the form that it gives its results in; None where it may not treat each edge
    by itself, or fails on such arguments: what the values of all edges raise says more.

    :param is_edge: the type of tensors of edges
    :param as_step: gives the step of a tensor of edges
    :param in_place: the function changes its first argument, which stays as it is here
    """
    call = rowwise.find(func, args, kwargs, relation.num_edges, is_edge)
    if call is None:
        return None
    made: Dict[int, Step] = {}  # a tensor that is given twice is read once

    def given(leaf: Any) -> Any:
        if type(leaf) is EdgeCount and leaf == relation.num_edges:
            warn_of_count(f"size(0) of a tensor of edges, given to {getattr(func, '__name__', func)},")
            return int(leaf)
        if not isinstance(leaf, is_edge) and id(leaf) not in call.of_edges:
            return leaf
        if id(leaf) not in made:
            made[id(leaf)] = as_step(leaf) if isinstance(leaf, is_edge) else rows_of("e", leaf)
        return made[id(leaf)]

    step = Step(call.func, mapped(call.args, given), mapped(call.kwargs, given), in_place)
    try:
        return described(step)
    except Exception:
        return None


def described(step: Step) -> Any:
    """A step that knows what it gives, or several; raises what its function raises on such arguments."""
    return formed(step, _form(step))


def formed(step: Step, form: Any) -> Any:
    """A step that gives results of a form, or steps that give one of several each; None where they are not rows of
    edges."""
    if isinstance(form, Form):
        return _described(step, form)
    if not isinstance(form, (tuple, list)) or not form:
        return None
    step.meta = tuple(form)
    made = [_described(Step(operator.getitem, (step, n)), one) for n, one in enumerate(form)]
    return None if any(one is None for one in made) else type(form)(made)


def _described(step: Step, form: Any) -> Optional[Step]:
    if not isinstance(form, Form) or form.shape[:1] != (ROWS,):
        return None
    step.meta, step.view = without_data(form.shape, form.dtype, form.requires_grad), form.view
    return step
