"""Patches DGL with the first graph, or when DGL is imported after it."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from typing import Any

from sar.config import Config


def adapt_layers() -> None:
    """Makes DGL's layers work on graph managers, now or as soon as DGL is imported. Does nothing if
    ``Config.patch_dgl`` is ``False``.

    :raises RuntimeError: this version of DGL lacks a name that is replaced; nothing is replaced then
    """
    if not Config.patch_dgl:
        return
    if sys.modules.get("dgl") is not None:  # None: its import is forbidden
        _adapt()
    elif not any(isinstance(finder, _Watcher) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watcher())


def _adapt() -> None:
    from .layers import adapt

    adapt()


class _Watcher(importlib.abc.MetaPathFinder):
    """Waits for the import of DGL, which many scripts that make a graph never do."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != "dgl":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        loader: Any = spec.loader if spec is not None else None
        if loader is None:
            return spec
        execute = loader.exec_module

        def run(module: Any) -> None:
            try:
                execute(module)
                if Config.patch_dgl:
                    _adapt()
            except BaseException:
                sys.meta_path.insert(0, self)  # the next import fails in the same way, rather than go unnoticed
                raise

        loader.exec_module = run
        return spec
