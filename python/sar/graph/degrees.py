"""Whether a graph has nodes without in-edges; all workers get the same answer.

``in_degrees`` and ``out_degrees`` are plain tensors of local rows. Decisions that depend on a degree of 0, such as
raising an error, must be the same on all workers: one that raises alone leaves the others waiting. So one all-reduce
finds out whether any node of any worker has no edge, and the answer is kept with the relation.
"""

from __future__ import annotations

from typing import Any, Sequence

import torch

from sar._engine import abi, session as _session
from sar._engine.log import log_once
from sar.autograd.compile import uncompiled

from .relation import Relation

__all__ = ["agree_on_degrees", "has_zero_in_degree", "note_zero_in_degree"]


def agree_on_degrees(relations: Sequence[Relation], out: bool = False) -> None:
    """Finds out for each relation whether a node of any worker has no in-edge. Collective.

    :param out: look for sources without out-edges instead
    """
    found = torch.tensor([float((r.degrees(out=out) == 0).any()) for r in relations], dtype=torch.float64)
    _session.all_reduce(found, "max", abi.TRAIN)
    for relation, zero in zip(relations, found.tolist()):
        relation.zero_degree[out] = bool(zero)


@uncompiled
def has_zero_in_degree(graph: Any) -> bool:
    """Whether any node of any worker has no in-edge: the same answer on all workers. Collective where it is the first
    question about a reversed graph.

    :param graph: a graph manager, a block, or a graph that ``dgl.reverse`` gave; a graph of DGL is looked at as it is
    """
    relations = getattr(graph, "_relations", None)
    if relations is None:
        return bool((graph.in_degrees() == 0).any())
    out = bool(getattr(graph, "is_reversed", False))
    unknown = [r for r in relations if out not in r.zero_degree]
    if unknown:
        agree_on_degrees(unknown, out)
    return any(r.zero_degree[out] for r in relations)


def note_zero_in_degree() -> None:
    """Says once that layers run although nodes have no in-edge."""
    log_once(
        "degree 0",
        "some nodes have no in-edge: layers that would refuse them give what allow_zero_in_degree=True gives "
        "(`sar partition --self-loops` or dgl.add_self_loop give every node an edge to itself)",
    )
