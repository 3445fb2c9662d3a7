"""OGB's raw folders of node property prediction: ``raw/`` in csv.gz or .npz, ``split/`` and ``mapping/`` beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import numpy as np

from .array_graphs import Triple, edges_beside
from .arrays import ConvertedRows, Rows, memory_rows, unpack_npz
from .engine import Engine
from .schema import EDGE, NODE, Edges, Graph, Nodes
from .tables import FileTable, SideBySide, pair_table

_NAMES = {"node_feat": "features", "edge_feat": "features", "node_label": "labels"}
_SPLITS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}


def raw_folder(path: Path) -> Optional[Path]:
    """The folder of OGB's raw files in a directory, or None."""
    for folder in (path / "raw", path):
        names = ("edge.csv.gz", "data.npz", "triplet-type-list.csv.gz", "edge_index_dict.npz")
        if any((folder / name).is_file() for name in names):
            return folder
    return None


def from_ogb(raw: Path, engine: Engine, scratch: Path) -> Graph:
    """A graph out of OGB's raw files.

    :raises ValueError: they hold several graphs, as those of graph property prediction do
    """
    top = raw.parent if raw.name == "raw" else raw
    if (raw / "data.npz").is_file():
        graph = _binary(raw, engine, scratch)
    elif (raw / "edge_index_dict.npz").is_file():
        graph = _binary_of_types(raw, engine, scratch)
    elif (raw / "edge.csv.gz").is_file():
        graph = _text(raw, engine)
    else:
        graph = _text_of_types(raw, engine)
    several = len(graph.nodes) > 1
    for name, nodes in graph.nodes.items():
        nodes.arrays.update(_masks(top / "split", name if several else None, nodes.count or 0, engine))
        listed = sorted((top / "mapping").glob(f"{name}_entidx2*.csv.gz" if several else "nodeidx2*.csv.gz"))
        if len(listed) == 1:
            table = FileTable(engine, [str(listed[0])])
            number, key = list(table.columns)[:2]
            nodes.known_ids = (table, number, key)
    return graph


# ---- csv.gz ------------------------------------------------------------------


def _text(raw: Path, engine: Engine) -> Graph:
    count = _numbers(raw / "num-node-list.csv.gz", engine)
    if len(count) != 1:
        raise ValueError(f"{raw} holds {len(count)} graphs; one is expected")
    nodes = _text_nodes(NODE, count[0], [raw], raw, engine)
    return Graph("", {NODE: nodes}, [_text_edges((NODE, EDGE, NODE), raw, engine)])


def _text_of_types(raw: Path, engine: Engine) -> Graph:
    counts = FileTable(engine, [str(raw / "num-node-dict.csv.gz")])
    rows = engine.rows(f"SELECT * FROM {counts.sql()}")
    if len(rows) != 1:
        raise ValueError(f"{raw} holds {len(rows)} graphs; one is expected")
    graph = Graph("", {}, [])
    for name, count in zip(counts.columns, rows[0]):
        folders = [raw / "node-feat" / name, raw / "node-label" / name]
        graph.nodes[name] = _text_nodes(name, int(count), folders, raw, engine)
    listed = FileTable(engine, [str(raw / "triplet-type-list.csv.gz")], header=False)
    for triple in sorted(engine.rows(f"SELECT * FROM {listed.sql()}")):
        folder = raw / "relations" / "___".join(triple)
        graph.edges.append(_text_edges((triple[0], triple[1], triple[2]), folder, engine))
    return graph


def _text_nodes(name: str, count: int, folders: list[Path], raw: Path, engine: Engine) -> Nodes:
    nodes = Nodes(name, count=count)
    for path in sorted(p for folder in folders for p in folder.glob("node[-_]*.csv.gz")):
        stem = path.name[: -len(".csv.gz")].replace("-", "_")
        table = FileTable(engine, [str(path)], header=False, prefix=f"{stem}.")
        nodes.table = table if nodes.table is None else SideBySide(engine, nodes.table, table)
        columns = list(table.columns)
        if stem == "node_label":
            nodes.label, nodes.unlabelled = columns, "nan"
        elif len(columns) == 1 and stem != "node_feat":
            nodes.columns[stem] = columns[0]
        else:
            nodes.matrices[_NAMES.get(stem, stem)] = columns
    return nodes


def _text_edges(triple: Triple, folder: Path, engine: Engine) -> Edges:
    pairs = FileTable(engine, [str(folder / "edge.csv.gz")], header=False)
    source, target = list(pairs.columns)[:2]
    edges = Edges(triple, pairs, source, target)
    for path in sorted(folder.glob("edge[-_]*.csv.gz")):
        stem = path.name[: -len(".csv.gz")].replace("-", "_")
        table = FileTable(engine, [str(path)], header=False, prefix=f"{stem}.")
        edges.table = SideBySide(engine, edges.table, table)
        columns = list(table.columns)
        if len(columns) == 1 and stem != "edge_feat":
            edges.columns[stem] = columns[0]
        else:
            edges.matrices[_NAMES.get(stem, stem)] = columns
    return edges


