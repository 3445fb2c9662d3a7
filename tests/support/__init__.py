"""What tests of several kinds share. Streams begin with it imported: PYTEST_DONT_REWRITE."""

import difflib
import itertools
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The folder of the repository."""


def same_text(found: str, expected: str, mend: str) -> None:
    """That two long texts are the same; else the first lines that differ, and what writes them anew. pytest would
    explain how they differ, for minutes."""
    if found != expected:
        lines = difflib.unified_diff(found.splitlines(), expected.splitlines(), "found", "expected", lineterm="", n=0)
        raise AssertionError("\n".join([mend, *itertools.islice(lines, 20)]))
