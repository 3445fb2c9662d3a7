"""Numbers of bytes: how they are read and written, and that all commands read them alike."""

from __future__ import annotations

from typing import Any

import pytest

from sar import cli
from sar.units import parse_size, size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4GiB", 4 << 30),
        ("4 GiB", 4 << 30),
        ("4gib", 4 << 30),
        ("4Gi", 4 << 30),
        ("4G", 4 << 30),
        ("4GB", 4 * 10**9),
        ("4gb", 4 * 10**9),
        ("1.5MiB", 3 << 19),
        ("500MB", 500 * 10**6),
        ("512k", 512 << 10),
        ("2TiB", 2 << 40),
        ("1TB", 10**12),
        (" 4096 ", 4096),
        ("4096B", 4096),
        (4096, 4096),
    ],
)
def test_sizes_as_people_write_them(text: Any, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "much", "-1GiB", "4GiBB", "4 G i B", "4PiB", "1e9", "GiB", "4,5GiB"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="expected a size such as 4GiB or 512MiB, found"):
        parse_size(text)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 20, "3.0 MiB"), (5 << 41, "10.0 TiB")]
)
def test_sizes_as_they_are_shown(count: int, text: str) -> None:
    assert size(count) == text
    assert count < 1024 or parse_size(text) == count


@pytest.mark.parametrize(
    "words",
    [
        "ingest --edges e.csv --out g",
        "partition g --parts 2 --out p",
        "convert p --to sar --out q",
        "plan --nodes 9 --edges 9 --layers relu",
    ],
)
def test_commands_read_sizes_alike(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    for text, expected in (("2G", 2 << 30), ("2GB", 2 * 10**9), ("2GiB", 2 << 30)):
        assert cli.parser().parse_args([*words.split(), "--memory", text]).memory == expected
    with pytest.raises(SystemExit):
        cli.parser().parse_args([*words.split(), "--memory", "much"])
    assert "argument --memory: expected a size such as 4GiB or 512MiB, found 'much'" in capsys.readouterr().err
