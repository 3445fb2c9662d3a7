"""The store of torch's default group where SAR makes it: small values that rank 0 keeps.

They travel over the connections of the session, which have proved that they belong to the job. A store of torch's own
would be another port, which anyone who reaches it may read and write.
"""

from __future__ import annotations

import base64
import datetime
from typing import Any, Dict, List, Optional

import torch

from sar._engine import abi

from . import network

_Base: Any = torch.distributed.Store


class Store(_Base):
    """Torch calls it from C++, through stores that add a prefix to names, with values as bytes."""

    def __init__(self, session: int) -> None:
        super().__init__()
        self._session = session

    def _ask(self, op: str, key: str = "", **more: Any) -> Dict[str, Any]:
        return abi.session_value(self._session, {"op": op, "key": key, **more})

    def set(self, key: str, value: bytes) -> None:
        self._ask("set", key, value=_text(value))

    def get(self, key: str) -> bytes:
        self.wait([key])
        return base64.b64decode(self._ask("get", key)["value"] or "")

    def add(self, key: str, amount: int) -> int:
        return int(self._ask("add", key, add=amount)["number"])

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        found = self._ask("swap", key, old=_text(expected), value=_text(desired))["value"]
        return expected if found is None else base64.b64decode(found)

    def check(self, keys: List[str]) -> bool:
        return all(self._ask("get", key)["there"] for key in keys)

    def deleteKey(self, key: str) -> bool:
        return bool(self._ask("delete", key)["there"])

    def getNumKeys(self) -> int:
        return int(self._ask("count")["number"])

    def wait(self, keys: List[str], timeout: Optional[datetime.timedelta] = None) -> None:
        """Waits until all are there."""
        limit = timeout or self.timeout
        if not network.awaited(limit.total_seconds(), lambda: self.check(keys)):
            raise RuntimeError(f"wait timeout after {limit}: nobody has set {', '.join(keys)}")


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()
