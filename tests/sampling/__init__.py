"""Sampled batches."""
