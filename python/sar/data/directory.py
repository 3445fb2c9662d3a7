"""Files of a partitioned graph: its description, those of a part, and those that users name. Needs no torch."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, Union

from sar.errors import FormatError

if TYPE_CHECKING:
    import numpy as np

NPY_BEGIN = 4096
"""Where the rows of a ``.npy`` file that SAR writes begin: a page. Room for any shape, which may become known last."""


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
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe (FIFO)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


def open_regular(path: Union[str, os.PathLike[str]], links: bool = True) -> TextIO:
    """Opens a text file for reading, or, as its ``buffer``, any file. Anything but a regular file is refused before it
    is opened: opening a pipe waits for somebody who writes.

    :param links: whether a symbolic link to a regular file will do. What lies in a directory from elsewhere may lead
        out of it
    :raises sar.FormatError: it is a pipe, a device, a socket or a directory
    """

    def check(mode: int) -> None:
        if not stat.S_ISREG(mode):
            kind = _KINDS.get(stat.S_IFMT(mode), "something else")
            raise FormatError(f"{given}: expected a regular file, found {kind}; nothing else is opened", given)

    given = os.fspath(path)
    check(os.stat(given, follow_symlinks=links).st_mode)
    descriptor = os.open(given, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if links else os.O_NOFOLLOW))
    try:
        check(os.fstat(descriptor).st_mode)  # another file may have taken its place
    except FormatError:
        os.close(descriptor)
        raise
    return open(descriptor, encoding="utf-8")


def ids_file(node_type: str, number: int) -> str:
    """The name of the Parquet file of the users' ids in the directory of a part.

    :param number: of the node type, which stands for a name that a file should not have
    """
    plain = all(c.isascii() and (c.isalnum() or c == "_") for c in node_type)
    return f"ids_{node_type if plain else number}.parquet"


def id_files(description: str, part: int, info: Mapping[str, Any]) -> dict[str, str]:
    """By node type, the Parquet file with the users' ids of the nodes of a part, in their order, where there is one.

    :param description: the JSON file of all parts
    :param info: what the engine tells of the part. DGL's format has no place for ids, but the directory of a part has
    """
    if info["ids"]:
        return dict(info["ids"])
    folder = os.path.join(os.path.dirname(description), f"part{part}")
    files = {kind: os.path.join(folder, ids_file(kind, n)) for n, kind in enumerate(info["node_types"])}
    return {kind: path for kind, path in files.items() if os.path.isfile(path)}


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The first ``NPY_BEGIN`` bytes of a ``.npy`` file, in version 1.0 of numpy's format."""
    text = repr({"descr": dtype.str, "fortran_order": False, "shape": shape}).encode("ascii")
    body = text.ljust(NPY_BEGIN - 11) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body


def sync_directory(path: Union[str, os.PathLike[str]]) -> None:
    """Has names that changed in a directory outlast a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def whole_file(path: str, scratch: str, sync: bool = True) -> Iterator[BinaryIO]:
    """Opens a file that is there as a whole or not at all, also after a power cut.

    :param scratch: its name while it is written
    :param sync: write its name to disk too. Not where somebody who waits for the file may rename its directory
    """
    try:
        with open(scratch, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(scratch)
        raise
    if sync:
        sync_directory(os.path.dirname(os.path.abspath(path)))


def write_text(path: str, text: str, sync: bool = True) -> None:
    """Writes a text as :func:`whole_file`."""
    with whole_file(path, f"{path}.partial", sync) as file:
        file.write(text.encode(errors="replace"))


@contextlib.contextmanager
def scratch_directory(path: str) -> Iterator[str]:
    """Makes a directory, empty, and removes it at the end with all that is in it. What a process left there that was
    killed is removed.

    :raises FileExistsError: another process has it
    """
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "lock"), "a", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FileExistsError(f"another process is writing to {path}: wait for it") from None
        except OSError:
            pass  # a file system without locks cannot be asked
        try:
            for entry in os.scandir(path):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry)
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)
