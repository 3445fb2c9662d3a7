"""The two kinds of files that rows are written to, for those who write and those who join them. Needs no torch."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
from typing import Any, Callable, Iterator, List

from sar.distributed.network import awaited
from sar.extras import need
from sar.units import size

PART = re.compile(r"part-(\d{5,})-of-(\d{5,})\.parquet")
SHARED_SECONDS = 10.0
"""How long a worker waits until what rank 0 has made appears on its own host."""
RUN, PLACE, TOTAL = b"sar.run", b"sar.part", b"sar.rows"
"""Keys of a Parquet file's metadata: what files of one call have in common, "2 of 4", rows of all files together."""


def arrow() -> Any:
    """pyarrow, with its Parquet half.

    :raises ImportError: it is not installed
    """
    need("pyarrow.parquet", "results", "writing and reading Parquet files")
    return need("pyarrow", "results", "writing and reading Parquet files")


def name_of(rank: int, world: int) -> str:
    return f"part-{rank:05d}-of-{world:05d}.parquet"


def parts_in(path: str) -> List[str]:
    """Names of the files of workers in a directory, in order."""
    return sorted(name for name in os.listdir(path) if PART.fullmatch(name))


def want_room(directory: str, needed: int) -> None:
    """Fails, before anything is written, where a disk has less than ``needed`` bytes left.

    :raises OSError: which directory, what it needs, and what is free
    """
    disk = os.statvfs(directory)
    if disk.f_blocks and disk.f_bavail * disk.f_frsize < needed:  # some filesystems do not say
        raise _full(errno.ENOSPC, directory, needed)


@contextlib.contextmanager
def names_full_disk(path: str, needed: int) -> Iterator[None]:
    """Has the error of a disk that gets full say the same, of the directory that ``path`` lies in."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise _full(error.errno, os.path.dirname(os.path.abspath(path)), needed) from None


def _full(code: int, directory: str, needed: int) -> OSError:
    disk, limit = os.statvfs(directory), resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    free = f"{size(disk.f_bavail * disk.f_frsize)} are free"
    if code == errno.EFBIG and limit != resource.RLIM_INFINITY:
        free = f"a file may have {size(limit)} (ulimit -f)"
    return OSError(code, f"{os.strerror(code)}: {size(needed)} are needed, {free}", directory)


def await_shared(path: str, there: Callable[[], bool], hint: str) -> None:
    """Waits for what rank 0 has made on a filesystem that all hosts share.

    :raises FileNotFoundError: it does not come
    """
    if not awaited(SHARED_SECONDS, there):
        raise FileNotFoundError(f"{path}, which rank 0 has made, is not seen here: {hint}")
