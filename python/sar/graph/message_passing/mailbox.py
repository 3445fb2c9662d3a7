"""Python reduce functions on the messages that were recorded."""

from __future__ import annotations

from typing import Any, Dict, List

from torch import Tensor

from sar.distributed.agreement import agree
from sar.errors import RemoteError
from sar.graph.udf.batches import MailboxFunction
from sar.graph.udf.executor import execute
from sar.graph.udf.mailbox import Traversal, UdfJob, buckets
from sar.graph.udf.plan import agreed_outputs, agreed_plan, described

from .builtin import called
from .record import Recorded

__all__ = ["reduced_by_function"]

REDUCED = 4
"""A reduce function is expected to take so many times the memory of the messages that it gets."""


def reduced_by_function(made: Recorded, function: Any) -> Dict[str, Tensor]:
    """What a Python function of nodes makes of messages. Collective.

    :raises Exception: what the function raised
    :raises RemoteError: it failed on another worker
    """
    recording, name = made.recording, called(function)
    space, relation = recording.space, recording.relation
    send = made.function()
    compute = MailboxFunction(send, function, space.etype[2])
    plan = agreed_plan(made.answers, compute, send.columns, send.edge_bytes, recording.column)
    found = buckets(relation.degrees(out=False), REDUCED * plan.edge_bytes)
    batches = agree(None, [len(found)])[1][0]
    job = UdfJob(relation, plan, space.names(), lambda column: recording.column(("n", column)), found, batches)
    traversal = Traversal(job)
    traversal.run()
    answers = _agreed(traversal, name)
    traversal.agree(agreed_outputs(answers))
    outputs = traversal.executor.outputs
    results = execute(traversal, traversal.columns, outputs, f"the function {name}")
    return {k: recording.tied(t) if outputs[k].differentiable else t for k, t in results.items()}


def _agreed(traversal: Traversal, name: str) -> List[Dict[str, Any]]:
    """What the workers say of what the function returned. Collective."""
    error = traversal.error
    mine = described({}, traversal.executor.outputs) if error is None else {"error": f"{type(error).__name__}: {error}"}
    answers, _ = agree(mine)
    if error is not None:
        raise error
    for rank, answer in enumerate(answers):
        if "error" in answer:
            raise RemoteError(f"{name} failed on rank {rank}, so no rank goes on: {answer['error']}", rank)
    return answers
