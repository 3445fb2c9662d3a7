"""When DGL's layers come to understand graph managers: with the first graph, or as soon as DGL is imported after it."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from typing import Any

__all__ = ["adapt_layers"]


def adapt_layers() -> None:
    """Has DGL's layers understand graph managers: now where DGL is imported, else as soon as it is."""
    if _state["adapted"]:
        return
    _state["adapted"] = True
    if sys.modules.get("dgl") is not None:  # None: its import is forbidden
        _adapt()
    else:
        sys.meta_path.insert(0, _Watcher())


_state = {"adapted": False}


def _adapt() -> None:
    from .interop.dgl import adapt

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
            execute(module)
            _adapt()

        loader.exec_module = run
        return spec
