"""Functions of torch that are applied edge by edge, in blocks, when their result is reduced.

A :class:`Step` is a function of torch with its arguments, which may be other steps. Each has a sample: its result on a
few made-up rows, which tells shape and dtype. A function belongs here if rows of its result depend on the same rows of
its arguments alone. That is found out on the sample: the first rows have to come out the same without the others.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Union

import torch
import torch.nn.functional as F
from torch import Tensor

from sar.autograd.expression import Expr, evaluate
from sar.autograd.types import Relation

__all__ = ["Step", "apply", "of_expression", "ordered"]

NODES = 7
"""Rows of a sample: a number that shapes of parameters seldom have."""
FEWER = 3
"""Rows that have to come out the same without the others."""


class NumEdges:
    """Stands for the number of edges among the arguments of a step."""


class Step:
    """A function of torch, applied edge by edge; or rows of a tensor.

    :ivar func: the function; None for rows of a tensor
    :ivar args: its arguments, with steps in the places of tensors of edges
    :ivar kwargs: likewise
    :ivar pick: which of several results
    :ivar side: "u", "v" or "e", of rows of a tensor
    :ivar tensor: whose rows
    :ivar sample: ``[NODES, ...]``
    :ivar fewer: the same of the first rows alone, ``[FEWER, ...]``
    """

    __slots__ = ("args", "fewer", "func", "kwargs", "pick", "sample", "side", "tensor")

    def __init__(
        self,
        func: Optional[Callable[..., Any]],
        args: Any = (),
        kwargs: Any = None,
        pick: Optional[int] = None,
        side: str = "",
        tensor: Optional[Tensor] = None,
    ) -> None:
        self.func, self.args, self.kwargs, self.pick = func, args, kwargs or {}, pick
        self.side, self.tensor = side, tensor
        self.sample = self.fewer = torch.empty(0)

    def inputs(self) -> Iterator[Step]:
        """The steps among the arguments."""
        yield from _steps((self.args, self.kwargs))

    def run(self, rows: int, of: Callable[[Step], Tensor]) -> Any:
        """Calls the function with values in the places of steps; all of its results.

        :param rows: how many edges these are values of
        """
        assert self.func is not None
        args, kwargs = (_filled(tree, rows, of) for tree in (self.args, self.kwargs))
        return self.func(*args, **kwargs)

    def __repr__(self) -> str:
        if self.func is None:
            return f"load({self.side})"
        return f"{getattr(self.func, '__name__', self.func)}({', '.join(map(repr, self.inputs()))})"


def _steps(tree: Any) -> Iterator[Step]:
    if isinstance(tree, Step):
        yield tree
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            yield from _steps(item)
    elif isinstance(tree, dict):
        yield from _steps(list(tree.values()))


def _filled(tree: Any, rows: int, of: Callable[[Step], Tensor]) -> Any:
    if isinstance(tree, Step):
        return of(tree)
    if isinstance(tree, NumEdges):
        return rows
    if isinstance(tree, (list, tuple)):
        made = [_filled(item, rows, of) for item in tree]
        return type(tree)(*made) if hasattr(tree, "_fields") else type(tree)(made)
    if isinstance(tree, dict):
        return {key: _filled(item, rows, of) for key, item in tree.items()}
    return tree


def ordered(step: Step) -> List[Step]:
    """A step and all that it is computed from, each after its arguments."""
    found: Dict[int, Step] = {}
    stack = [step]
    while stack:
        at = stack[-1]
        missing = [] if id(at) in found else [s for s in at.inputs() if id(s) not in found]
        if missing:
            stack.extend(missing)
        else:
            found.setdefault(id(at), stack.pop())
    return list(found.values())


# ---- making steps ---------------------------------------------------------------


def rows_of(side: str, tensor: Tensor) -> Step:
    """Rows of a tensor, picked by edge."""
    tensor = tensor if torch.is_grad_enabled() else tensor.detach()
    step = Step(None, side=side, tensor=tensor)
    shape = (NODES, *tensor.shape[1:])
    if tensor.is_floating_point():
        count = torch.Size(shape).numel()
        sample = torch.sin(torch.arange(1, count + 1, dtype=torch.float64) * 1.7).view(shape).to(tensor.dtype)
    elif len(tensor):
        sample = tensor.detach().index_select(0, torch.arange(NODES) % len(tensor))
    else:
        sample = torch.zeros(shape, dtype=tensor.dtype)
    step.sample = sample.requires_grad_(tensor.requires_grad and torch.is_grad_enabled())
    step.fewer = sample.detach()[:FEWER]
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
            found = _tried(_function(x), args, {})
            assert isinstance(found, Step)
            made[id(x)] = found
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


SHARED: Dict[Any, Sequence[Union[int, str]]] = {
    F.linear: (1, 2, "weight", "bias"),
    F.layer_norm: (2, 3, "weight", "bias"),
    F.bilinear: (2, 3, "weight", "bias"),
    F.embedding: (1, "weight"),
    Tensor.__getitem__: (0,),
    Tensor.index_select: (0,),
    torch.index_select: (0,),
}
"""Arguments that are the same for all edges, however many rows they have."""


SIZED = frozenset([Tensor.view, Tensor.reshape, torch.reshape, Tensor.expand])
"""Functions that take the sizes of their result."""


def apply(
    relation: Relation, func: Any, args: Any, kwargs: Any, steps: Mapping[int, Step], in_place: bool
) -> Union[None, Step, List[Step]]:
    """A function as a step, or several if it has several results; None where it does not treat each edge by itself.

    :param steps: those of the tensors of edges among the arguments, by id
    :param in_place: the function changes its first argument, which stays as it is here
    """
    given = [_swapped(item, relation.num_edges, func, n, steps) for n, item in enumerate(args)]
    if func in SIZED and len(given) > 1 and type(given[1]) is int and given[1] == relation.num_edges:
        given[1] = NumEdges()
    named = {key: _swapped(item, relation.num_edges, func, key, steps) for key, item in kwargs.items()}
    return _tried(_on_a_copy(func) if in_place else func, given, named)


def _swapped(tree: Any, edges: int, func: Any, place: Union[int, str], steps: Mapping[int, Step]) -> Any:
    """An argument with steps in the places of tensors of edges."""
    if id(tree) in steps:
        return steps[id(tree)]
    if isinstance(tree, Tensor):
        shared = place in SHARED.get(func, ()) or isinstance(tree, torch.nn.Parameter)
        return tree if shared or not tree.dim() or tree.shape[0] != edges else rows_of("e", tree)
    if isinstance(tree, (list, tuple)):
        tree = tuple(tree) if isinstance(tree, torch.Size) else tree
        made = [_swapped(item, edges, func, place, steps) for item in tree]
        if func in SIZED and made and type(made[0]) is int and made[0] == edges:
            made[0] = NumEdges()
        return type(tree)(*made) if hasattr(tree, "_fields") else type(tree)(made)
    return tree


def _on_a_copy(func: Callable[..., Any]) -> Callable[..., Any]:
    def call(first: Tensor, *args: Any, **kwargs: Any) -> Any:
        copied = first.clone()
        func(copied, *args, **kwargs)
        return copied

    call.__name__ = getattr(func, "__name__", "a function in place")
    return call


def _without_gradients(func: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return func(*args, **kwargs)

    call.__name__ = getattr(func, "__name__", "a function")
    return call


def _tried(func: Callable[..., Any], args: Any, kwargs: Any) -> Union[None, Step, List[Step]]:
    """The steps of the results of a function; None where it fails on samples, gives anything but rows of edges, or
    rows that depend on each other."""
    if not torch.is_grad_enabled():
        func = _without_gradients(func)  # also when it runs on blocks, in backward
    step = Step(func, args, kwargs)
    before = torch.get_rng_state()
    try:
        whole = step.run(NODES, lambda s: s.sample)
        random = not torch.equal(before, torch.get_rng_state())
        with torch.no_grad():
            fewer = step.run(FEWER, lambda s: s.fewer)
    except Exception:  # what the values of all edges raise says more
        return None
    finally:
        torch.set_rng_state(before)
    if isinstance(whole, Tensor):
        return step if _sampled(step, whole, fewer, random) else None
    if not isinstance(whole, (list, tuple)) or not whole:
        return None
    made = [Step(func, args, kwargs, pick) for pick in range(len(whole))]
    return made if all(_sampled(s, w, f, random) for s, w, f in zip(made, whole, fewer)) else None


def _sampled(step: Step, whole: Any, fewer: Any, random: bool) -> bool:
    """Stores the samples if they are rows of edges that do not depend on each other."""
    if not isinstance(whole, Tensor) or not whole.dim() or whole.shape[0] != NODES or len(fewer) != FEWER:
        return False
    if not random and not torch.allclose(whole.detach()[:FEWER].double(), fewer.double(), 1e-3, 1e-5, equal_nan=True):
        return False
    step.sample = whole.detach().requires_grad_(whole.requires_grad)
    step.fewer = fewer.detach()
    return True
