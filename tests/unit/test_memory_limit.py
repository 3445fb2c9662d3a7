"""Under which control group one with a memory limit is made (``bench/memory_limit.py``): both versions, containers."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from bench import memory_limit

V1 = "31 23 0:28 {} {}/memory rw,relatime - cgroup cgroup rw,memory"
V2 = "32 23 0:29 {} {}/unified rw,relatime shared:4 - cgroup2 cgroup2 rw"
OTHERS = "23 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n33 23 0:30 / /cpu rw - cgroup cgroup rw,cpu"


def parent(folder: Path, mounts: list[tuple[str, str]], groups: str, gives_memory: str = "") -> memory_limit.Group:
    """The group that is found. ``mounts``: lines of ``mountinfo``, and the groups that are mounted. ``gives_memory``:
    the directory of version 2 whose children have the memory controller."""
    for name in ("", "a", "a/b", "a/b/c"):
        (folder / "unified" / name).mkdir()
        given = "cpu memory" if name == gives_memory else "cpu"
        (folder / "unified" / name / "cgroup.subtree_control").write_text(given + "\n")
    lines = [OTHERS, *(line.format(root, folder) for line, root in mounts)]
    (folder / "mountinfo").write_text("\n".join(lines) + "\n")
    (folder / "cgroup").write_text(groups + "\n")
    return memory_limit._parent(str(folder))


@pytest.mark.parametrize(
    ("root", "path", "expected"),
    [
        ("/", "/", "memory"),
        ("/", "/a/b", "memory/a/b"),
        ("/docker/1", "/docker/1", "memory"),  # a container that sees the paths of its host
        ("/docker/1", "/docker/1/a", "memory/a"),
        ("/../..", "/", "memory"),
    ],
)
def test_version_1(tmp_path: Path, root: str, path: str, expected: str) -> None:
    """Its own group, whatever version 2 has beside it."""
    found = parent(tmp_path, [(V2, "/"), (V1, root)], f"9:name=systemd:/\n4:cpu,memory:{path}\n0::/a", "a")
    assert (found.folder, found.limit) == (str(tmp_path / expected), "memory.limit_in_bytes")


@pytest.mark.parametrize(
    ("root", "path", "gives_memory", "expected"),
    [
        ("/", "/", "", "unified"),
        ("/", "/a/b/c", "a/b/c", "unified/a/b/c"),
        ("/", "/a/b/c", "a", "unified/a"),
        ("/", "/a/b/c", "", "unified"),
        ("/docker/1", "/docker/1/a/b", "a", "unified/a"),
    ],
)
def test_version_2(tmp_path: Path, root: str, path: str, gives_memory: str, expected: str) -> None:
    """The nearest group that gives its children the controller: a group with processes gives them none."""
    found = parent(tmp_path, [(V2, root)], f"0::{path}", gives_memory)
    assert (found.folder, found.limit) == (str(tmp_path / expected), "memory.max")


def test_no_controller(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="gives its children the memory controller") as raised:
        parent(tmp_path, [(V2, "/")], "0::/a/b", "none")
    assert raised.value.errno == errno.ENOTSUP


def test_nothing_is_mounted(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no memory controller is mounted"):
        parent(tmp_path, [], "0::/")
