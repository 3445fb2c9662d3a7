"""What ingest refuses, and what it says: bad rows with file and line, and sources that are not as they should be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sar
from tests.data.graphs import edges_of, ids_of, one_type, write_table


def refused(tmp_path: Path, schema: Any, **options: Any) -> str:
    """The message with which a source is refused; nothing is left behind."""
    with pytest.raises(Exception) as caught:
        sar.ingest(schema, tmp_path / "out", **options)
    assert isinstance(caught.value, (ValueError, OSError, TypeError, sar.BudgetError)), repr(caught.value)
    assert not (tmp_path / "out").exists() and not (tmp_path / "out.partial").exists()
    return str(caught.value).replace(f"{tmp_path}/", "")


NODES = "id,x,y,part\na,1,0,train\nb,2,1,val\nc,3,1,test\n"


def csv(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("z,b,1", "the source z is not among the ids of the nodes"),
        ("a,z,1", "the target z is not among the ids of the nodes"),
        (",b,1", "there is no source"),
        ("a,,1", "there is no target"),
        ("a,b,heavy", "w is not a number: heavy"),
        ("a,b,", "w is missing"),
        ("a,b,nan", "w is not a number: nan"),
        ("a,b", "Expected Number of Columns: 3 Found: 2"),
        ("a,b,1,2", "Expected Number of Columns: 3 Found: 4"),
    ],
)
def test_bad_edges_with_ids(tmp_path: Path, row: str, message: str) -> None:
    nodes = csv(tmp_path / "n.csv", NODES)
    edges = csv(tmp_path / "e.csv", f"s,t,w\na,b,1\nb,c,2\n{row}\nc,a,3\n{row}\n")
    schema = one_type(edges, {"files": nodes, "id": "id"}, source="s", target="t", weight="w")
    assert refused(tmp_path, schema) == (
        f"edges: 2 bad rows:\n  e.csv, line 4: {message}\n  e.csv, line 6: {message}\n"
        "Mend the file, or give --skip-bad-rows to leave such rows out."
    )
    graph = sar.ingest(schema, tmp_path / "out", skip_bad_rows=True)
    s, t = edges_of(graph)
    assert list(zip(s.tolist(), t.tolist())) == [(2, 0), (0, 1), (1, 2)]
    assert graph.map(graph.edge_types[0].features["weight"]).tolist() == [3, 1, 2]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(0, 1), (-1, 2)], "row 2: the source is negative: -1"),
        ([(0, 1), (2, 5)], "row 2: the target 5 is beyond the last of the nodes, 2"),
        ([(0, 1), (2, None)], "row 2: there is no target"),
    ],
)
def test_bad_edges_with_numbers(tmp_path: Path, rows: list[tuple[Any, Any]], message: str) -> None:
    source, target = zip(*rows)
    table = write_table(tmp_path / "e.parquet", source=source, target=target)
    assert f"e.parquet, {message}" in refused(tmp_path, one_type(str(table), {"count": 3}))


def test_bad_edges_alone(tmp_path: Path) -> None:
    """Without a table of nodes."""
    table = write_table(tmp_path / "e.parquet", source=[5, -1, 9], target=[9, 5, None])
    message = refused(tmp_path, one_type(str(table)))
    assert "row 2: the source is negative: -1" in message.replace("not among the ids", "?") or "row 2" in message
    assert "row 3: there is no target" in message
    graph = sar.ingest(one_type(str(table)), tmp_path / "out", skip_bad_rows=True)
    assert ids_of(graph) == [5, 9] and [*map(list, edges_of(graph))] == [[0], [1]]


def test_an_id_that_is_no_integer_among_integers(tmp_path: Path) -> None:
    rows = "\n".join(f"{n},{n + 1}" for n in range(11_000))
    edges = csv(tmp_path / "e.csv", f"s,t\n{rows}\nabc,007\n")
    message = refused(tmp_path, one_type(edges, source="s", target="t"))
    assert "edges: 1 bad row:\n  e.csv, line 11002: the source is not an integer, as others are: abc" in message
    graph = sar.ingest(one_type(edges, {"id_type": "text"}, source="s", target="t"), tmp_path / "out")
    assert ids_of(graph)[-1] == "abc"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (",4,0,train", "there is no id"),
        ("a,4,0,train", "the id a is in 2 rows"),
        ("d,,0,train", "x is missing"),
        ("d,tall,0,train", "x is not a number: tall"),
        ("d,4,nan,train", "the label is NaN; where that means that there is none: --unlabelled nan"),
        ("d,4,-3,train", "the label is negative: -3"),
        ("d,4,0,tomorrow", "the split is not train, val or test: tomorrow"),
        ("d,4", "Expected Number of Columns: 4 Found: 2"),
    ],
)
def test_bad_nodes(tmp_path: Path, row: str, message: str) -> None:
    nodes = csv(tmp_path / "n.csv", NODES + row + "\ne,5,0,\n")
    edges = csv(tmp_path / "e.csv", "s,t\na,b\nb,e\n")
    table = {"files": nodes, "id": "id", "features": "x", "label": "y", "split": "part"}
    schema = one_type(edges, table, source="s", target="t")
    said = refused(tmp_path, schema)
    assert f"n.csv, line 5: {message}" in said and said.startswith(f"nodes: {1} bad row")
    graph = sar.ingest(schema, tmp_path / "out", skip_bad_rows=True)
    assert ids_of(graph) == ["a", "b", "c", "e"]
    assert graph.map(graph.node_types["_N"].features["features"]).tolist() == [[1], [2], [3], [5]]


def test_ten_are_shown_and_all_are_counted(tmp_path: Path) -> None:
    for part in range(3):
        csv(tmp_path / f"e{part}.csv", "s,t\n" + "0,1\n" * part + "0,9\n" * 7)
    said = refused(tmp_path, one_type(str(tmp_path / "e*.csv"), {"count": 2}, source="s", target="t"))
    lines = said.splitlines()
    assert lines[0] == "edges: 21 bad rows:" and len(lines) == 13 and lines[11] == "  … and 11 more"
    assert lines[1] == "  e0.csv, line 2: the target 9 is beyond the last of the nodes, 1"
    assert lines[8] == "  e1.csv, line 3: the target 9 is beyond the last of the nodes, 1"


def test_lines_after_torn_ones(tmp_path: Path) -> None:
    edges = csv(tmp_path / "e.csv", "s,t\n0,1\n5\n0,1\n7\n0,9\n")
    said = refused(tmp_path, one_type(edges, {"count": 2}, source="s", target="t"))
    assert [line.split(":")[0] for line in said.splitlines()[1:4]] == [f"  e.csv, line {n}" for n in (3, 5, 6)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "e.csv: the file is empty"),
        ("0,1\n1,0\n", "the first line, '0,1', has numbers in place of names of columns: give --no-header"),
        ("a,a\n1,0\n", "two columns have one name"),
        ("a,b,c\nx,y,z\n", "which column is the source of an edge? Give source; e.csv has a, b, c"),
    ],
)
def test_bad_csv(tmp_path: Path, content: str, message: str) -> None:
    assert message in refused(tmp_path, one_type(csv(tmp_path / "e.csv", content)))


def test_bad_files(tmp_path: Path) -> None:
    def said(files: Any, **more: Any) -> str:
        return refused(tmp_path, one_type(files, **more))

    assert said(str(tmp_path / "no*.csv")) == "there is no file no*.csv"
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and nothing else")
    assert "broken.parquet" in said(str(tmp_path / "broken.parquet"))
    (tmp_path / "graph.docx").write_text("x")
    assert "expected a name that ends in .parquet, .csv" in said(str(tmp_path / "graph.docx"))
    (tmp_path / "latin.csv").write_bytes("s,é\n".encode("latin-1"))
    assert "latin.csv: expected text in UTF-8" in said(str(tmp_path / "latin.csv"))
    (tmp_path / "plain.csv.gz").write_text("s,t\n")
    assert "plain.csv.gz: expected text in UTF-8" in said(str(tmp_path / "plain.csv.gz"))
    first = csv(tmp_path / "a.csv", "s,t\nx,y\n")
    second = csv(tmp_path / "b.csv", "s,u\nx,y\n")
    assert "b.csv: expected the columns ['s', 't'] of a.csv, found ['s', 'u']" in said([first, second])
    parquet = str(write_table(tmp_path / "e.parquet", s=[1.5], t=[2.0]))
    assert "Parquet and text files cannot be parts of one table" in said([first, parquet])
    assert "column 's' holds DOUBLE; ids are integers or text" in said(parquet)
    np.save(tmp_path / "three.npy", np.zeros((3, 3), int))
    assert "expected edges as integers [2, edges] or [edges, 2], found int64 [3, 3]" in said(
        str(tmp_path / "three.npy")
    )
    np.save(tmp_path / "objects.npy", np.array([{}, {}]))
    assert "objects.npy: not an array in numpy's format" in said(str(tmp_path / "objects.npy"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("edges: [", "schema.yaml is not YAML"),
        ("- 1", "expected a mapping with the keys nodes and edges, found list"),
        ("nodes: {_N: {}}", "schema.yaml: there are no edges"),
        ("egdes: {}", "schema.yaml: unknown key 'egdes'; known are edges, name, nodes. Did you mean edges?"),
        ("edges: {a-b: {files: e.csv}}", "edges: a-b: expected a name source:relation:destination"),
        ("edges: {'a:r:b': {}}", "edges: a:r:b: files are missing"),
        (
            "edges: {'a:r:b': {files: e.csv, symmetrize: true}}",
            "symmetrize and self_loops are for edges between nodes of",
        ),
        ("edges: {'a:r:a': {files: e.csv, deduplicate: often}}", "deduplicate is true or false, not 'often'"),
        ("nodes: {b: {}}\nedges: {'a:r:b': {files: e.csv}}", "there is no node type 'a', but b"),
        ("edges: {'a:r:a': {files: e.csv, weight: h}}", "weight: e.csv has no column 'h', but s, t, word"),
        ("edges: {'a:r:a': {files: e.csv, columns: 'x*'}}", "columns: e.csv has no column 'x*', but s, t, word"),
        ("edges: {'a:r:a': {files: e.csv, columns: word}}", "a:r:a: 2 bad rows"),
        ("nodes: {a: {files: e.csv, id: s, featuers: t}}\nedges: {'a:r:a': {files: e.csv}}", "Did you mean features?"),
        ("nodes: {a: {id: s}}\nedges: {'a:r:a': {files: e.csv}}", "nodes: a: id: needs files that have the columns"),
        ("nodes: {a: {files: e.csv, count: 9}}\nedges: {'a:r:a': {files: e.csv}}", "e.csv has 2 rows, but there are 9"),
        ("nodes: {a: {features: x.npy}}\nedges: {'a:r:a': {files: e.csv}}", "there is no file x.npy"),
    ],
)
def test_bad_schemas(tmp_path: Path, text: str, message: str) -> None:
    csv(tmp_path / "e.csv", "s,t,word\n0,1,x\n1,0,y\n")
    text = text.replace("files: e.csv", "files: e.csv, source: s, target: t") if "'a:r" in text else text
    text = text.replace("{files: e.csv, source: s, target: t, id", "{files: e.csv, id")
    text = text.replace("{files: e.csv, source: s, target: t, count", "{files: e.csv, count")
    (tmp_path / "schema.yaml").write_text(text)
    assert message in refused(tmp_path, tmp_path / "schema.yaml")


def test_bad_sources(tmp_path: Path) -> None:
    assert refused(tmp_path, tmp_path / "no.npz") == "there is no file no.npz"
    assert "expected a schema (.yaml), a graph in an .npz file, or a directory" in refused(tmp_path, tmp_path)
    (tmp_path / "g.npz").write_text("no zip")
    assert "g.npz: not a whole .npz file" in refused(tmp_path, tmp_path / "g.npz")
    np.savez(tmp_path / "g.npz", x=np.zeros((3, 2)))
    assert "g.npz: expected an array 'edge_index'" in refused(tmp_path, tmp_path / "g.npz")
    np.savez(tmp_path / "g.npz", edge_index=np.array([[0, 1], [1, 7]]), x=np.zeros((3, 2)))
    assert "row 2: the target 7 is beyond the last of the nodes, 2" in refused(tmp_path, tmp_path / "g.npz")
    np.savez(tmp_path / "g.npz", edge_index=np.zeros((2, 5), int), x=np.zeros((3, 2)), z=np.zeros(4))
    assert "z has the shape [4]; there are 3 nodes" in refused(tmp_path, tmp_path / "g.npz")
    (tmp_path / "metadata.json").write_text("{}")
    assert "expected the description of a chunked graph of DGL" in refused(tmp_path, tmp_path / "metadata.json")
    assert "cannot make a graph of int: expected a path" in refused(tmp_path, 5)


def test_bad_options(tmp_path: Path) -> None:
    edges = one_type(csv(tmp_path / "e.csv", "s,t\n0,1\n"), source="s", target="t")
    assert "expected a size such as 4GiB or 512MiB, found 'much'" in refused(tmp_path, edges, memory="much")
    assert "ingest needs 384 MiB, got 10 MiB" in refused(tmp_path, edges, memory="10MiB")


def test_an_existing_directory_is_not_overwritten(tmp_path: Path) -> None:
    edges = one_type(csv(tmp_path / "e.csv", "s,t\n0,1\n"), source="s", target="t")
    out = tmp_path / "out"
    out.mkdir()
    sar.ingest(edges, out)
    before = (out / "graph.json").read_bytes()
    held = "checksums.crc, edges, graph.json"
    with pytest.raises(FileExistsError, match=f"exists and holds {held}: remove it, or give another"):
        sar.ingest(edges, out)
    assert (out / "graph.json").read_bytes() == before and not (tmp_path / "out.partial").exists()
    with pytest.raises(FileExistsError, match="exists and is not a directory"):
        sar.ingest(edges, tmp_path / "e.csv")
