"""Types that the modules of this folder share."""

from __future__ import annotations

from typing import Any, Sequence, Union

from torch import Tensor

from sar.data.partition_book import CanonicalEtype

Etype = Union[str, CanonicalEtype]
"""A relation: its name, or ``(source type, relation, destination type)``."""

ALL = "__ALL__"
"""What DGL passes for "every node", and for "every edge"."""

Edges = Union[str, Sequence[int], Tensor]
"""Positions of edges, or of nodes, or a mask; or :data:`ALL`."""


def is_all(chosen: Any) -> bool:
    """Whether all are meant."""
    return chosen is None or (isinstance(chosen, str) and chosen == ALL)
