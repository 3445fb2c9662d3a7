"""Whole-graph utilities: on split graphs, and by ``sar transform``."""