def _numbers(path: Path, engine: Engine) -> list[int]:
    table = FileTable(engine, [str(path)], header=False)
    return [int(row[0]) for row in engine.rows(f"SELECT * FROM {table.sql()}")]


# ---- npz ---------------------------------------------------------------------


def _binary(raw: Path, engine: Engine, scratch: Path) -> Graph:
    arrays = unpack_npz(raw / "data.npz", scratch / "data")
    counts = arrays["num_nodes_list"].whole().reshape(-1)
    if len(counts) != 1:
        raise ValueError(f"{raw / 'data.npz'} holds {len(counts)} graphs; one is expected")
    of_nodes = {key: rows for key, rows in arrays.items() if key.startswith("node_")}
    of_edges = {key: rows for key, rows in arrays.items() if key.startswith("edge_") and key != "edge_index"}
    labels = _binary_labels(raw, scratch)
    of_nodes.update({key: rows for key, rows in labels.items() if key == "node_label"})
    nodes = _array_nodes(NODE, int(counts[0]), of_nodes)
    return Graph("", {NODE: nodes}, [_array_edges((NODE, EDGE, NODE), arrays["edge_index"], of_edges, engine)])


def _binary_of_types(raw: Path, engine: Engine, scratch: Path) -> Graph:
    read = {path.name[: -len("_dict.npz")]: unpack_npz(path, scratch / path.stem) for path in raw.glob("*_dict.npz")}
    labels = _binary_labels(raw, scratch)
    graph = Graph("", {}, [])
    for name, count in sorted(read["num_nodes"].items()):
        own = {key: arrays[name] for key, arrays in read.items() if key.startswith("node_") and name in arrays}
        if name in labels:
            own["node_label"] = labels[name]
        graph.nodes[name] = _array_nodes(name, int(count.whole().reshape(-1)[0]), own)
    for key, pairs in sorted(read["edge_index"].items()):
        source, relation, target = key.split("___")
        own = {
            k: arrays[key]
            for k, arrays in read.items()
            if k.startswith("edge_") and k != "edge_index" and key in arrays
        }
        graph.edges.append(_array_edges((source, relation, target), pairs, own, engine))
    return graph


def _binary_labels(raw: Path, scratch: Path) -> dict[str, Rows]:
    path = raw / "node-label.npz"
    return unpack_npz(path, scratch / "labels") if path.is_file() else {}


def _array_nodes(name: str, count: int, arrays: dict[str, Rows]) -> Nodes:
    made = {_NAMES.get(key, key): rows for key, rows in arrays.items()}
    if "labels" in made:
        made["labels"] = _class_labels(made["labels"])
    return Nodes(name, count=count, arrays=made)


def _class_labels(rows: Rows) -> Rows:
    """Labels as int64 ``[nodes]``, -1 where they are NaN. Several tasks, and numbers that are no classes, stay."""
    if len(rows.shape) == 2 and rows.shape[1] == 1:
        rows = rows.view(lambda a: a[:, 0])
    if len(rows.shape) > 1:
        return rows
    whole = rows.dtype.kind in "iu" or all((np.isnan(b) | (b == np.floor(b))).all() for b in rows.blocks())
    return ConvertedRows(rows, lambda b: np.where(np.isnan(b), -1, b).astype(np.int64)) if whole else rows


def _array_edges(triple: Triple, pairs: Rows, arrays: dict[str, Rows], engine: Engine) -> Edges:
    columns = {f"feature {_NAMES.get(key, key)}": rows for key, rows in arrays.items()}
    table = pair_table(engine, pairs.name, pairs, columns)
    return edges_beside(triple, table, [_NAMES.get(key, key) for key in arrays])


# ---- splits ------------------------------------------------------------------


def _masks(split: Path, node_type: Optional[str], count: int, engine: Engine) -> dict[str, Rows]:
    """Masks of the one split that there is, from lists of node numbers."""
    schemes = sorted(p for p in split.iterdir() if p.is_dir()) if split.is_dir() else []
    if len(schemes) > 1:
        raise ValueError(f"{split} has several splits, {', '.join(p.name for p in schemes)}: leave one of them")
    found: dict[str, Rows] = {}
    for name, mask in _SPLITS.items() if schemes else ():
        path = schemes[0] / (node_type or "") / f"{name}.csv.gz"
        if not path.is_file():
            continue
        table = FileTable(engine, [str(path)], header=False)
        chosen = np.zeros(count, np.uint8)
        sql = f"SELECT CAST(column0 AS BIGINT) AS n FROM {table.sql()}"
        for batch in engine.batches(sql, 1 << 20):
            numbers = batch.column("n").to_numpy()
            if len(numbers) and not 0 <= numbers.min() <= numbers.max() < count:
                raise ValueError(f"{path}: expected numbers of nodes from 0 to {count - 1}, found {numbers.max()}")
            chosen[numbers] = 1
        found[mask] = memory_rows(str(path), chosen)
    return found
