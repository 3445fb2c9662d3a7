"""Runs edge expressions: compiles them to programs of the engine, under one ``autograd.Function``."""

from __future__ import annotations

import functools
import json
from math import prod
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, cast

import torch
from torch import Tensor

from sar._engine import programs as abi, schedule, session as _session, storage
from sar._engine.programs import Compiled

from . import message, recomputed
from .aggregate import aggregate
from .double_backward import calling_layer, differentiable_once, refuse_transforms
from .types import Expr, Relation, ordered

ROWS = {"u": "source nodes", "v": "destination nodes", "e": "in-edges"}
CLAMPS = ("clamp_min", "clamp_max", "clamp_min_open", "clamp_max_open")
WITH_ALPHA = ("leaky_relu", "elu", "scale", "shift", "rsub", "pow", "dropout", *CLAMPS)


class Written(NamedTuple):
    """An expression as the engine reads it, and what it runs on."""

    text: str
    leaves: List[Expr]
    stored: List[str]
    seeds: List[int]


def run(relation: Relation, expr: Expr, reduce: Optional[str], dtype: Optional[torch.dtype] = None) -> Tensor:
    """See :func:`sar.autograd.expression.evaluate`. ``dtype``: that sums are rounded to; None: that of the messages."""
    fast = _built_in(relation, expr, reduce)
    if fast is not None:
        return fast
    _session.current().follow_config()
    written = write(expr, reduce)
    tensors = [_checked(relation, leaf) for leaf in written.leaves]
    call = _Call(relation, expr, reduce, written, tensors, dtype or expr.dtype)
    refuse_transforms()
    # peers wait for this worker's part of backward also where none of its tensors needs a gradient
    anchor = torch.empty(0, requires_grad=torch.is_grad_enabled() and call.program.collective)
    call.name = calling_layer("the values of an edge tensor" if reduce is None else f"a message with {reduce}")
    out: Tensor = _Run.apply(anchor, call, *tensors)
    return out if call.agreed or not call.program.collective else out.detach()


def _built_in(relation: Relation, expr: Expr, reduce: Optional[str]) -> Optional[Tensor]:
    """Sums and means of ``u`` and ``u * e``, which have kernels of their own."""
    if reduce not in ("sum", "mean") or expr.op not in ("load", "mul"):
        return None
    leaves = {x.side: x for x in (expr.args if expr.op == "mul" else [expr])}
    if set(leaves) != ({"u", "e"} if expr.op == "mul" else {"u"}) or leaves["u"].shape != expr.shape:
        return None
    u, e = _checked(relation, leaves["u"]), None
    if "e" in leaves:
        heads, weights = message.per_head(_checked(relation, leaves["e"]), expr.shape)
        e = weights.reshape(relation.num_edges, heads)
    kind = "copy_u" if e is None else "u_mul_e"
    out = aggregate(relation, kind, reduce, u.reshape(relation.num_src, prod(expr.shape)), e)
    return out.view(relation.num_dst, *expr.shape)


def write(expr: Expr, reduce: Optional[str]) -> Written:
    """An expression as a program: equal parts once, tensors that stand in several places once.

    :raises ValueError: it reads more tensors than a program may
    """
    order = ordered(expr)
    leaves: List[Expr] = []
    number: Dict[int, int] = {}
    known: Dict[Any, int] = {}
    for x in order:
        if x.tensor is not None:
            key: Any = (x.side, id(x.tensor))
            if key not in known:
                known[key] = len(leaves)
                leaves.append(x)
            number[id(x)] = known[key]
    code: List[Dict[str, Any]] = []
    seeds: List[int] = []
    for x in order:
        if x.tensor is not None:
            continue
        args = [number[id(a)] for a in x.args]
        key = (x.op, *args, x.alpha, x.shape, x.seed)
        if key not in known:
            step: Dict[str, Any] = {"op": x.op, **dict(zip("ab", args))}
            if x.op in WITH_ALPHA:
                step["alpha"] = x.alpha
            if x.op in ("total", "reshape"):
                step["shape"] = x.shape
            if x.op == "dropout":
                seeds.append(x.seed)
            known[key] = len(leaves) + len(code)
            code.append(step)
        number[id(x)] = known[key]
    if len(leaves) > 16:
        raise ValueError(f"an expression reads {len(leaves)} tensors, and 16 is the most: evaluate a part of it first")
    stored = [_storage(x) for x in leaves]
    operands = [{"side": x.side, "shape": x.shape, "storage": name} for x, name in zip(leaves, stored)]
    result = {"operands": operands, "code": code, "result": number[id(expr)], "reduce": reduce or "none"}
    return Written(json.dumps(result), leaves, stored, seeds)


def _storage(leaf: Expr) -> str:
    assert leaf.tensor is not None
    return storage.travels_as(leaf.tensor) if leaf.side == "u" else storage.name_of(leaf.tensor)


@functools.lru_cache(maxsize=4096)
def compiled(text: str) -> Compiled:
    """The program of a text, which stays for the next time."""
    return Compiled(text)


