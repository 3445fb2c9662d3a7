"""Random models, and what one rank may do with them for itself: look, log, profile, compile a part.

None of it may change anybody's numbers. ``test_observers.py`` holds the models against DGL on the whole graph.
"""

from __future__ import annotations

import contextlib
import copy
import random
import warnings
from typing import Any, Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.support.worker import settings

LAYERS = ["SAGEConv", "SAGEConv", "SAGEConv", "GATConv", "GATConv", "GraphConv", "GINConv", "GATv2Conv", "SGConv"]
NORMS = ["none", "batch", "batch", "batch"]
AFTER = ["relu", "relu", "relu in place", "elu", "plain", "relu and itself", "twice"]
JOINS = ["none", "none", "add", "jump"]


def make_spec(seed: int, observer: str) -> dict[str, Any]:
    """A model: plain values, the same for the same seed."""
    watched = "backward" in observer or observer == "auxiliary loss"  # torch forbids changes in place then
    rng = random.Random(seed)
    blocks = []
    width = rng.choice([1, 4, 6])
    for _ in range(rng.choice([1, 2, 2, 3])):
        kind = rng.choice(LAYERS)
        heads = rng.choice([1, 2]) if kind.startswith("GAT") else 1
        each = width if rng.random() < 0.5 and heads == 1 else rng.choice([1, 3, 4, 6])
        norm, after = rng.choice(NORMS), rng.choice(AFTER)
        saved = watched or (kind == "GATv2Conv" and norm == "none")  # backward reads its result
        after = "relu" if saved and after == "relu in place" else after
        blocks.append(
            {"kind": kind, "in": width, "out": each, "heads": heads, "norm": norm, "after": after,
             "join": rng.choice(JOINS), "library": rng.choice(["dgl", "dgl", "sar"])}
        )  # fmt: skip
        width = each * heads
    return {"blocks": blocks, "in": blocks[0]["in"], "out": width, "seed": seed}


def make_layer(library: Any, kind: str, into: int, onto: int, heads: int) -> nn.Module:
    if kind == "SAGEConv":
        return library.SAGEConv(into, onto, "mean")
    if kind in ("GATConv", "GATv2Conv"):
        return getattr(library, kind)(into, onto, heads, allow_zero_in_degree=True)
    if kind == "GINConv":
        return library.GINConv(nn.Linear(into, onto), "sum")
    if kind == "SGConv":
        return library.SGConv(into, onto, k=1, allow_zero_in_degree=True)
    return library.GraphConv(into, onto, allow_zero_in_degree=True)


class Observed(nn.Module):
    """The model. ``look`` is called with the name of a place and what the model has there."""

    def __init__(self, spec: dict[str, Any], libraries: dict[str, Any], norm: Any) -> None:
        super().__init__()
        self.spec = spec
        self.layers, self.norms = nn.ModuleList(), nn.ModuleList()
        for block in spec["blocks"]:
            library = libraries[block["library"]]
            library = library if hasattr(library, block["kind"]) else libraries["dgl"]
            self.layers.append(make_layer(library, block["kind"], block["in"], block["out"], block["heads"]))
            self.norms.append(norm(block["out"] * block["heads"]) if block["norm"] == "batch" else nn.Identity())
        self.act = nn.ReLU()
        self.look: Callable[[str, Tensor], Tensor] = lambda place, h: h

    def forward(self, graph: Any, h: Tensor) -> Tensor:
        for n, (block, layer, norm) in enumerate(zip(self.spec["blocks"], self.layers, self.norms)):
            before = h
            h = self.look(f"conv{n}", layer(graph, h).flatten(1))
            h = self.look(f"norm{n}", norm(h))
            h = self.look(f"act{n}", self.after(block["after"], h))
            if block["join"] == "add" and before.shape[1] == h.shape[1]:
                h = h + before
            elif block["join"] == "jump":
                h = h + before.mean(1, keepdim=True)
        return h

    def after(self, how: str, h: Tensor) -> Tensor:
        if how == "relu":
            return self.act(h)
        if how == "relu in place":
            return F.relu(h, inplace=True)
        if how == "elu":
            return F.elu(h)
        if how == "relu and itself":
            return torch.relu(h) + 0.5 * h
        if how == "twice":
            return F.relu(h) * 0.5 + torch.relu(h).square()
        return h


