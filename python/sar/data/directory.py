"""Files of a partitioned graph: its description, those of a part, and those that users name. Needs no torch."""

from __future__ import annotations

import os
import stat
from typing import TextIO, Union

from sar.errors import FormatError


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


_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe (FIFO)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


def open_regular(path: Union[str, os.PathLike[str]]) -> TextIO:
    """Opens a text file for reading. Anything but a regular file, or a link to one, is refused before it is opened:
    opening a pipe waits for somebody who writes.

    :raises sar.FormatError: it is a pipe, a device, a socket or a directory
    """

    def check(mode: int) -> None:
        if not stat.S_ISREG(mode):
            kind = _KINDS.get(stat.S_IFMT(mode), "something else")
            raise FormatError(f"{given}: expected a regular file, found {kind}; nothing else is opened", given)

    given = os.fspath(path)
    check(os.stat(given).st_mode)
    descriptor = os.open(given, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        check(os.fstat(descriptor).st_mode)  # another file may have taken its place
    except FormatError:
        os.close(descriptor)
        raise
    return open(descriptor, encoding="utf-8")


def ids_file(node_type: str, number: int) -> str:
    """The name of the file with the users' ids of own nodes, in the directory of a part.

    :param number: of the node type, which names the file where the type's name has other signs than letters and digits
    """
    plain = all(c.isascii() and (c.isalnum() or c == "_") for c in node_type)
    return f"ids_{node_type if plain else number}.parquet"
