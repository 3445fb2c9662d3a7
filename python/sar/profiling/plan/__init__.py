"""What a run will take before it is started: memory of each worker, and bytes on the wire."""

from .estimate import Estimate, estimate_memory

__all__ = ["Estimate", "estimate_memory"]
