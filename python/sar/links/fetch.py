"""Rows of any nodes, for scripts."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from sar.autograd.compile import uncompiled
from sar.distributed.agreement import raise_everywhere

from .asked import check, fetch_rows
from .edges import graph_of
from .originals import originals

__all__ = ["fetch"]


@uncompiled
def fetch(x: Tensor, ids: Tensor, data: Any = None) -> Tensor:
    """Rows of any nodes: ``out[i]`` is the row of node ``ids[i]``, whichever worker owns it. Collective; every worker
    asks for as many as it likes, also for none.

    ::

        rows = sar.fetch(z, ids)

    A row that a worker asks for several times travels once. Rows arrive in the window. Gradients are added at the owner
    of a row in the order of ranks, in float32 at least.

    :param x: rows of own nodes, ``[own nodes, ...]`` of any dtype, the same dtype and shape of rows on every worker;
        differentiable where it is float32, float64 or bfloat16
    :param ids: int64 ``[n]``: ids as ``graph.column_nodes()`` and sampled blocks have them, counted by node type over
        all workers, those of rank 0 first
    :param data: a graph, an edge index, or a data object of PyG: then ids are original ids, as ``data.n_id`` has them
    :returns: ``[n, ...]``
    :raises TypeError: no tensor of own nodes, ids that are not int64 in one dimension, or gradients of another dtype.
        This and the next are raised on every worker, as :class:`sar.RemoteError` where the arguments were right
    :raises ValueError: an id that no node has, or rows that differ between workers

    Wire: a row for each row of another worker, and as much again in backward; 8 bytes more for each id that ``data``
    has looked up.
    """
    if data is not None:
        graph = graph_of(data)
        known = originals(graph._state, graph._ntype(None, graph.srctypes))
        error = check(x, ids, "fetch")
        if error is None and len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < known.num_nodes:
            error = ValueError(
                f"fetch: original ids are 0 to {known.num_nodes - 1}, and these reach from {int(ids.min())} to "
                f"{int(ids.max())}"
            )
        raise_everywhere("sar.fetch", error)
        ids = known.nodes(ids)
    return fetch_rows(x, ids)
