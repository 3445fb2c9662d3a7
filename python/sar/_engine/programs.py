"""Typed calls into the engine: edge expressions."""

from __future__ import annotations

import ctypes as ct
from functools import cache
from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Tuple

from . import library, schedule, storage
from .native import Native
from .signatures import TYPES

if TYPE_CHECKING:  # commands that open partitions do without torch
    from torch import Tensor

OUT_SAVED = 1 << 31
"""The bit of ``saves`` that stands for the result."""


class Compiled(Native):
    """A program of the engine, freed with the last that refers to it: the table of programs, or a graph of autograd
    whose backward is still to come."""

    def __init__(self, text: str) -> None:
        self.handle: int = library.call("sar_program_create", text)
        self._own(library.calls("sar_program_free"), self.handle)
        info = library.call("sar_program_info", self.handle)
        self.softmaxes: List[int] = info["softmaxes"]
        self.winner: bool = info["winner"]
        self.collective: bool = info["collective"]


def program_call(
    relation: int, need: int, agreed: int, seeds: Sequence[int], keys: Optional[Tensor], key_base: int
) -> Any:
    """``sar_program_call``. ``keys``: int64 ``[num_edges]``, contiguous, alive until the call is over."""
    array = (ct.c_uint64 * max(1, len(seeds)))(*seeds)
    view = None if keys is None else library.tensor(keys)
    call = TYPES["sar_program_call"](
        relation,
        need,
        agreed,
        len(seeds),
        array,
        None if view is None else ct.pointer(view),
        key_base,
    )
    call._keep = (array, view)
    return call


def begin(collective: bool) -> Optional[schedule.Operation]:
    """Says that a program runs forward; None where it sends nothing, so that what comes next is not taken for it."""
    if not collective:
        return None
    schedule.begin("an edge expression")
    return schedule.last()


def program_forward(
    graph: int, program: int, call: Any, operands: Sequence[Tensor], state: Sequence[Tensor], out: Tensor
) -> Tuple[int, int]:
    """Fills ``state`` and ``out``; returns the operands that any rank wants a gradient of, and what backward reads.
    :func:`begin` comes before. Operands that the program has so, and ``out``, may be bfloat16."""
    read = storage.widened(operands, storage.computed_in(out.dtype))
    arguments = graph, program, call, read, len(operands), state, len(state), out
    agreed, saves = library.call("sar_program_forward", *arguments)
    return agreed, saves


def program_backward(
    graph: int,
    program: int,
    call: Any,
    operands: Sequence[Optional[Tensor]],
    state: Sequence[Tensor],
    out: Optional[Tensor],
    grad_out: Tensor,
    grads: Sequence[Optional[Tensor]],
    of: Optional[schedule.Operation],
) -> None:
    """Fills ``grads``. What is not needed is None; ``out``, ``grad_out`` and ``grads`` may be bfloat16.

    :param of: what :func:`begin` returned
    """
    if of is not None:
        schedule.begin("an edge expression", of)
    dtype = storage.computed_in(grad_out.dtype)
    nothing = _nothing(dtype)
    read = [nothing if t is None else t for t in storage.widened([*operands, out], dtype)]
    targets = [nothing if g is None else g for g in grads]
    arguments = graph, program, call, read[:-1], len(operands), state, len(state), read[-1]
    library.call("sar_program_backward", *arguments, grad_out, targets, len(targets))


@cache
def _nothing(dtype: Any) -> Any:
    """A tensor that is not needed, as C gets it."""
    import torch

    return library.tensor(torch.empty(0, dtype=dtype))
