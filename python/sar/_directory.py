"""Where the description of a partitioned graph lies."""

from __future__ import annotations

import os
from typing import Union


def description_of(path: Union[str, os.PathLike[str]]) -> str:
    """The JSON file that describes a partitioned graph.

    :param path: that file, or the directory that holds it and no other JSON file
    :raises FileNotFoundError: a directory without one
    :raises ValueError: a directory with several
    """
    given = os.fspath(path)
    if not os.path.isdir(given):
        return given  # whoever opens it says what is wrong with it
    found = sorted(name for name in os.listdir(given) if name.endswith(".json"))
    if not found:
        raise FileNotFoundError(f"the directory {given} holds no JSON file: give the one that describes the partitions")
    if len(found) > 1:
        raise ValueError(f"the directory {given} holds several JSON files, {', '.join(found)}: give one of them")
    return os.path.join(given, found[0])
