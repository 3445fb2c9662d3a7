"""Memory and traffic of the layers that models are made of."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from sar.autograd.fused import costs

from .tape import SizedTensor, Tape

HELP = (
    "sage:N, sage-gcn:N, gcn:N, gin:N, gat:HxD, gatv2:HxD, mean:H (of H heads), linear:N, bn, ln, relu, elu, dropout, "
    "bnact (sar.nn.BatchNormAct: the three in one), gat-flatten:HxD and gat-mean:HxD (sar.nn.GATConv with "
    "memory_efficient=True, that merge and any activation)"
)


class Worker(NamedTuple):
    """Rows and edges of one worker, bytes of a number."""

    rows: int
    edges: int
    item: int


class State:
    """A model while it is played."""

    def __init__(self, worker: Worker, width: int, tape: Tape) -> None:
        self.worker, self.width, self.tape = worker, width, tape
        self.x: SizedTensor = tape.leaf(worker.rows * width * worker.item)
        self.parameters = 0
        self.moved: List[Tuple[int, bool]] = []
        """Numbers per boundary row of each exchange of forward, and whether as many go back in backward."""
        self.norm_pending = False
        """Batch norm was played, and is computed by what comes next."""
        # a result of batch norm, and its input
        self._normalized: Tuple[Optional[SizedTensor], Optional[SizedTensor]] = None, None
        # the result and input of the last layer that could recompute its input
        self._saved: Optional[Tuple[SizedTensor, SizedTensor]] = None

    def bytes(self, width: int) -> int:
        return self.worker.rows * width * self.worker.item

    def make(self, inputs: List[SizedTensor], width: int, **more: Any) -> SizedTensor:
        """An operation (:meth:`Tape.run`) whose result has rows of so many numbers."""
        return self.tape.run(inputs, self.bytes(width), **more)

    def layer(self, width: int = 0, parameters: int = 0, **more: Any) -> None:
        """A layer of one operation; its result is as wide as its input unless ``width`` says otherwise."""
        self.parameters += parameters
        self.done(self.make([self.x], width or self.width, **more), width or self.width)

    def linear(self, x: SizedTensor, from_width: int, to_width: int, bias: bool = True) -> SizedTensor:
        self.parameters += from_width * to_width + (to_width if bias else 0)
        return self.make([x], to_width, saves=[x], trains=True)

    def aggregate(self, x: SizedTensor, width: int) -> SizedTensor:
        """Sum or mean: nothing is saved; the gradient of boundary rows returns to their owners."""
        self.moved.append((width, x.needs_grad))
        return self.make([x], width)

    def normalize(self) -> None:
        """Batch norm, alone or with ReLU: of either its input is kept."""
        self.norm_pending = False
        source = self.x
        out = self.make([source], self.width, saves=[source], trains=True)
        self._normalized = out, source
        self.done(out, self.width)

    def fused(self, cost: costs.LayerCost) -> SizedTensor:
        """A fused layer. Of rows that batch norm made it saves batch norm's input and recomputes them; the last such
        layer also holds them."""
        self.parameters += cost.parameters
        self.moved += cost.exchanges
        x, (out, source) = self.x, self._normalized
        recomputed = source if out is x else None
        if recomputed is not None and self._saved is not None:
            self.tape.drop(*self._saved)
        back = cost.scratch_backward
        made = self.make(
            [x],
            cost.result,
            saves=[x] if recomputed is None else [recomputed, x],
            saves_out=cost.saves_result,
            saves_extra=self.bytes(cost.saved),
            scratch=self.bytes(cost.scratch),
            scratch_back=None if back is None else self.bytes(back),
            trains=True,
        )
        if recomputed is not None:
            self._saved = made, x
        return made

    def done(self, x: SizedTensor, width: int) -> None:
        self.x, self.width = x, width
        self.tape.end_layer(x)

    def with_bias(self, x: SizedTensor, width: int) -> None:
        """The end of a layer that adds a bias to its result."""
        self.parameters += width
        self.done(self.make([x], width, passes=True), width)


def _sage_gcn(s: State, width: int) -> None:
    first = s.width > width
    h = s.linear(s.x, s.width, width, bias=False) if first else s.x
    at = width if first else s.width
    h = s.make([s.make([s.aggregate(h, at), h], at, passes=True)], at, saves_extra=s.bytes(1))
    s.with_bias(h if first else s.linear(h, at, width, bias=False), width)


def _gcn(s: State, width: int) -> None:
    x = s.make([s.x], s.width, saves_extra=s.bytes(1))  # times degree^-1/2
    if s.width > width:
        h = s.aggregate(s.linear(x, s.width, width, bias=False), width)
    else:
        h = s.linear(s.aggregate(x, s.width), s.width, width, bias=False)
    s.with_bias(s.make([h], width, saves_extra=s.bytes(1)), width)


def _gin(s: State, width: int) -> None:
    h = s.make([s.aggregate(s.x, s.width), s.x], s.width, passes=True)
    s.done(s.linear(h, s.width, width), width)


def _gat(s: State, heads: int, each: int) -> None:
    cost = costs.gat(s.width, heads, each, s.x.needs_grad)
    s.done(s.make([s.fused(cost)], heads * each, passes=True), heads * each)  # with the bias


def _gatv2(s: State, heads: int, each: int) -> None:
    """The engine keeps maximum and sum per row and head, not what is per edge."""
    width = heads * each
    both = [s.linear(s.x, s.width, width, bias=False), s.linear(s.x, s.width, width)]
    s.parameters += width
    s.moved += [(width, True), (width, False)]  # fetched again in backward
    out = s.make(both, width, saves=both, saves_out=True, saves_extra=3 * s.bytes(heads), trains=True)
    s.with_bias(out, width)


def _by_columns(s: State, heads: int, each: int, merge: str) -> None:
    cost = costs.gat_by_columns(s.width, heads, each, merge)
    s.done(s.fused(cost), cost.result)


def _bn(s: State) -> None:
    s.parameters += 2 * s.width
    s.norm_pending = True


def _bnact(s: State) -> None:
    _bn(s)
    s.normalize()


_LAYERS: Dict[str, Tuple[int, Callable[..., None]]] = {
    "bn": (0, _bn),
    "ln": (0, lambda s: s.layer(parameters=2 * s.width, saves=[s.x], trains=True)),
    "bnact": (0, _bnact),
    "relu": (0, lambda s: s.layer(saves_out=True)),
    "elu": (0, lambda s: s.layer(saves=[s.x])),
    # torch multiplies with a mask of the type of the rows, which it saves
    "dropout": (0, lambda s: s.layer(saves_extra=s.bytes(s.width))),
    "mean": (1, lambda s, heads: s.layer(s.width // heads)),
    "linear": (1, lambda s, width: s.done(s.linear(s.x, s.width, width), width)),
    "sage": (1, lambda s, width: s.done(s.fused(costs.sage(s.width, width, s.x.needs_grad)), width)),
    "sage-gcn": (1, _sage_gcn),
    "gcn": (1, _gcn),
    "gin": (1, _gin),
    "gat": (2, _gat),
    "gatv2": (2, _gatv2),
    "gat-flatten": (2, lambda s, heads, each: _by_columns(s, heads, each, "flatten")),
    "gat-mean": (2, lambda s, heads, each: _by_columns(s, heads, each, "mean")),
}
"""By name: how many sizes a layer has, and what it does."""


def play(state: State, layer: str) -> None:
    """Plays one layer.

    :raises ValueError: it is not one of ``HELP``
    """
    name, _, size = layer.strip().lower().partition(":")
    if state.norm_pending:
        state.normalize()
        if name == "relu" and not size:
            return
    count, run = _LAYERS.get(name, (-1, _bn))
    sizes = size.split("x") if size else []
    if len(sizes) != count or not all(re.fullmatch("0*[1-9][0-9]*", number) for number in sizes):
        raise ValueError(f"layer {layer!r} is unknown; there are: {HELP}")
    run(state, *map(int, sizes))
