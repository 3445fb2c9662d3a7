"""The maximum and the softmax over the out-edges of source nodes, which may end on any worker."""

from __future__ import annotations

from math import prod
from typing import Dict, List, Sequence

import torch
from torch import Tensor

from sar._engine import abi, blocks, session as _session
from sar.autograd.expression import evaluate, load
from sar.autograd.fetch import fetch
from sar.autograd.transpose import sum_to_sources
from sar.distributed.agreement import anywhere
from sar.graph.queries import edge_ends
from sar.graph.relation import Relation

from .base import values
from .memory import rewritten


def source_softmax(relations: Sequence[Relation], logits: Sequence[Tensor]) -> List[Tensor]:
    """``exp(logits[e])`` divided by its sum over the edges of all given relations that leave the source of e.

    Collective. Differentiable. Edge tensors are materialized.

    :param logits: for each relation ``[num_edges, ...]``, float32 or float64
    :returns: the same shapes and dtypes
    """
    given: List[Tensor] = values(list(logits))
    flat = [value.reshape(len(value), prod(value.shape[1:])).double() for value in given]
    most: Dict[str, Tensor] = {}
    with torch.no_grad():
        for relation, value in zip(relations, flat):
            kind, own = relation.canonical[0], _largest(relation, edge_ends(relation)[0], value)
            most[kind] = torch.maximum(most[kind], own) if kind in most else own
    # of sources without edges none is read, and those whose logits are all -inf have no softmax
    most = {kind: value.masked_fill(value.isinf(), 0) for kind, value in most.items()}
    powers = [(value - _by_edge(r, most)).exp() for r, value in zip(relations, flat)]
    sums: Dict[str, Tensor] = {}
    for relation, power in zip(relations, powers):
        kind, part = relation.canonical[0], sum_to_sources(relation, power, None)
        sums[kind] = sums[kind] + part if kind in sums else part
    return [
        (power / _by_edge(r, sums)).to(value.dtype).view(value.shape)
        for r, power, value in zip(relations, powers, given)
    ]


def _by_edge(relation: Relation, rows: Dict[str, Tensor]) -> Tensor:
    """Rows of the source of each edge."""
    return evaluate(relation, load("u", rows[relation.canonical[0]]), None)


def source_maximum(relation: Relation, messages: Tensor) -> Tensor:
    """The largest value of the out-edges of each own source, 0 where there are none. Collective.

    :param messages: ``[num_edges, f]``, numbers of any dtype; where it is differentiated, equal values share the
        gradient, with the 0 that a result of PyG's begins with
    :returns: ``[num_src, f]``

    Wire: f numbers per boundary row; with gradients, three times that.
    """
    columns = edge_ends(relation)[0]
    with torch.no_grad():
        best = _largest(relation, columns, messages.detach())
        best = best.masked_fill((relation.degrees(out=True) == 0).unsqueeze(1), 0)
    (wanted,) = anywhere(messages.requires_grad and torch.is_grad_enabled())
    if not wanted:
        return best
    with torch.no_grad():
        won = (messages == fetch(relation, columns, best)).to(messages.dtype)
        ties = sum_to_sources(relation, won, None) + (best == 0)
        won = won / fetch(relation, columns, ties)
    mean = sum_to_sources(relation, won * messages, None)
    return rewritten(mean, best)  # the mean of equal numbers is rounded, and none where some are infinite


def _largest(relation: Relation, columns: Tensor, messages: Tensor) -> Tensor:
    """The largest value of each own source, and the lowest number that there is where it has no out-edges."""
    lowest = float("-inf") if messages.is_floating_point() else torch.iinfo(messages.dtype).min
    found = messages.new_full((relation.num_columns, messages.shape[1]), lowest)
    found.scatter_reduce_(0, columns.unsqueeze(1).expand_as(messages), messages, "amax")
    out, received = found[: relation.num_src], _returned(relation, found)
    for peer in relation.boundary():
        rows = blocks.send_rows(relation.handle, relation.index, peer["peer"], peer["send_rows"])
        out[rows] = torch.maximum(out[rows], received[peer["peer"]])
    return out


def _returned(relation: Relation, found: Tensor) -> List[Tensor]:
    """By peer: what it found for own sources that it reads, in the order in which it reads them."""
    rank, world, start = _session.current().rank, _session.current().world, relation.num_src
    sent, received = [found[:0]] * world, [found[:0]] * world
    pairs = {pair["peer"]: pair for pair in relation.boundary()}
    for peer in ((rank - step) % world for step in range(1, world)):  # so columns are ordered
        if peer in pairs:
            sent[peer] = found[start : start + pairs[peer]["receive_rows"]]
            received[peer] = found.new_empty(pairs[peer]["send_rows"], found.shape[1])
            start += pairs[peer]["receive_rows"]
    _session.all_to_all(received, sent, abi.TRAIN)
    return received
