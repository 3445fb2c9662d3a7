"""Columns of edges that are read from files when they are first asked for."""

from __future__ import annotations

import pytest
import torch

from sar.graph.frames import EdgeFrame


def test_a_column_is_read_once() -> None:
    """What a script reads inside ``graph.local_scope()`` in each epoch comes from the file in the first."""
    reads = []

    def read() -> torch.Tensor:
        reads.append(1)
        return torch.arange(3)

    frame = EdgeFrame("_E", 3)
    frame.later("w", read)
    assert list(frame) == ["w"] and not reads
    for _ in range(3):
        before = frame.snapshot()
        assert frame["w"].tolist() == [0, 1, 2]
        frame["w"] = torch.zeros(3)
        frame.restore(before)
    assert frame["w"] is frame["w"] and len(reads) == 1


def test_a_column_that_cannot_be_read_is_tried_again() -> None:
    broken = ["the disk is away"]

    def read() -> torch.Tensor:
        if not broken:
            return torch.zeros(3)
        raise OSError(broken.pop())

    frame = EdgeFrame("_E", 3)
    frame.later("w", read)
    with pytest.raises(OSError):
        frame["w"]
    assert frame["w"].tolist() == [0, 0, 0]
