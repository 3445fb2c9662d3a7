"""Graphs that are split over workers, in place of DGL's."""
