"""Rows of any nodes, for scripts."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from sar.autograd.compile import uncompiled
from sar.distributed.agreement import raise_everywhere

from .asked import check, fetch_rows
from .edges import graph_of
from .originals import originals


@uncompiled
def fetch(x: Tensor, ids: Tensor, data: Any) -> Tensor:
    """See :func:`sar.fetch`."""
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
