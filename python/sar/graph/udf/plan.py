"""Agrees among workers on what a Python function reads and returns, before it runs."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from sar.config import Config
from sar.distributed.agreement import agree
from sar.graph.message_passing.builtin import called

from .batches import SIDES
from .executor import Plan
from .trace import Compute, Output, Slot, UdfTrace, trace_udf


class Task(NamedTuple):
    """A Python function to run.

    ``compute``: it, on batches; ``functions``: what users wrote of it; ``columns``: whole columns by side and name;
    ``names``: of the columns of each side; ``peer``: own rank; ``mailbox``: whether a reduce function takes part;
    ``wanted``: the output that is needed, ``None``: all.
    """

    compute: Compute
    functions: Sequence[Any]
    columns: Callable[[str, str], Tensor]
    names: Mapping[str, Sequence[str]]
    peer: int
    mailbox: bool
    wanted: Optional[str]


def prepare(task: Task, count: Callable[[int], int] = lambda _: 0) -> Tuple[Plan, List[Tensor], int]:
    """Tries the function and agrees on it. Collective.

    :param count: makes a number of the bytes that an edge takes
    :returns: what to run, the columns that it reads, and the largest number
    :raises ValueError: workers' columns or results differ, or the output wanted is not there
    :raises Exception: what the function raised, if it did on every worker
    """
    trace = trace_udf(task.compute, task.functions, task.columns, task.names, task.peer, task.mailbox)
    answers, (largest,) = agree(_described(trace), [count(trace.edge_bytes)])
    useful = [s for s in answers if s is not None]
    if not useful:
        assert trace.error is not None
        raise trace.error
    slots = sorted({(side, name) for s in useful for side, name, *_ in s["slots"]})
    columns = [task.columns(side, name) for side, name in slots]
    _check_columns(useful, slots, columns)
    outputs = _outputs(task, useful)
    return_grads = [
        side == "u" and any(grad for s in useful for a, b, *_, grad in s["slots"] if (a, b) == (side, name))
        for side, name in slots
    ]
    plan = Plan(
        task.compute,
        task.functions,
        slots,
        task.names,
        outputs,
        any(out.differentiable for out in outputs.values()),
        return_grads,
        trace.parameters,
        trace.captured,
        trace.random,
        trace.edge_bytes,
        bool(Config.disable_sr),
    )
    return plan, columns, largest


def _described(trace: UdfTrace) -> Optional[Dict[str, Any]]:
    """What others need to know; ``None`` where the trial failed."""
    if trace.error is not None:
        return None
    rows = sorted(trace.slots.items(), key=lambda item: item[0])
    slots = [[side, name, str(t.dtype), list(t.shape[1:]), t.requires_grad] for (side, name), t in rows]
    outputs = {k: [list(out.shape), str(out.dtype)[6:], out.differentiable] for k, out in trace.outputs.items()}
    return {"slots": slots, "outputs": outputs}


def _check_columns(answers: Sequence[Any], slots: Sequence[Slot], columns: Sequence[Tensor]) -> None:
    kinds: Dict[Slot, Any] = {}
    for s in answers:
        for side, name, dtype, shape, _ in s["slots"]:
            first = kinds.setdefault((side, name), (dtype, shape))
            if first != (dtype, shape):
                _differ((side, name), first, (dtype, shape))
    for slot, column in zip(slots, columns):
        mine = (str(column.dtype), list(column.shape[1:]))
        if kinds[slot] != mine:
            _differ(slot, kinds[slot], mine)


def _differ(slot: Slot, a: Any, b: Any) -> None:
    kinds = " and ".join(f"{dtype} {tuple(shape)} per row" for dtype, shape in (a, b))
    raise ValueError(f"{SIDES[slot[0]]}[{slot[1]!r}] differs between workers: {kinds}. It must be the same on all")


def _outputs(task: Task, answers: Sequence[Any]) -> Dict[str, Output]:
    found: Dict[str, Output] = {}
    for s in answers:
        for name, (shape, dtype, differentiable) in s["outputs"].items():
            out = Output(tuple(shape), getattr(torch, dtype), differentiable)
            before = found.get(name, out)
            if before[:2] != out[:2]:
                raise ValueError(
                    f"{called(task.functions[-1])} returned {name!r} as {before.dtype} {before.shape} per row on one "
                    f"worker and as {out.dtype} {out.shape} on another: it must be the same on all"
                )
            found[name] = out._replace(differentiable=before.differentiable or differentiable)
    if task.wanted is None:
        return dict(sorted(found.items()))
    if task.wanted not in found:
        raise ValueError(
            f"{called(task.functions[0])} returned {', '.join(map(repr, sorted(found))) or 'nothing'}, but the reducer "
            f"reads {task.wanted!r}: give both the same name"
        )
    return {task.wanted: found[task.wanted]}
