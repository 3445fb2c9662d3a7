"""Rows of any nodes, whichever worker owns them.

What is asked for becomes a relation of its own: an edge from the node that is asked for to each row of the result. A
sum over these edges, of which each row has one, fetches the rows: it streams them in the window, each once however
often it is asked for, and returns gradients to the owners in a fixed order.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from sar._engine import session as _session
from sar.autograd import fetch as columns_of
from sar.autograd.aggregate import aggregate
from sar.autograd.compile import uncompiled
from sar.autograd.dtypes import FLOATS, refusal
from sar.distributed.agreement import of_every_rank, raise_everywhere, said_by_all
from sar.graph.queries import edge_ends
from sar.graph.relation import Relation
from sar.graph.subgraph import first_ids, graph_of_sets


@uncompiled
def fetch_rows(x: Tensor, ids: Tensor, what: str = "fetch") -> Tensor:
    """:func:`sar.fetch` of ids that count the rows of all workers.

    :param what: whose arguments these are, for messages
    """
    asked = _asked(x, ids, what)
    relation = Relation(graph_of_sets(asked.counts, [(0, 1, *asked.ends)]), 0, ("rows", "asked", "for"))
    flat = x.reshape(len(x), prod(x.shape[1:]))
    if x.dtype in FLOATS:
        return aggregate(relation, "copy_u", "sum", flat, None).view(len(ids), *x.shape[1:])
    columns, _ = edge_ends(relation)
    needed, place = torch.unique(columns, return_inverse=True)
    return columns_of.fetch(relation, needed, flat)[place].view(len(ids), *x.shape[1:])


class Fetched(NamedTuple):
    """What all workers ask for.

    :ivar counts: rows, and ids, of each worker: int64 ``[2, workers]``
    :ivar ends: ids over both of the rows, and of the results, of this worker
    """

    counts: Tensor
    ends: Tuple[Tensor, Tensor]


def _asked(x: Any, ids: Any, what: str) -> Fetched:
    """Checks the arguments of all workers. Collective.

    :raises TypeError, ValueError: on this worker, and :class:`sar.errors.RemoteError` on the others
    """
    error = check(x, ids, what)
    raise_everywhere(f"sar.{what}", error)
    session = _session.current()
    said = said_by_all([str(x.dtype), list(x.shape[1:])])
    for rank, other in enumerate(said):
        if other != said[0]:
            raise ValueError(
                f"{what}: x is {said[0][0]} with rows of shape {said[0][1]} on rank 0, and {other[0]} with rows of "
                f"shape {other[1]} on rank {rank}: all workers give the same dtype and shape of rows"
            )
    counts = of_every_rank(torch.tensor([len(x), len(ids)])).T
    total = int(counts[0].sum())
    strange = ids[(ids < 0) | (ids >= total)]
    if len(strange):
        error = ValueError(
            f"{what}: id {int(strange[0])} is no node: the ids of the {total} nodes of all workers are 0 to {total - 1}"
        )
    raise_everywhere(f"sar.{what}", error)
    starts = first_ids(counts)
    owner, row = owners(counts[0], ids)
    asked = torch.arange(len(ids)) + starts[1, session.rank]
    return Fetched(counts, (starts[0][owner] + row, asked))


def check(x: Any, ids: Any, what: str) -> Optional[Exception]:
    """What is wrong with arguments of this worker, if anything."""
    if not isinstance(x, Tensor) or x.dim() == 0:
        return TypeError(f"{what}: x has to be a tensor with a row for each own node")
    if not isinstance(ids, Tensor) or ids.dtype != torch.int64 or ids.dim() != 1:
        shown = f"{ids.dtype} {tuple(ids.shape)}" if isinstance(ids, Tensor) else type(ids).__name__
        return TypeError(f"{what}: ids are {shown}: give int64 in one dimension")
    if x.requires_grad and torch.is_grad_enabled() and x.dtype not in FLOATS:
        return TypeError(f"{what}: x requires a gradient, but {refusal('x', x.dtype)}")
    return None


def owners(counts: Tensor, ids: Tensor) -> Tuple[Tensor, Tensor]:
    """Which worker owns each node, and its row there.

    :param counts: nodes of each worker
    """
    ends = counts.cumsum(0)
    rank = torch.searchsorted(ends, ids, right=True)
    return rank, ids - (ends - counts)[rank]
