"""Typed calls into the engine: streaming of in-edges (``sar_stream_run``)."""

from __future__ import annotations

import ctypes as ct
from typing import Any, Callable, Optional, Sequence

from torch import Tensor

from . import library, schedule
from .library import calls
from .signatures import TYPES


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
    visit: Callable[[Any], bool],
    of: Optional[schedule.Operation] = None,
) -> int:
    """Calls ``visit`` for every block, until it returns False; the flags of all ranks come back.

    ``visit`` gets a ``sar_stream_block``, and must not raise: an exception would not get through. ``of``: in backward,
    the forward operation.
    """
    schedule.begin("a message function", of)
    edges = [None if t is None else library.tensor(t) for t in (src, dst, edge)]
    spec = TYPES["sar_stream"](
        relation,
        flags,
        len(fields),
        library.tensors(fields),
        bytes(return_grads) if any(return_grads) else None,
        library.tensors(grads),
        *(None if t is None else ct.pointer(t) for t in edges),
        TYPES["sar_stream_visit"](lambda _, block: 1 if visit(block.contents) else 0),
        None,
    )
    return library.call("sar_stream_run", graph, spec)


# ---- rows and edges by number ------------------------------------------------


def fetch_forward(graph: int, relation: int, columns: Tensor, flags: int, x: Tensor, out: Tensor) -> int:
    """Fills ``out``; the flags of all ranks come back."""
    schedule.begin("a fetch of rows")
    return library.call("sar_fetch_forward", graph, relation, columns, flags, x, out)


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
