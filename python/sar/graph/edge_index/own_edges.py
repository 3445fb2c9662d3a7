"""Warns of functions that look at several edges: they see those of one worker."""

from __future__ import annotations

import warnings
from typing import Any, Mapping, Sequence

import torch.nn.functional as F
from torch import Tensor

from sar._engine import session as _session

__all__ = ["warn_of_own_edges"]

REDUCTIONS = frozenset(["sum", "mean", "prod", "std", "var", "norm", "max", "min", "amax", "amin", "aminmax", "median"])
REDUCTIONS |= frozenset(
    ["nanmean", "nansum", "mode", "logsumexp", "argmax", "argmin", "softmax", "log_softmax", "sort"]
)
REDUCTIONS |= frozenset(["argsort", "topk", "cumsum", "cumprod", "cummax", "cummin", "quantile"])
"""Functions of torch with a dimension that they reduce or put in order: all of them where none is given."""


def warn_of_own_edges(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Warns if a function mixes the edges of a graph that is split over several workers.

    :param func: a function of torch, with a tensor of edges for its first argument
    """
    if _session.current().world == 1 or not args or not isinstance(args[0], Tensor):
        return
    name = getattr(func, "__name__", "")
    if func is F.batch_norm:
        mixes = bool(kwargs.get("training", args[5] if len(args) > 5 else False))
    else:
        mixes = name in REDUCTIONS and _along_edges(name, args, kwargs)
    if mixes:
        instead = (
            "sar.convert_batchnorm(model)"
            if func is F.batch_norm
            else "reduce by the ends of edges (torch_geometric.utils.softmax or scatter with index)"
        )
        warnings.warn(
            f"{name} over a tensor of edges sees the edges of this worker, not those of the whole graph: {instead}",
            RuntimeWarning,
            stacklevel=4,
        )


def _along_edges(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    place = 2 if name in ("norm", "topk", "quantile") else 1
    dims = kwargs.get("dim", args[place] if len(args) > place else None)
    if isinstance(dims, Tensor):  # the larger of two tensors
        return False
    if dims is None:
        return True
    given = dims if isinstance(dims, (tuple, list)) else (dims,)
    return not given or any(d in (0, -args[0].dim()) for d in given)
