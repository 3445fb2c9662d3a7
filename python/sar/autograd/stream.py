"""Streams in-edges in blocks of bounded size to a Python function.

Rows of other workers arrive in the window, are visited and dropped. Gradients that the visits add for rows of another
worker are returned to it, and added there in the order of peers.
"""

from __future__ import annotations

import contextlib
import ctypes as ct
import sys
import threading
from math import prod
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from sar._engine import schedule, session as _session, storage, streams
from sar.distributed.failure import tell_peers

from .dtypes import FLOATS, refusal
from .types import Relation, check_count


class Block(NamedTuple):
    """Some in-edges of own destination nodes, with the rows of their sources.

    Every tensor of a stream's block is valid during the visit only: the memory is used again afterwards. Copy what is
    to be kept.

    :ivar rows: one ``[n, ...]`` per field
    :ivar src: int64 ``[m]``, row of each edge in ``rows``
    :ivar dst: int64 ``[m]``, own destination row of each edge; ascends in a stream
    :ivar eid: int64 ``[m]``, position of each edge in the order of edge tensors; ``[0]`` if they were not asked for
    :ivar grad_rows: one ``[n, ...]`` per field, to add gradients to; ``None`` where there is none to give
    :ivar peer: the worker that owns the rows; -1: several do
    :ivar nodes: int64, the destination rows whose in-edges these are, where they are all of them; else ``[0]``
    """

    rows: List[Tensor]
    src: Tensor
    dst: Tensor
    eid: Tensor
    grad_rows: List[Optional[Tensor]]
    peer: int = -1
    nodes: Tensor = torch.empty(0, dtype=torch.int64)

    @property
    def size(self) -> Tuple[int, int]:
        """Edges and ``nodes``."""
        return len(self.dst), len(self.nodes)

    @property
    def at(self) -> Dict[str, Tensor]:
        """By side, which rows of its columns are an edge's, or a node's ("n")."""
        return {"u": self.src, "v": self.dst, "e": self.eid, "n": self.nodes}


