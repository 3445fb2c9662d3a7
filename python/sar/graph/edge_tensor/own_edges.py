"""Warns of functions that get the values of one worker's edges, where there are several workers."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import torch.nn.functional as F

from sar._engine import session as _session
from sar._engine.log import warn_user

from .rowwise import find, known, mixes


def warn_of_own_edges(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], edges: int, writes: bool) -> None:
    """Warns if a function may mix the edges of a graph that is split over several workers, or stores them.

    :param func: a function of torch, with a tensor of edges among its arguments
    :param edges: how many this worker has
    :param writes: it writes into a tensor that is not of edges
    """
    if _session.current().world == 1:
        return
    name = getattr(func, "__name__", str(func))
    if writes:
        text = (
            f"{name} writes values of this worker's edges into a tensor that is not of edges: add up over workers what "
            "is to be one for the whole graph (sar.comm.all_reduce), or reduce by the ends of edges"
        )
    elif not known(func):
        text = (
            f"{name} is not known to treat each edge by itself, so it was given the values of this worker's edges, "
            "which a tensor is made for: if it does, wrap the function that calls it in sar.rowwise"
        )
    elif not mixes(func, args) or find(func, args, dict(kwargs), edges) is not None:
        return
    else:
        instead = (
            "sar.convert_batchnorm(model)"
            if func is F.batch_norm
            else "reduce by the ends of edges (torch_geometric.utils.softmax or scatter with index)"
        )
        text = f"{name} over a tensor of edges sees the edges of this worker, not those of the whole graph: {instead}"
    warn_user(text)