# ---- what one rank does ----------------------------------------------------------

seen: list[float] = []
"""What observers read."""


def _read(*tensors: Any) -> None:
    for t in tensors:
        if type(t) in (tuple, list):
            _read(*t)
        elif isinstance(t, Tensor) and t.dtype.is_floating_point and type(t).__name__ != "EdgeTensor":
            seen.append(float(t.detach().double().sum()))  # values of edges are collective to read, so nobody does


class Tagged(Tensor):
    """A tensor subclass that does nothing."""


class _Modes:
    """A mode below autograd and one above, that do nothing."""

    @staticmethod
    def dispatch() -> Any:
        from torch.utils._python_dispatch import TorchDispatchMode

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return func(*args, **(kwargs or {}))

        return Mode()

    @staticmethod
    def function() -> Any:
        from torch.overrides import TorchFunctionMode

        class Mode(TorchFunctionMode):
            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return func(*args, **(kwargs or {}))

        return Mode()


def _linears(model: nn.Module) -> list[tuple[nn.Module, str, nn.Linear]]:
    return [(m, n, c) for m in model.modules() for n, c in m.named_children() if type(c) is nn.Linear]


def _replace(model: nn.Module, rng: random.Random, make: Callable[[nn.Linear], Any]) -> None:
    found = _linears(model)
    for owner, name, linear in rng.sample(found, rng.randint(1, len(found))) if found else []:
        setattr(owner, name, make(linear))


def _scripted(linear: nn.Linear) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(linear)


def _traced(linear: nn.Linear) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(linear, torch.zeros(2, linear.in_features, dtype=linear.weight.dtype))


def _look(model: Observed, rng: random.Random, what: Callable[[Tensor], Any]) -> None:
    """Does ``what`` at some places of the model, of whose results batch norm's is the one that matters."""
    places = [f"{p}{n}" for p in ("conv", "norm", "norm", "act") for n, _ in enumerate(model.layers)]
    chosen = set(rng.sample(places, rng.randint(1, len(places))))

    def look(place: str, h: Tensor) -> Tensor:
        if place in chosen:
            what(h)
        return h

    model.look = look


def _later(h: Tensor) -> None:
    if h.requires_grad:
        h.retain_grad()


def _hook(h: Tensor) -> None:
    if h.requires_grad:
        h.register_hook(lambda g: _read(g))


def _local(h: Tensor) -> None:
    with torch.no_grad():
        _read(F.linear(h, torch.ones(2, h.shape[1], dtype=h.dtype)))


def _node_hook(h: Tensor) -> None:
    if h.grad_fn is not None:
        h.grad_fn.register_prehook(lambda grads: _read(*grads))


LOOKS: dict[str, Callable[[Tensor], Any]] = {
    "log the norm": lambda h: _read(h.norm()),
    "log the mean": lambda h: seen.append(h.mean().item() if h.numel() else 0.0),
    "print": lambda h: seen.append(len(repr(h))),
    "detach": lambda h: _read(h.detach()),
    "detached copy": lambda h: _read(copy.deepcopy(h.detach())),
    "to numpy": lambda h: seen.append(float(h.detach().numpy().sum())),
    "read data": lambda h: _read(h.data),
    "clone": lambda h: _read(h.clone()),
    "retain_grad": _later,
    "hook on a tensor": _hook,
    "hook on a node": _node_hook,
    "local forward": _local,
    "compare": lambda h: seen.append(bool((h > 0).any())),
    "slice": lambda h: _read(h[:2]),
    "relu of its own": lambda h: _read(torch.relu(h)),
}


def _hooks(model: nn.Module, rng: random.Random, how: str) -> Iterator[Any]:
    modules = list(model.modules())
    for m in modules if rng.random() < 0.4 else rng.sample(modules, rng.randint(1, len(modules))):
        if how == "forward":
            yield m.register_forward_hook(lambda m, a, out: _read(out))
        elif how == "pre":
            yield m.register_forward_pre_hook(lambda m, a: _read(a))
        elif how == "backward":
            yield m.register_full_backward_hook(lambda m, gi, go: _read(gi, go))
        else:
            yield m.register_full_backward_pre_hook(lambda m, go: _read(go))


