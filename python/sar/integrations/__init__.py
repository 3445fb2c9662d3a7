"""Adaptations to graph libraries."""
