"""Prepared modules as an operation of ``torch.library``, so that torch.compile takes a model in one piece.

In a compiled graph a prepared module is one call of ``sar::module``, and one of ``sar::module_backward``. They run what
the module runs without a compiler, so the numbers are the same. What forward keeps for backward is no tensor of the
graph: it stays here, under the number in a tensor of the graph, and goes with that tensor.

Workers exchange messages in both, in one order, which the compiler has to leave alone. So both are declared as effects.
An older torch, which cannot do that, has a graph break at each module instead.
"""

from __future__ import annotations

import ast
import itertools
import weakref
from typing import Any, Callable, Dict, List, Optional, Protocol, Sequence, Tuple
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from sar.autograd.autocast import autocast_state

from .deferred import computed

POSSIBLE = hasattr(torch.library, "_register_effectful_op")
"""Whether torch has what this takes."""


class Prepared(Protocol):
    """What a module needs to have been given to be an operation."""

    module: nn.Module
    function: Callable[..., Any]
    graph: Any
    features: Optional[Tuple[int, ...]]
    number: int

    @property
    def name(self) -> str: ...


_GRAPH, _GRAD, _PLAIN = "graph", "grad", "plain"
"""What stands for the graph, for a tensor that needs a gradient, and for one that needs none."""

_numbers = itertools.count(1)
_modules: WeakValueDictionary[int, Prepared] = WeakValueDictionary()
_kept: Dict[int, Tuple[Tensor, List[Tensor]]] = {}
"""The result of a module, and the tensors that its gradient is for."""
_library: Optional[torch.library.Library] = None


def number(prepared: Prepared) -> int:
    """A number for a module, for as long as it is prepared."""
    found = next(_numbers)
    _modules[found] = prepared
    return found


# ---- in the trace -------------------------------------------------------------------


def traced(prepared: Prepared, args: Sequence[Any], kwargs: Dict[str, Any]) -> Optional[Tensor]:
    """What torch.compile traces for a call of a module; None where the call has to run without it."""
    if autocast_state().on:
        return None  # torch runs the operation without autocast
    rows: List[Tensor] = []
    given: List[str] = []
    for name, value in [*[("", a) for a in args], *kwargs.items()]:
        if type(value) is Tensor or type(value) is nn.Parameter:
            given.append(f"{name}={_GRAD if _needs_grad(value) else _PLAIN}")
            rows.append(value)
        elif value is None or type(value) in (bool, int, float):
            given.append(f"{name}={value}")
        elif id(value) == id(prepared.graph):
            given.append(f"{name}={_GRAPH}")
        else:
            return None
    parameters = list(prepared.module.parameters())
    needs = "".join("1" if _needs_grad(p) else "0" for p in parameters)
    if not rows or (torch.is_grad_enabled() and "1" not in needs):
        return None  # some other worker may need gradients of this one's rows
    found: Tensor = torch.ops.sar.module(prepared.number, ",".join(given), needs, rows, parameters)[0]
    return found


def _needs_grad(tensor: Tensor) -> bool:
    return torch.is_grad_enabled() and tensor.requires_grad


# ---- below it -------------------------------------------------------------------------


def _module(number: int, given: str, needs: str, rows: List[Tensor], parameters: List[Tensor]) -> Tuple[Tensor, Tensor]:
    prepared = _found(number)
    with _autograd():
        args: List[Any] = []
        kwargs: Dict[str, Any] = {}
        leaves: List[Tensor] = []

        def leaf(tensor: Tensor, grad: bool) -> Tensor:
            made = tensor.detach()
            if grad:
                leaves.append(made.requires_grad_())
            return made

        left = iter(rows)
        for one in given.split(","):
            name, _, what = one.partition("=")
            value: Any = prepared.graph
            if what in (_GRAD, _PLAIN):
                value = leaf(next(left), what == _GRAD)
            elif what != _GRAPH:
                value = ast.literal_eval(what)
            if name:
                kwargs[name] = value
            else:
                args.append(value)
        names = [name for name, _ in prepared.module.named_parameters()]
        own = {f"module.{n}": leaf(p, grad == "1") for n, p, grad in zip(names, parameters, needs)}
        with torch.set_grad_enabled(bool(leaves)):
            out = computed(torch.func.functional_call(_Module(prepared), own, tuple(args), kwargs))
    wanted = _shape(prepared, rows)
    if tuple(out.shape) != wanted:
        raise RuntimeError(
            f"torch.compile took {prepared.name} for a module that gives {wanted}, and "
            f"it gave {tuple(out.shape)}: call it outside what is compiled"
        )
    key = next(_numbers)
    token = torch.tensor([key])
    if leaves:
        _kept[key] = out, leaves
        weakref.finalize(token, _kept.pop, key, None)
    return out.detach().contiguous(), token