def _global_hook(how: str) -> Any:
    made = torch.nn.modules.module
    if how == "forward":
        return made.register_module_forward_hook(lambda m, a, out: _read(out))
    if how == "pre":
        return made.register_module_forward_pre_hook(lambda m, a: _read(a))
    return made.register_module_full_backward_hook(lambda m, gi, go: _read(gi, go))


OBSERVERS = [
    *(f"look: {name}" for name in LOOKS),
    *(f"hooks: {how}" for how in ("forward", "forward", "pre", "backward", "backward pre")),
    *(f"global hooks: {how}" for how in ("forward", "pre", "backward")),
    *(f"linear: {how}" for how in ("scripted", "traced", "compiled", "instance forward", "subclass")),
    *(f"mode: {how}" for how in ("flops", "profiler", "anomaly", "dispatch", "function", "saved tensors", "on cpu")),
    *("tensor subclass", "deepcopy", "auxiliary loss", "parameter hooks", "nothing", "not fused", "not fused"),
]


class SubLinear(nn.Linear):
    """A class of one's own."""


def _subclass(linear: nn.Linear) -> nn.Linear:
    made = SubLinear(linear.in_features, linear.out_features, linear.bias is not None)
    made.weight, made.bias = linear.weight, linear.bias
    return made


def _own_forward(linear: nn.Linear) -> nn.Linear:
    plain = linear.forward
    linear.forward = lambda x: plain(x)  # type: ignore[method-assign]
    return linear


LINEARS: dict[str, Callable[[nn.Linear], Any]] = {
    "scripted": _scripted,
    "traced": _traced,
    "compiled": lambda linear: torch.compile(linear, backend="eager"),
    "instance forward": _own_forward,
    "subclass": _subclass,
}


def _context(how: str) -> Any:
    if how == "flops":
        from torch.utils.flop_counter import FlopCounterMode

        return FlopCounterMode(display=False)
    if how == "profiler":
        return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    if how == "anomaly":
        return torch.autograd.detect_anomaly(check_nan=False)
    if how == "dispatch":
        return _Modes.dispatch()
    if how == "function":
        return _Modes.function()
    if how == "saved tensors":
        return torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
    return torch.autograd.graph.save_on_cpu()


@contextlib.contextmanager
def fused(on: bool) -> Iterator[None]:
    """Whether this rank runs layers and batch norm as fused operations."""
    with settings(fuse=on):
        yield


@contextlib.contextmanager
def observed(model: Observed, name: str, seed: int) -> Iterator[None]:
    """One rank's doings while forward and backward run."""
    rng = random.Random(seed)
    kind, _, how = name.partition(": ")
    with contextlib.ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "look":
            _look(model, rng, LOOKS[how])
        elif kind == "hooks":
            for handle in _hooks(model, rng, how):
                stack.callback(handle.remove)
        elif kind == "global hooks":
            stack.callback(_global_hook(how).remove)
        elif kind == "linear":
            _replace(model, rng, LINEARS[how])
        elif kind == "mode":
            stack.enter_context(_context(how))
        elif kind == "tensor subclass":
            model.look = lambda place, h: h[:].as_subclass(Tagged) if rng.random() < 0.5 else h
        elif kind == "not fused":
            stack.enter_context(fused(False))
        elif kind == "deepcopy":
            copy.deepcopy(model)
        elif kind == "parameter hooks":
            for p in model.parameters():
                stack.callback(p.register_hook(lambda g: _read(g)).remove)
        yield


AUXILIARY = 0.01
"""How much the squares of what batch norms give count in the loss of a rank that looks at them so."""


def auxiliary(model: Observed, terms: list[Tensor], rows: slice) -> None:
    """Has the model note an auxiliary loss of some rows: what batch norm gives, before anything else reads it."""

    def look(place: str, h: Tensor) -> Tensor:
        if place.startswith("norm"):
            terms.append(AUXILIARY * h[rows].square().sum())
        return h

    model.look = look
