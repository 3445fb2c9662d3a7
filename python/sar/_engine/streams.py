"""Typed calls into the engine: streaming of in-edges (``sar_stream_run``)."""

from __future__ import annotations

import ctypes as ct
from typing import Any, Callable, Optional, Sequence

from torch import Tensor

from . import library, schedule
from .library import calls
from .signatures import DLTensor, SizedStruct


class StreamBlock(SizedStruct):
    """``sar_stream_block``."""

    _fields_ = [
        ("size", ct.c_size_t),
        ("peer", ct.c_int32),
        ("num_rows", ct.c_int64),
        ("rows", ct.POINTER(ct.c_void_p)),
        ("grads", ct.POINTER(ct.c_void_p)),
        ("num_edges", ct.c_int64),
    ]

    peer: int
    num_rows: int
    rows: Any
    grads: Any
    num_edges: int


StreamVisit = ct.CFUNCTYPE(ct.c_int32, ct.c_void_p, ct.POINTER(StreamBlock))


class StreamSpec(SizedStruct):
    """``sar_stream``."""

    _fields_ = [
        ("size", ct.c_size_t),
        ("relation", ct.c_int32),
        ("flags", ct.c_uint32),
        ("num_fields", ct.c_int32),
        ("fields", ct.POINTER(DLTensor)),
        ("home", ct.c_char_p),
        ("grads", ct.POINTER(DLTensor)),
        ("src", ct.POINTER(DLTensor)),
        ("dst", ct.POINTER(DLTensor)),
        ("edge", ct.POINTER(DLTensor)),
        ("visit", StreamVisit),
        ("user", ct.c_void_p),
    ]


def stream_run(
    graph: int,
    relation: int,
    flags: int,
    fields: Sequence[Tensor],
    return_grads: Sequence[bool],
    grads: Sequence[Optional[Tensor]],
    src: Tensor,
    dst: Tensor,
    edge: Optional[Tensor],
    visit: Callable[[StreamBlock], bool],
    of: Optional[schedule.Operation] = None,
) -> int:
    """Calls ``visit`` for every block, until it returns False; the flags of all ranks come back.

    ``visit`` must not raise: an exception would not get through. ``of``: in backward, the forward operation.
    """
    schedule.begin("a message function", of)
    edges = [None if t is None else library.tensor(t) for t in (src, dst, edge)]
    spec = StreamSpec(
        relation,
        flags,
        len(fields),
        library.tensors(fields),
        bytes(return_grads) if any(return_grads) else None,
        library.tensors(grads),
        *(None if t is None else ct.pointer(t) for t in edges),
        StreamVisit(lambda _, block: 1 if visit(block.contents) else 0),
        None,
    )
    return library.made("sar_stream_run", graph, spec)


# ---- rows and edges by number ------------------------------------------------


def fetch_forward(graph: int, relation: int, columns: Tensor, flags: int, x: Tensor, out: Tensor) -> int:
    """Fills ``out``; the flags of all ranks come back."""
    schedule.begin("a fetch of rows")
    return library.made("sar_fetch_forward", graph, relation, columns, flags, x, out)


def fetch_backward(
    graph: int,
    relation: int,
    columns: Tensor,
    grad_out: Tensor,
    grad_x: Optional[Tensor],
    of: schedule.Operation,
) -> None:
    """:param of: the forward operation"""
    schedule.begin("a fetch of rows", of)
    library.call("sar_fetch_backward", graph, relation, columns, grad_out, grad_x)


graph_in_edges = calls("sar_graph_in_edges")  # graph, relation, rows, and to fill: indptr, columns, edges


def graph_columns(graph: int, relation: int, owner: Optional[Tensor], row: Optional[Tensor]) -> None:
    schedule.begin("the numbers of halo rows")
    library.call("sar_graph_columns", graph, relation, owner, row)
