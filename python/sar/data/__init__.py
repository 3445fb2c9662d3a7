"""Partitions: the partition book, loading, edges given by scripts."""
