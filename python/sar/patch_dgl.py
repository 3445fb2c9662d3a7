"""Has DGL's layers run on graphs split over workers."""

from __future__ import annotations

import importlib.util

from .edge_softmax import edge_softmax as patched_edge_softmax
from .nn.relgraphconv import RelGraphConv

__all__ = ["RelGraphConv", "patch_dgl", "patched_edge_softmax"]


def patch_dgl() -> None:
    """Has DGL's own ``edge_softmax``, and what its layers ask of a graph, understand SAR's graphs.

    Making a graph does that already, so there is no need to call it. It may be called any number of times, before or
    after DGL is imported, and does nothing where DGL is not installed. On DGL's own graphs nothing changes.
    """
    if importlib.util.find_spec("dgl") is not None:
        from .interop.dgl import adapt

        adapt()
