"""What workers agree on before they run a function on blocks: the columns that travel, and what it returns."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, NamedTuple, Sequence, Tuple

import torch
from torch import Tensor

from .batches import SIDES

Slot = Tuple[str, str]
"""A column of which a function picks rows: side ("u", "v", "e", "n") and name."""


class Output(NamedTuple):
    """What a function returns under one name: feature shape, dtype, and whether it depends on what has gradients."""

    shape: Tuple[int, ...]
    dtype: torch.dtype
    differentiable: bool


class Column(NamedTuple):
    """A column of which a function picks rows. ``returns``: gradients of rows of other workers return to them."""

    tensor: Tensor
    returns: bool


def described(columns: Mapping[Slot, Tensor], outputs: Mapping[str, Output]) -> Dict[str, Any]:
    """What other workers need to know of a function: the columns of sources, and what it returns."""
    rows = sorted((slot, t) for slot, t in columns.items() if slot[0] == "u")
    return {
        "slots": [[*slot, str(t.dtype), list(t.shape[1:]), t.requires_grad] for slot, t in rows],
        "outputs": {k: [list(out.shape), str(out.dtype)[6:], out.differentiable] for k, out in outputs.items()},
    }


def agreed_columns(
    answers: Sequence[Dict[str, Any]], columns: Mapping[Slot, Tensor], column: Callable[[Slot], Tensor]
) -> Dict[Slot, Column]:
    """The columns of which rows are read. Those of sources travel between all workers.

    :param answers: of the workers that have something to run, as :func:`described` makes them
    :param columns: those that this worker's function reads
    :param column: gives a column that another worker reads
    :raises ValueError: workers' columns differ
    """
    grads: Dict[Slot, bool] = {}
    kinds: Dict[Slot, Any] = {}
    for answer in answers:
        for side, name, dtype, shape, grad in answer["slots"]:
            first = kinds.setdefault((side, name), (dtype, shape))
            if first != (dtype, shape):
                _differ((side, name), first, (dtype, shape))
            grads[side, name] = grads.get((side, name), False) or grad
    found: Dict[Slot, Column] = {}
    for slot in [*sorted(kinds), *(slot for slot in columns if slot[0] != "u")]:
        tensor = columns[slot] if slot in columns else column(slot)
        mine = (str(tensor.dtype), list(tensor.shape[1:]))
        if kinds.get(slot, mine) != mine:
            _differ(slot, kinds[slot], mine)
        found[slot] = Column(tensor, grads.get(slot, False))
    return found


def _differ(slot: Slot, a: Any, b: Any) -> None:
    kinds = " and ".join(f"{dtype} {tuple(shape)} per row" for dtype, shape in (a, b))
    raise ValueError(f"{SIDES[slot[0]]}[{slot[1]!r}] differs between workers: {kinds}. It must be the same on all")


def agreed_outputs(answers: Sequence[Dict[str, Any]]) -> Dict[str, Output]:
    """What all workers return, by name.

    :raises ValueError: they return different things
    """
    found: Dict[str, Output] = {}
    for answer in answers:
        for name, (shape, dtype, differentiable) in answer["outputs"].items():
            out = Output(tuple(shape), getattr(torch, dtype), differentiable)
            before = found.get(name, out)
            if before[:2] != out[:2]:
                raise ValueError(
                    f"a function returned {name!r} as {before.dtype} {before.shape} per row on one worker and as "
                    f"{out.dtype} {out.shape} on another: it must be the same on all"
                )
            found[name] = out._replace(differentiable=before.differentiable or differentiable)
    return dict(sorted(found.items()))