class _Module(nn.Module):
    """Calls a module without its hooks, which the compiler has traced."""

    def __init__(self, prepared: Prepared) -> None:
        super().__init__()
        self.module, self._function = prepared.module, prepared.function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(self.module, *args, **kwargs)


def _module_backward(token: Tensor, grad: Tensor, wanted: List[Tensor]) -> List[Tensor]:
    key = int(token)
    if key not in _kept:
        raise RuntimeError("backward a second time through a compiled module of a graph that is split over workers")
    out, leaves = _kept.pop(key)
    with _autograd():
        grads = torch.autograd.grad(out, leaves, grad, allow_unused=True)
    return [torch.zeros_like(leaf) if g is None else g.contiguous() for g, leaf in zip(grads, leaves)]


def _autograd() -> Any:
    """Autograd, which torch leaves out where it runs an operation."""
    left_out = torch._C._dispatch_tls_local_exclude_set()
    for key in ("AutogradFunctionality", "AutogradOther", "AutogradNestedTensor"):
        left_out = left_out.remove(getattr(torch._C.DispatchKey, key))
    return torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), left_out)


def _found(number: int) -> Prepared:
    prepared = _modules.get(number)
    if prepared is None:
        raise RuntimeError("a compiled model is not prepared any more: compile it anew after sar.prepare")
    return prepared


# ---- what the compiler knows ----------------------------------------------------------


def _shape(prepared: Prepared, rows: Sequence[Tensor]) -> Tuple[int, ...]:
    features = prepared.features
    assert features is not None
    return (rows[0].shape[0], *(features or rows[0].shape[1:]))


def _fake_module(number: int, given: str, needs: str, rows: List[Tensor], parameters: List[Tensor]) -> Any:
    prepared = _found(number)
    return rows[0].new_empty(_shape(prepared, rows)), rows[0].new_empty((1,), dtype=torch.int64)


def _fake_module_backward(token: Tensor, grad: Tensor, wanted: List[Tensor]) -> List[Tensor]:
    return [torch.empty_like(t, memory_format=torch.contiguous_format) for t in wanted]


def _set_up(ctx: Any, inputs: Any, output: Any) -> None:
    _, given, needs, rows, parameters = inputs
    flags = [what for what in (one.partition("=")[2] for one in given.split(",")) if what in (_GRAD, _PLAIN)]
    ctx.of_rows, ctx.of_parameters = [f == _GRAD for f in flags], [n == "1" for n in needs]
    ctx.save_for_backward(
        output[1], *(t for t, grad in zip([*rows, *parameters], ctx.of_rows + ctx.of_parameters) if grad)
    )


def _backward(ctx: Any, grad: Tensor, _: Any) -> Any:
    token, *wanted = ctx.saved_tensors
    found = iter(torch.ops.sar.module_backward(token, grad, wanted))
    rows = [next(found) if needs else None for needs in ctx.of_rows]
    return None, None, None, rows, [next(found) if needs else None for needs in ctx.of_parameters]


def declare() -> None:
    """Makes the operations known to torch, once."""
    global _library
    if _library is not None or not POSSIBLE:
        return
    from torch._library.effects import EffectType

    _library = torch.library.Library("sar", "FRAGMENT")
    rest = "str given, str needs, Tensor[] rows, Tensor[] parameters) -> (Tensor, Tensor)"
    _library.define(f"module(int number, {rest}")
    _library.define("module_backward(Tensor token, Tensor grad, Tensor[] wanted) -> Tensor[]")
    made: Dict[str, Tuple[Callable[..., Any], Callable[..., Any]]] = {
        "module": (_module, _fake_module),
        "module_backward": (_module_backward, _fake_module_backward),
    }
    for name, (function, fake) in made.items():
        _library.impl(name, function, "CPU")
        torch.library.register_fake(f"sar::{name}", fake, lib=_library)
        torch.library._register_effectful_op(f"sar::{name}", EffectType.ORDERED, lib=_library)
    torch.library.register_autograd("sar::module", _backward, setup_context=_set_up, lib=_library)
