"""What a partitioner is asked for, and what may go wrong."""

from __future__ import annotations

from typing import NamedTuple, Optional

BALANCES = ("nodes", "edges", "train")
OBJECTIVES = ("volume", "cut")


class PartitioningError(Exception):
    """A graph could not be cut. The message says why, and what to do."""


class Options(NamedTuple):
    parts: int
    hosts: int = 1
    """Machines: parts ``h * parts/hosts`` and those after it are on machine ``h``."""
    balance: tuple[str, ...] = ("nodes",)
    """What parts have equal shares of: of :data:`BALANCES`."""
    imbalance: float = 0.03
    """How far a part may be above the mean."""
    objective: Optional[str] = None
    """What is to be small, of :data:`OBJECTIVES`: rows that travel or edges between parts. None: rows with Mt-KaHyPar,
    else edges."""
    seed: int = 0
    memory: int = 1 << 30
    """Bytes that each step may take, beside the program itself."""
    scratch: str = "."
    """Directory of temporary files."""

    @property
    def parts_of_a_host(self) -> int:
        return self.parts // self.hosts

    @property
    def imbalance_of_a_level(self) -> float:
        """Where hosts are cut first and their parts after: both together come to :attr:`imbalance`."""
        return float((1 + self.imbalance) ** 0.5 - 1) if self.hosts > 1 else self.imbalance

    def memory_to_sort(self, nodes: int) -> int:
        """Bytes for making a graph of so many nodes undirected, beside 8 for each."""
        return max(self.memory - 8 * nodes, self.memory // 8)
