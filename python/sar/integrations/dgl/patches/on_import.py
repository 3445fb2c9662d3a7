"""Patches DGL with the first graph, or when DGL is imported after it, which many scripts that make a graph never do."""

from __future__ import annotations

import sys

from sar._lazy import after_import
from sar.config import Config


def adapt_layers() -> None:
    """Makes DGL's layers work on graph managers, now or as soon as DGL is imported. Does nothing if
    ``Config.patch_dgl`` is ``False``.

    :raises RuntimeError: this version of DGL lacks a name that is replaced; nothing is replaced then
    """
    if Config.patch_dgl and sys.modules.get("dgl") is not None:  # None: its import is forbidden
        from .layers import adapt

        adapt()
    elif Config.patch_dgl:
        after_import("dgl", lambda _: adapt_layers())
