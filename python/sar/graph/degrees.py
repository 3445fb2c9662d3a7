"""Whether a graph has nodes without in-edges; all workers get the same answer.

``in_degrees`` and ``out_degrees`` are plain tensors of local rows. Decisions that depend on a degree of 0, such as
raising an error, must be the same on all workers: one that raises alone leaves the others waiting. So one all-reduce
finds out whether any node of any worker has no edge, and the answer is kept with the relation.
"""

from __future__ import annotations

import sys
from typing import Any, Sequence

from torch import Tensor

from sar._engine.log import log_once
from sar.autograd.compile import uncompiled
from sar.distributed.agreement import anywhere

from .relation import Relation


def agree_on_degrees(relations: Sequence[Relation], out: bool = False) -> None:
    """Finds out for each relation whether a node of any worker has no in-edge. Collective.

    :param out: look for sources without out-edges instead
    """
    found = anywhere(*((r.degrees(out=out) == 0).any() for r in relations))
    for relation, zero in zip(relations, found):
        relation.zero_degree[out] = zero


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


def for_caller(graph: Any, degrees: Tensor) -> Tensor:
    """In-degrees for who calls the method that calls this: as they are, but at least 1 for layers of DGL that would
    refuse a node without in-edges. A graph that is split would be refused by those workers alone that own such a node.
    So these layers run, and a line in the log, by agreement of all workers, says so. Where they divide by in-degrees,
    they do by at least 1 anyway.
    """
    frame = sys._getframe(2)
    if not str(frame.f_globals.get("__name__", "")).startswith("dgl.nn."):
        return degrees
    layer = frame.f_locals.get("self")
    if getattr(layer, "_allow_zero_in_degree", type(layer).__name__ != "EGATConv"):
        return degrees
    if has_zero_in_degree(graph):
        log_once(
            "degree 0",
            "some nodes have no in-edge: layers that would refuse them give what allow_zero_in_degree=True gives "
            "(`sar partition --self-loops` or dgl.add_self_loop give every node an edge to itself)",
        )
    return degrees.clamp(min=1)