def stream(
    relation: Relation,
    fields: Sequence[Tensor],
    visit: Callable[[Block], None],
    max_edges: int,
    grads: Optional[Sequence[Optional[Tensor]]] = None,
    *,
    return_grads: Optional[Sequence[bool]] = None,
    flags: int = 0,
    edge_ids: bool = True,
    of: Optional[schedule.Operation] = None,
) -> int:
    """Visits every in-edge of own destination nodes once. Collective.

    Blocks of edges from own rows come first, then those from each peer's rows as they arrive. All blocks of the same
    rows follow each other.

    :param relation: whose edges
    :param fields: own rows that readers get, ``[num_src, ...]`` each, of any dtype; dtypes and trailing dimensions are
        the same on every worker
    :param visit: called with a :class:`Block`, on the calling thread. It must not call collectives. An exception ends
        the session: the other workers raise :class:`sar.RemoteError`, and it leaves this function as it is
    :param max_edges: edges of a block, at most
    :param grads: one tensor per field to which the gradients of own rows are added, of its shape and dtype (float32 or
        float64) and contiguous, or ``None`` where this worker wants none. ``Block.grad_rows`` is zero before the first
        block of a peer's rows; for own rows it is the tensor given here. Add to it
    :param return_grads: of which fields gradients return to the owners of the rows; the same on every worker. By
        default those with one in ``grads``
    :param flags: 16 bits to tell every worker, at no cost
    :param of: in backward, the forward operation
    :param edge_ids: whether ``Block.eid`` is wanted; it costs 8 bytes per edge, once
    :returns: the union of all workers' flags
    :raises ValueError: number of rows, or arguments that make no sense
    :raises TypeError: gradients of a field that is neither float32 nor float64
    :raises sar.BudgetError: a row does not fit into a frame of the window

    Wire, per boundary row: its fields, each padded to 8 bytes, and as much back for those whose gradients return.
    Memory: 24 bytes per edge of a block, 8 bytes per own row.
    """
    session = _session.current()
    if max_edges < 1:
        raise ValueError(f"max_edges is {max_edges}: blocks need room for at least one edge")
    for i, field in enumerate(fields):
        check_count(field, relation.num_src, "source nodes", f"fields[{i}]")
    own = [t.detach().contiguous() for t in fields]
    wanted = list(grads) if grads is not None else [None] * len(own)
    travels = [g is not None for g in wanted] if return_grads is None else [bool(h) for h in return_grads]
    if len(wanted) != len(own) or len(travels) != len(own):
        counts = f"{len(own)} fields, {len(wanted)} grads and {len(travels)} return_grads"
        raise ValueError(f"{counts}: give one of each per field")
    for i, (field, grad, goes) in enumerate(zip(own, wanted, travels)):
        _check_grad(i, field, grad, goes)
    names = [storage.travels_as(t) if t.is_floating_point() else "" for t in own]
    stored = [storage.stored(t, name) for t, name in zip(own, names)]
    # the engine adds gradients up in the type that it sends rows in
    sent = [t.to(storage.computed_in(t.dtype)) if goes else t for t, goes in zip(stored, travels)]
    session.follow_config()
    room = max(1, min(int(max_edges), relation.num_edges))
    src, dst = torch.empty(room, dtype=torch.int64), torch.empty(room, dtype=torch.int64)
    eid = torch.empty(room if edge_ids else 0, dtype=torch.int64)
    caught: List[BaseException] = []
    kinds = [(t.shape[1:], t.dtype) for t in sent]

    def step(block: Any) -> bool:
        try:
            n, m = block.num_rows, block.num_edges
            grad_rows: List[Optional[Tensor]]
            if block.peer == session.rank:
                rows = [s.to(t.dtype) for s, t in zip(stored, own)]
                grad_rows = [g if goes else None for g, goes in zip(wanted, travels)]
            else:
                rows = [_view(block.rows[i], n, *kind).to(own[i].dtype) for i, kind in enumerate(kinds)]
                grad_rows = [
                    _view(block.grads[i], n, *kind) if goes else None
                    for i, (kind, goes) in enumerate(zip(kinds, travels))
                ]
            visit(Block(rows, src[:m], dst[:m], eid[:m], grad_rows, block.peer))
            return True
        except BaseException as error:
            caught.append(error)
            tell_peers(error)
            return False

    edge = eid if edge_ids else None
    try:
        with _between_visits(caught):
            return streams.stream_run(
                relation.handle, relation.index, flags, sent, travels, wanted, src, dst, edge, step, of
            )
    except Exception:
        if not caught:
            raise
    try:
        raise caught[0]
    finally:
        caught.clear()  # the exception refers to this frame


def _check_grad(number: int, field: Tensor, grad: Optional[Tensor], goes: bool) -> None:
    if goes and field.dtype not in FLOATS:
        raise TypeError(refusal(f"fields[{number}]", field.dtype))
    if grad is None:
        return
    if not goes:
        raise ValueError(f"grads[{number}] is given, but return_grads[{number}] is false: drop one of both")
    dtype = storage.computed_in(field.dtype)
    if grad.shape != field.shape or grad.dtype != dtype or not grad.is_contiguous():
        raise ValueError(
            f"grads[{number}] is {grad.dtype} {tuple(grad.shape)}, fields[{number}] is {field.dtype} "
            f"{tuple(field.shape)}: the gradient must be {dtype}, of the same shape and contiguous"
        )


def _view(address: Optional[int], n: int, shape: Tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor on the engine's memory."""
    count = n * prod(shape)
    if not count or address is None:
        return torch.empty((n, *shape), dtype=dtype)
    size = count * torch.empty(0, dtype=dtype).element_size()
    return torch.frombuffer((ct.c_char * size).from_address(address), dtype=dtype).view(n, *shape)


@contextlib.contextmanager
def _between_visits(caught: List[BaseException]) -> Iterator[None]:
    """Catches what a signal handler raises (KeyboardInterrupt) on the way into Python for a visit.

    ctypes cannot pass it on: it prints it, through ``sys.unraisablehook``, and ends the stream.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread runs handlers
        return
    before = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        in_callback = "ctypes callback" in (unraisable.err_msg or "")
        if in_callback and unraisable.exc_value is not None and not caught:
            caught.append(unraisable.exc_value)
            tell_peers(unraisable.exc_value)
        else:
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before
