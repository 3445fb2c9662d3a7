"""Registers the backend ``sar`` of ``torch.distributed``, without importing torch.

``import sar`` leaves torch to whoever imports it. So where torch is not there yet, the backend is registered when
``torch.distributed`` has been imported.
"""

from __future__ import annotations

import datetime
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Optional

_MODULE = "torch.distributed.distributed_c10d"


def register() -> None:
    """Makes the backend known to ``torch.distributed``, now or when that is imported."""
    module = sys.modules.get(_MODULE)
    if module is None or not hasattr(module, "Backend"):
        sys.meta_path.insert(0, _Finder())
    else:
        _register(module)


def _register(module: ModuleType) -> None:
    if not hasattr(module.Backend, "SAR"):  # else by an import before; torch before 2.5 refuses a second time
        module.Backend.register_backend("sar", _create, devices=["cpu"])


def _create(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
    from .process_group import ProcessGroup

    return ProcessGroup(store, rank, size, timeout)


class _Finder:
    """Finds the module of ``torch.distributed`` once, as it would be found, and has the backend registered after it."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Optional[ModuleSpec]:
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        loader: Any = spec and spec.loader
        if loader is not None:
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _register(module)

            loader.exec_module = exec_module
        return spec
