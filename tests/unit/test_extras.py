"""Libraries that are not installed: every command that needs one names it, and the extra that brings it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sar import cli
from sar.extras import MissingLibraryError, need


def test_need() -> None:
    assert need("os.path", "some", "this").join("a", "b") == "a/b"
    with pytest.raises(MissingLibraryError) as caught:
        need("no_such.part", "some", "this")
    assert str(caught.value) == "this needs no_such (No module named 'no_such'): pip install 'sar-gnn[some]'"
    with pytest.raises(MissingLibraryError, match=r"'sar-gnn\[some\]', or walk$"):
        need("no_such", "some", "this", "walk")


@pytest.mark.parametrize(
    ("library", "words", "message"),
    [
        ("duckdb", "ingest --edges {0}/e.csv --out {0}/g", "reading tables needs duckdb"),
        ("yaml", "ingest {0}/schema.yaml --out {0}/g", "reading tables needs yaml"),
        ("pyarrow", "gather {0}/p.parquet -o {0}/all.parquet", "Parquet files needs pyarrow"),
        ("pyarrow", "infer m:f --checkpoint c --data p --out {0}/p.parquet", "Parquet files needs pyarrow"),
        ("torchmetrics", "evaluate m:f --checkpoint c --data p", "sar evaluate needs torchmetrics"),
    ],
)
def test_commands_without_a_library(
    library: str,
    words: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "e.csv").write_text("a,b\n0,1\n")
    (tmp_path / "schema.yaml").write_text("{}")
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)  # an import of it fails
    assert cli.main(words.format(tmp_path).split()) == 1
    said = capsys.readouterr().err
    assert message in said and "pip install 'sar-gnn[" in said
