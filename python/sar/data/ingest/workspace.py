"""The directory beside the result in which it is made: the result appears under its name at the end, or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Union

from sar.data.directory import scratch_directory, sync_directory

from .progress import Stages


class Workspace(NamedTuple):
    """What lies in ``OUT.partial``."""

    out: Path
    graph: Path
    """The result while it is made."""
    tables: Path
    """Files of DuckDB and unpacked arrays; in the directory for temporary files, where there is one."""

    def publish(self) -> None:
        """Gives the result its name."""
        for folder in (self.graph, *sorted(p for p in self.graph.rglob("*") if p.is_dir())):
            sync_directory(folder)
        _check_free(self.out)
        os.rename(self.graph, self.out)
        sync_directory(self.out.parent)


@contextlib.contextmanager
def workspace(
    out: Union[str, os.PathLike[str]], scratch: Union[str, os.PathLike[str], None], stages: Stages
) -> Iterator[Workspace]:
    """Makes ``OUT.partial``, and removes it at the end, also after an error or Ctrl-C. A process that is killed leaves
    it, and the next run removes it and begins anew.

    :param out: where the result will lie; must not exist, or be an empty directory
    :param scratch: directory for DuckDB's files; None for the partial directory itself
    :raises FileExistsError: ``out`` holds something, or another process is making it
    """
    path = Path(os.path.abspath(out))
    _check_free(path)
    partial = path.with_name(path.name + ".partial")
    left = [f.stat().st_size for f in partial.glob("*/**/*") if f.is_file()]
    with contextlib.ExitStack() as stack:
        stack.enter_context(scratch_directory(str(partial)))
        tables = partial
        if scratch is not None:
            own = f"sar-ingest-{path.name}-{partial.stat().st_ino}"
            tables = Path(stack.enter_context(scratch_directory(os.path.join(scratch, own))))
        if left:
            mib = sum(left) / (1 << 20)
            with stages(f"an interrupted run left {mib:.1f} MiB in {partial}: removed, beginning anew"):
                pass
        found = Workspace(path, partial / "graph", tables / "tables")
        found.graph.mkdir()
        found.tables.mkdir()
        yield found


def _check_free(out: Path) -> None:
    if out.is_dir():
        held = sorted(os.listdir(out))
        if held:
            raise FileExistsError(
                f"{out} exists and holds {', '.join(held[:3])}{', …' if len(held) > 3 else ''}: "
                "remove it, or give another directory as --out"
            )
    elif out.exists() or out.is_symlink():
        raise FileExistsError(f"{out} exists and is not a directory: give another directory as --out")
