"""Cuts graphs on disk into parts: graphs as partitioners see them, and the partitioners."""
