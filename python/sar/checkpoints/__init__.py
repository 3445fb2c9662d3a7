"""Checkpoints: saved by all workers together, and taken up by as many or by others."""
