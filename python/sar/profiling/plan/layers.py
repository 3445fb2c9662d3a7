"""Memory and traffic of the layers that models are made of."""

from __future__ import annotations

import re
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

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

    def linear(self, x: SizedTensor, from_width: int, to_width: int, bias: bool = True) -> SizedTensor:
        self.parameters += from_width * to_width + (to_width if bias else 0)
        return self.tape.run([x], self.bytes(to_width), saves=[x], trains=True)

    def aggregate(self, x: SizedTensor, width: int) -> SizedTensor:
        """Sum or mean: nothing is saved; the gradient of boundary rows returns to their owners."""
        self.moved.append((width, x.needs_grad))
        return self.tape.run([x], self.bytes(width))

    def normalize(self) -> None:
        """Batch norm, alone or with ReLU: of either its input is kept."""
        self.norm_pending = False
        source = self.x
        out = self.tape.run([source], self.bytes(self.width), saves=[source], trains=True)
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
        made = self.tape.run(
            [x],
            self.bytes(cost.result),
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


def _sage(s: State, width: int) -> None:
    s.done(s.fused(costs.sage(s.width, width, s.x.needs_grad)), width)


def _sage_gcn(s: State, width: int) -> None:
    x = s.x
    first = s.width > width
    h = s.linear(x, s.width, width, bias=False) if first else x
    at = width if first else s.width
    total = s.tape.run([s.aggregate(h, at), h], s.bytes(at), passes=True)
    h = s.tape.run([total], s.bytes(at), saves_extra=s.bytes(1))
    h = h if first else s.linear(h, at, width, bias=False)
    s.parameters += width
    s.done(s.tape.run([h], s.bytes(width), passes=True), width)


def _gcn(s: State, width: int) -> None:
    x = s.tape.run([s.x], s.bytes(s.width), saves_extra=s.bytes(1))  # times degree^-1/2
    if s.width > width:
        h = s.aggregate(s.linear(x, s.width, width, bias=False), width)
    else:
        h = s.linear(s.aggregate(x, s.width), s.width, width, bias=False)
    h = s.tape.run([h], s.bytes(width), saves_extra=s.bytes(1))
    s.parameters += width
    s.done(s.tape.run([h], s.bytes(width), passes=True), width)


def _gin(s: State, width: int) -> None:
    h = s.tape.run([s.aggregate(s.x, s.width), s.x], s.bytes(s.width), passes=True)
    s.done(s.linear(h, s.width, width), width)


def _attention(s: State, heads: int, each: int, sides: int) -> None:
    """GAT (one linear map) and GATv2 (two): the engine keeps maximum and sum per row and head, not what is per edge."""
    width = heads * each
    x = s.x
    if sides == 1:
        out = s.fused(costs.gat(s.width, heads, each, x.needs_grad))
        s.done(s.tape.run([out], s.bytes(width), passes=True), width)  # with the bias
        return
    source = s.linear(x, s.width, width, bias=False)
    both = [source, s.linear(x, s.width, width)]
    s.parameters += 2 * width
    s.moved += [(width, True), (width, False)]  # fetched again in backward
    extra = 3 * s.bytes(heads)
    out = s.tape.run(both, s.bytes(width), saves=both, saves_out=True, saves_extra=extra, trains=True)
    s.done(s.tape.run([out], s.bytes(width), passes=True), width)


def _by_columns(s: State, heads: int, each: int, merge: str) -> None:
    cost = costs.gat_by_columns(s.width, heads, each, merge)
    s.done(s.fused(cost), cost.result)


def _bn(s: State) -> None:
    s.parameters += 2 * s.width
    s.norm_pending = True


def _bnact(s: State) -> None:
    s.parameters += 2 * s.width
    s.normalize()


def _ln(s: State) -> None:
    s.parameters += 2 * s.width
    s.done(s.tape.run([s.x], s.bytes(s.width), saves=[s.x], trains=True), s.width)


def _activation(s: State) -> None:
    s.done(s.tape.run([s.x], s.bytes(s.width), saves_out=True), s.width)


def _elu(s: State) -> None:
    s.done(s.tape.run([s.x], s.bytes(s.width), saves=[s.x]), s.width)


def _mean(s: State, heads: int) -> None:
    s.done(s.tape.run([s.x], s.bytes(s.width // heads)), s.width // heads)


def _dropout(s: State) -> None:
    # torch multiplies with a mask of the type of the rows, which it saves
    s.done(s.tape.run([s.x], s.bytes(s.width), saves_extra=s.bytes(s.width)), s.width)


def _linear(s: State, width: int) -> None:
    s.done(s.linear(s.x, s.width, width), width)


_PLAIN: Dict[str, Callable[[State], None]] = {
    "bn": _bn,
    "ln": _ln,
    "bnact": _bnact,
    "relu": _activation,
    "elu": _elu,
    "dropout": _dropout,
}
_WIDE: Dict[str, Callable[[State, int], None]] = {
    "sage": _sage,
    "sage-gcn": _sage_gcn,
    "gcn": _gcn,
    "gin": _gin,
    "linear": _linear,
    "mean": _mean,
}
_HEADS: Dict[str, Callable[[State, int, int], None]] = {
    "gat": lambda s, heads, each: _attention(s, heads, each, 1),
    "gatv2": lambda s, heads, each: _attention(s, heads, each, 2),
    "gat-flatten": lambda s, heads, each: _by_columns(s, heads, each, "flatten"),
    "gat-mean": lambda s, heads, each: _by_columns(s, heads, each, "mean"),
}


def play(state: State, layer: str) -> None:
    """Plays one layer.

    :raises ValueError: it is not one of ``HELP``
    """
    name, _, size = layer.strip().lower().partition(":")
    if state.norm_pending:
        state.normalize()
        if name == "relu" and not size:
            return
    heads = re.fullmatch(r"(\d+)x(\d+)", size)
    if name in _PLAIN and not size:
        _PLAIN[name](state)
    elif name in _WIDE and size.isdigit() and int(size) > 0:
        _WIDE[name](state, int(size))
    elif name in _HEADS and heads and min(map(int, heads.groups())) > 0:
        _HEADS[name](state, int(heads[1]), int(heads[2]))
    else:
        raise ValueError(f"layer {layer!r} is unknown; there are: {HELP}")
