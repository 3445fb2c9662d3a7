"""Predicts the memory of each worker and the bytes on the wire, before a run is started."""

from .estimate import Estimate, estimate_memory

__all__ = ["Estimate", "estimate_memory"]
