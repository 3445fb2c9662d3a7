"""The files of a run's log, for :class:`sar.RunLog` and ``sar report``. Needs no torch."""

import os

VERSION = 1


def name_of(rank: int) -> str:
    """Name of a worker's file."""
    return f"rank{rank:05d}.jsonl"


def own_file(path: str, rank: int, world: int, extension: str) -> str:
    """The file of one worker where all are given the same name: ``NAME.rank<r>.EXTENSION``, or the name itself where
    there is one worker.

    :param extension: where the name has none
    """
    stem, given = os.path.splitext(path)
    return path if world == 1 else f"{stem}.rank{rank}{given or extension}"
