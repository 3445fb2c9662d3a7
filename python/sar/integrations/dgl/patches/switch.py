"""``patch_dgl`` and ``unpatch_dgl``."""

from __future__ import annotations

import importlib.util
import sys
from typing import Optional

from sar.graph.edge_tensor.softmax import edge_softmax as patched_edge_softmax
from sar.integrations.replacements import Patches, given
from sar.nn.relgraphconv import RelGraphConv

from . import OTHERWISE

__all__ = ["RelGraphConv", "patch_dgl", "patched_edge_softmax", "unpatch_dgl"]

OLDER = "what scripts for the older package look for"

_names: Optional[Patches] = None


def patch_dgl() -> None:
    """Makes DGL's layers, and the functions of DGL that they call, work on SAR's graphs. On DGL's own graphs nothing
    changes.

    Building a graph does this too, so you need not call it. An explicit call also sets ``edge_softmax`` of
    ``dgl.nn.pytorch.conv.gatconv``, ``dotgatconv`` and ``agnnconv`` to :func:`sar.patched_edge_softmax`, and
    ``RelGraphConv`` of ``dgl.nn``, ``dgl.nn.pytorch`` and ``dgl.nn.pytorch.conv`` to :class:`sar.RelGraphConv`. Layers
    of DGL's class then count as instances of that.

    It may be called any number of times, before or after DGL is imported, and does nothing if DGL is not installed.
    :func:`unpatch_dgl` undoes it.

    :raises RuntimeError: this version of DGL lacks a name that is replaced; the error says which, and nothing is
        replaced
    """
    global _names
    if importlib.util.find_spec("dgl") is None:
        return
    from . import layers

    if _names is not None and _names.active:
        layers.adapt()
        return
    names = Patches("dgl", OTHERWISE, given())
    for module in ("gatconv", "dotgatconv", "agnnconv"):
        names.put(f"dgl.nn.pytorch.conv.{module}", "edge_softmax", patched_edge_softmax, OLDER)
    for module in ("dgl.nn", "dgl.nn.pytorch", "dgl.nn.pytorch.conv"):
        names.put(module, "RelGraphConv", RelGraphConv, OLDER)
    original = names.look_up("dgl.nn.pytorch.RelGraphConv")
    layers.adapt([names])
    RelGraphConv.register(original)
    _names = names


def unpatch_dgl() -> None:
    """Undoes what :func:`patch_dgl`, or the first graph, replaced in DGL. Names that other code has replaced since are
    left alone. The next graph replaces them again, unless ``sar.Config.patch_dgl`` is ``False``."""
    layers = sys.modules.get("sar.integrations.dgl.patches.layers")
    if layers is not None:
        layers.restore()
