"""Types that the modules of this folder share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence, Union

import torch
from torch import Tensor

from sar.data.partition_book import CanonicalEtype

if TYPE_CHECKING:
    from typing_extensions import Self

Etype = Union[str, CanonicalEtype]
"""A relation: its name, or ``(source type, relation, destination type)``."""

ALL = "__ALL__"
"""What DGL passes for "every node", and for "every edge"."""

Edges = Union[str, Sequence[int], Tensor]
"""Positions of edges, or of nodes, or a mask; or :data:`ALL`."""


def is_all(chosen: Any) -> bool:
    """Whether all are meant."""
    return chosen is None or (isinstance(chosen, str) and chosen == ALL)


class InMemory:
    """What lives in CPU memory and stays there."""

    def to(self, device: Union[str, int, torch.device], **kwargs: object) -> Self:
        """The graph itself; it lives in CPU memory.

        :raises TypeError: another device than the CPU
        """
        if torch.device(device).type != "cpu":
            raise TypeError(f"graphs work on the CPU for now, not on {device}; leave the model and features on the CPU")
        return self
