"""Layers, and batch norm with its activation, each computed in one piece."""
