"""Registers the backend ``sar`` of ``torch.distributed``, without importing torch.

``import sar`` leaves torch to whoever imports it. So where torch is not there yet, the backend is registered when
``torch.distributed`` has been imported.
"""

from __future__ import annotations

import datetime
import sys
from types import ModuleType
from typing import Any

from sar._lazy import after_import

_MODULE = "torch.distributed.distributed_c10d"


def register() -> None:
    """Makes the backend known to ``torch.distributed``, now or when that is imported."""
    module = sys.modules.get(_MODULE)
    if module is None or not hasattr(module, "Backend"):
        after_import(_MODULE, _register)
    else:
        _register(module)


def _register(module: ModuleType) -> None:
    if not hasattr(module.Backend, "SAR"):  # else by an import before; torch before 2.5 refuses a second time
        module.Backend.register_backend("sar", _create, devices=["cpu"])


def _create(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
    from .process_group import ProcessGroup

    return ProcessGroup(store, rank, size, timeout)
