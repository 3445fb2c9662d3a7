"""Numbers of bytes, and lists of names, as people write and read them."""

from __future__ import annotations

import re
from typing import Sequence, Union

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(ib?|b|)", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_size(text: Union[str, int]) -> int:
    """A number of bytes: ``"4GiB"`` and ``"4G"`` are 4 * 1024**3, ``"4GB"`` is 4 * 1000**3, and ``"4096"`` is 4096.

    :raises ValueError: it is none
    """
    found = _SIZE.fullmatch(str(text).strip())
    if not found:
        raise ValueError(f"expected a size such as 4GiB or 512MiB, found {text!r}")
    base = 1000 if found[3].lower() == "b" else 1024
    return int(float(found[1]) * base ** _POWERS[found[2].lower()])


def size(count: float) -> str:
    """A number of bytes in binary units: ``size(3 << 20) == "3.0 MiB"``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def some(names: Sequence[str], between: str = ", ") -> str:
    """The first five of some names, and how many more there are."""
    return between.join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
