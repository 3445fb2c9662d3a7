"""The maximum over the out-edges of source nodes, which may end on any worker."""

from __future__ import annotations

from typing import List

import torch
from torch import Tensor

from sar._engine import abi, blocks, session as _session
from sar.autograd.fetch import fetch
from sar.autograd.transpose import sum_to_sources
from sar.graph.queries import edge_ends
from sar.graph.relation import Relation

__all__ = ["source_maximum"]


def source_maximum(relation: Relation, values: Tensor) -> Tensor:
    """The largest value of the out-edges of each own source, 0 where there are none. Collective.

    :param values: ``[num_edges, f]``, numbers of any dtype; where it is differentiated, equal values share the gradient
    :returns: ``[num_src, f]``

    Wire: f numbers per boundary row; with gradients, three times that.
    """
    columns = edge_ends(relation)[0]
    with torch.no_grad():
        best = _largest(relation, columns, values.detach())
    wanted = torch.tensor([float(values.requires_grad and torch.is_grad_enabled())])
    _session.all_reduce(wanted, "max", abi.TRAIN)
    if not wanted:
        return best
    with torch.no_grad():
        won = (values == fetch(relation, columns, best)).to(values.dtype)
        ties = sum_to_sources(relation, won, None).clamp(min=1)
        won = won / fetch(relation, columns, ties)
    mean = sum_to_sources(relation, won * values, None)
    return best + (mean - mean.detach())  # the mean of equal numbers is rounded


def _largest(relation: Relation, columns: Tensor, values: Tensor) -> Tensor:
    lowest = float("-inf") if values.is_floating_point() else torch.iinfo(values.dtype).min
    found = values.new_full((relation.num_columns, values.shape[1]), lowest)
    found.scatter_reduce_(0, columns.unsqueeze(1).expand_as(values), values, "amax")
    out, received = found[: relation.num_src], _returned(relation, found)
    for peer in relation.boundary():
        rows = blocks.send_rows(relation.handle, relation.index, peer["peer"], peer["send_rows"])
        out[rows] = torch.maximum(out[rows], received[peer["peer"]])
    return out.masked_fill((relation.degrees(out=True) == 0).unsqueeze(1), 0)


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
