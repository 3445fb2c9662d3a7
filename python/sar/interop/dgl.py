"""What needs DGL itself."""

from __future__ import annotations

from typing import Any

import dgl


def load_partition_book(json_path: str, part: int) -> Any:
    """DGL's partition book of a partitioning, as ``dgl.distributed`` gives it."""
    book, *_ = dgl.distributed.load_partition_book(json_path, part)
    return book
