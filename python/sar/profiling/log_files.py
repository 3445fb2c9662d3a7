"""The files of a run's log, for :class:`sar.RunLog` and ``sar report``. Needs no torch."""

VERSION = 1


def name_of(rank: int) -> str:
    """Name of a worker's file."""
    return f"rank{rank:05d}.jsonl"