def _checked(relation: Relation, leaf: Expr) -> Tensor:
    tensor = leaf.tensor
    assert tensor is not None
    if leaf.side == "p":
        return tensor.reshape(1, *leaf.shape)
    rows = {"u": relation.num_src, "v": relation.num_dst, "e": relation.num_edges}[leaf.side]
    message.check(tensor, rows, ROWS[leaf.side], f"the tensor of side {leaf.side!r}")
    return tensor


class _Call:
    """One evaluation: what forward and backward share.

    :ivar compares: whether backward compares messages with the result
    :ivar half: whether a tensor of source nodes is bfloat16
    :ivar half_grad: whether edges read the gradient of the result in bfloat16, as they do rows
    :ivar again: what gives each operand in backward where it is not saved
    """

    agreed = 0
    name = "an edge expression"
    operation: Optional[schedule.Operation] = None

    def __init__(
        self,
        relation: Relation,
        expr: Expr,
        reduce: Optional[str],
        written: Written,
        tensors: Sequence[Tensor],
        dtype: torch.dtype,
    ) -> None:
        self.relation, self.program = relation, compiled(written.text)
        self.seeds, self.stored = written.seeds, written.stored
        self.shape = (relation.num_edges if reduce is None else relation.num_dst, *expr.shape)
        self.dtype = dtype
        grad = torch.is_grad_enabled()
        self.need = sum(1 << i for i, t in enumerate(tensors) if grad and t.requires_grad)
        self.compares = reduce in ("max_shared", "min_shared")
        self.half = any(leaf.side == "u" and t.dtype == torch.bfloat16 for leaf, t in zip(written.leaves, tensors))
        self.half_grad = self.half and reduce == "sum"
        self.again = [recomputed.values_of(t) for t in tensors]

    def make(self) -> Any:
        keys = _edge_keys(self.relation) if self.seeds else None
        base = _session.current().rank << 40
        return abi.program_call(self.relation.index, self.need, self.agreed, self.seeds, keys, base)


def _edge_keys(relation: Relation) -> Optional[Tensor]:
    """What dropout knows edges by; read from the file the first time."""
    keys: Any = getattr(relation, "edge_keys", None)
    if callable(keys):
        keys = keys().to(torch.int64).contiguous()
        relation.edge_keys = keys  # type: ignore[attr-defined]
    return cast(Optional[Tensor], keys)


def _saved(ctx: Any) -> Any:
    try:
        return ctx.saved_tensors
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
        raise RuntimeError(
            "a tensor that attention or another expression over edges read, or its result, was changed in place (by "
            "relu(inplace=True), +=, ...), and backward needs it as it was: use the operation that returns a new "
            f"tensor, or change a clone() of it. torch says: {error}"
        ) from None


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, call: _Call, *tensors: Tensor) -> Tensor:
        relation, program = call.relation, call.program
        operands = [storage.stored(t, name).contiguous() for t, name in zip(tensors, call.stored)]
        computed = storage.computed_in(call.dtype)
        widths = [width for width in program.softmaxes for _ in range(2)]
        state = [torch.empty(relation.num_dst, width, dtype=computed) for width in widths]
        # the messages that share a gradient are those that equal the result before it is rounded
        out = storage.empty(call.shape, computed if call.compares else call.dtype)
        if program.winner:
            state.append(torch.empty(call.shape, dtype=torch.int32))
        call.operation = abi.begin(program.collective)
        call.agreed, saves = abi.program_forward(relation.handle, program.handle, call.make(), operands, state, out)
        ctx.call, ctx.n, ctx.kinds = call, len(operands), [(t.shape, t.dtype) for t in tensors]
        if call.agreed:
            kept = [t if saves >> i & 1 and call.again[i] is None else None for i, t in enumerate(operands)]
            ctx.again = [(i, values) for i, values in enumerate(call.again) if saves >> i & 1 and values is not None]
            # float32 results of rows in bfloat16, as attention under autocast has, are kept as the rows are
            half = call.half and out.dtype == torch.float32 and not call.compares
            out_kept = (out.to(torch.bfloat16) if half else out) if saves & abi.OUT_SAVED else None
            ctx.save_for_backward(*kept, out_kept, *state)
        return out.to(call.dtype)

    @staticmethod
    @differentiable_once(lambda ctx: ctx.call.name)
    def backward(ctx: Any, grad_out: Tensor) -> Tuple[Optional[Tensor], ...]:
        call: _Call = ctx.call
        saved = _saved(ctx)
        operands = list(saved[: ctx.n])
        for i, values in ctx.again:
            operands[i] = storage.stored(values(), call.stored[i])
        out, state = saved[ctx.n], saved[ctx.n + 1 :]
        grads: List[Optional[Tensor]] = [None] * ctx.n
        # those in bfloat16 last, so that nothing takes the room behind them
        for i, (shape, dtype) in sorted(enumerate(ctx.kinds), key=lambda kind: -kind[1][1].itemsize):
            if call.need >> i & 1:
                grads[i] = storage.empty(shape, dtype)
        handle, program = call.relation.handle, call.program.handle
        half = call.half_grad and grad_out.dtype == torch.float32
        grad_out = (grad_out.to(torch.bfloat16) if half else grad_out).contiguous()
        abi.program_backward(handle, program, call.make(), operands, state, out, grad_out, grads, call.operation)
        return (None, None, *grads)
