"""Python functions of edges and of nodes, as ``update_all`` and its relatives run them."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

import torch
from torch import Tensor

from sar.distributed.agreement import agree, largest_of_all, raise_everywhere
from sar.graph.udf.agreement import agreed_columns, agreed_outputs, described
from sar.graph.udf.batches import Batch, MailboxFunction, MessageFunction, wants_shard_info
from sar.graph.udf.blocks import OfNodes, of_equal_degree
from sar.graph.udf.executor import Executor
from sar.graph.udf.reduction import PerRow

from . import builtin
from .builtin import called
from .edge_space import EdgeSpace
from .record import Recorded, record

REDUCED = 4
"""A reduce function is expected to take so many times the memory of the messages that it gets."""


def recorded(
    space: EdgeSpace, function: Any, wanted: Optional[str] = None, chosen: Optional[Tensor] = None
) -> Recorded:
    """A Python function of edges, run on them once. Collective."""
    if chosen is None and wants_shard_info(function):
        chosen = torch.arange(space.relation.num_edges)  # it gets rows, shard by shard
    run = MessageFunction(function, space.etype, space.shard)
    return record(space, run, called(function), wanted, chosen)


def reduced_by_function(
    space: EdgeSpace, message_func: Any, sent: Optional[builtin.Message], function: Any
) -> Dict[str, Tensor]:
    """A Python reduce function, with any message. Collective.

    :param sent: the message, if it is built in
    :raises Exception: what a function raised
    :raises RemoteError: it failed on another worker
    """
    made = recorded(space, message_func) if sent is None else record(space, _by_rows(sent), called(message_func))
    recording, name = made.recording, called(function)
    relation = space.relation
    send = made.function()
    compute = MailboxFunction(send, function, space.etype[2])
    agreed_outputs(made.answers)  # the messages are alike on all workers
    columns = agreed_columns(made.answers, send.columns, recording.column)
    nodes = of_equal_degree(relation.degrees(out=False), REDUCED * send.edge_bytes)
    blocks = OfNodes(relation, nodes, largest_of_all(len(nodes)))
    executor = Executor(
        compute,
        columns,
        blocks,
        lambda out: PerRow(relation.num_dst, out.shape, out.dtype, "n"),
        names=space.names(),
        column=recording.column,
    )
    executor.run()
    raise_everywhere(name, blocks.error)
    outputs = executor.outputs = agreed_outputs(agree(described({}, executor.outputs))[0])
    results = executor.results(f"the function {name}")
    return {k: recording.tied(t) if outputs[k].differentiable else t for k, t in results.items()}


def _by_rows(sent: builtin.Message) -> Callable[[Batch], Dict[str, Tensor]]:
    """A built-in message on the rows of a batch."""

    def send(batch: Batch) -> Dict[str, Tensor]:
        rows = [batch.read(term.side, term.field) for term in sent.terms]
        if sent.op is None:
            return {sent.out_field: rows[0]}
        dims = max(t.dim() for t in rows)
        a, b = (t.reshape(t.shape[0], *(1,) * (dims - t.dim()), *t.shape[1:]) for t in rows)
        if sent.op == "dot":
            return {sent.out_field: (a * b).sum(-1, keepdim=True)}
        combined: Tensor = getattr(torch, sent.op)(a, b)
        return {sent.out_field: combined}

    return send
