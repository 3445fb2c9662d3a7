"""The directory beside the result in which it is made: the result appears under its name at the end, or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import Optional, Union

_LOCK = "ingest.lock"


class Workspace:
    """A directory ``OUT.partial`` that holds what is being made, and what DuckDB keeps on disk meanwhile. Use it in a
    ``with`` statement; at its end the directory is removed, also after an error or Ctrl-C. A process that is killed
    leaves it, and the next run removes it and begins anew.

    :param out: where the result will lie; must not exist, or be an empty directory
    :param scratch: directory for DuckDB's files; None for the partial directory itself
    :raises FileExistsError: ``out`` holds something, or another process is making it
    """

    def __init__(self, out: Union[str, os.PathLike[str]], scratch: Union[str, os.PathLike[str], None] = None) -> None:
        self.out = Path(os.path.abspath(out))
        self._check_out()
        self.partial = self.out.with_name(self.out.name + ".partial")
        self.graph = self.partial / "graph"
        self._scratch = Path(scratch) if scratch is not None else None
        self._lock: Optional[int] = None
        self.left_over = ""  # what an interrupted run left, in words

    def _check_out(self) -> None:
        if self.out.is_dir():
            held = sorted(os.listdir(self.out))
            if held:
                raise FileExistsError(
                    f"{self.out} exists and holds {', '.join(held[:3])}{', …' if len(held) > 3 else ''}: "
                    "remove it, or give another directory as --out"
                )
        elif self.out.exists() or self.out.is_symlink():
            raise FileExistsError(f"{self.out} exists and is not a directory: give another directory as --out")

    def __enter__(self) -> Workspace:
        self.partial.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.partial / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise FileExistsError(f"another process is making {self.out} in {self.partial}: wait for it") from None
        self._remove_left_over()
        self.tables.mkdir(parents=True, exist_ok=True)
        self.graph.mkdir()
        return self

    def __exit__(self, *unused: object) -> None:
        shutil.rmtree(self.tables, ignore_errors=True)
        shutil.rmtree(self.partial, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)

    @property
    def tables(self) -> Path:
        """The folder of DuckDB's files and of unpacked arrays."""
        if self._scratch is None:
            return self.partial / "tables"
        return self._scratch / f"sar-ingest-{self.out.name}-{self.partial.stat().st_ino}"

    def _remove_left_over(self) -> None:
        found = [path for path in self.partial.iterdir() if path.name != _LOCK]
        if self._scratch is not None and self.tables.exists():
            found.append(self.tables)
        if not found:
            return
        size = sum(f.stat().st_size for path in found for f in path.rglob("*") if f.is_file())
        mib = size / (1 << 20)
        self.left_over = f"an interrupted run left {mib:.1f} MiB in {self.partial}: removed, beginning anew"
        for path in found:
            shutil.rmtree(path)

    def publish(self) -> None:
        """Gives the result its name."""
        for folder in (self.graph, *sorted(p for p in self.graph.rglob("*") if p.is_dir())):
            _sync(folder)
        self._check_out()
        os.rename(self.graph, self.out)
        _sync(self.out.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
