"""OGB's raw folders of node property prediction: ``raw/`` in csv.gz or .npz, ``split/`` and ``mapping/`` beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Optional, Union

import numpy as np

from .array_graphs import edges_of, nodes_of
from .arrays import Rows, memory_rows, unpack_npz
from .engine import Engine
from .schema import NODE, ONE, Edges, Graph, Nodes, Triple, add_beside
from .tables import FileTable, side_by_side

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
    binary = any((raw / name).is_file() for name in ("data.npz", "edge_index_dict.npz"))
    graph = _binary(raw, engine, scratch) if binary else _text(raw, engine)
    several = len(graph.nodes) > 1
    for name, nodes in graph.nodes.items():
        nodes.arrays.update(_masks(top / "split", name if several else None, nodes.count or 0, engine))
        listed = sorted((top / "mapping").glob(f"{name}_entidx2*.csv.gz" if several else "nodeidx2*.csv.gz"))
        if len(listed) == 1:
            table = FileTable(engine, [str(listed[0])])
            number, key = list(table.columns)[:2]
            nodes.known_ids = (table, number, key)
    return graph


def _text(raw: Path, engine: Engine) -> Graph:
    """A graph in csv.gz."""
    several = not (raw / "edge.csv.gz").is_file()
    counts = FileTable(engine, [str(raw / f"num-node-{'dict' if several else 'list'}.csv.gz")], header=several)
    rows = engine.rows(f"SELECT * FROM {counts.sql()}")
    _expect_one(raw, len(rows))
    graph = Graph("", {}, [])
    for name, count in zip(counts.columns if several else [NODE], rows[0]):
        graph.nodes[name] = Nodes(name, count=int(count))
        folders = [raw / "node-feat" / name, raw / "node-label" / name] if several else [raw]
        _add_features(graph.nodes[name], "node", folders, engine)
    triples: list[Triple] = [ONE]
    if several:
        listed = FileTable(engine, [str(raw / "triplet-type-list.csv.gz")], header=False)
        triples = [(a, b, c) for a, b, c in sorted(engine.rows(f"SELECT * FROM {listed.sql()}"))]
    for triple in triples:
        folder = raw / "relations" / "___".join(triple) if several else raw
        pairs = FileTable(engine, [str(folder / "edge.csv.gz")], header=False)
        ends = list(pairs.columns)
        graph.edges.append(Edges(triple, pairs, ends[0], ends[1]))
        _add_features(graph.edges[-1], "edge", [folder], engine)
    return graph


def _add_features(owner: Union[Nodes, Edges], kind: str, folders: list[Path], engine: Engine) -> None:
    for path in sorted(p for folder in folders for p in folder.glob(f"{kind}[-_]*.csv.gz")):
        stem = path.name[: -len(".csv.gz")].replace("-", "_")
        table = FileTable(engine, [str(path)], header=False)
        if stem == "node_label" and isinstance(owner, Nodes):
            owner.table, owner.label = side_by_side(owner.table, table, f"{stem}.")
            owner.unlabelled = "nan"
        else:
            add_beside(owner, _NAMES.get(stem, stem), table, stem.endswith("_feat"))


def _expect_one(path: Path, count: int) -> None:
    if count != 1:
        raise ValueError(f"{path} holds {count} graphs; one is expected")


def _binary(raw: Path, engine: Engine, scratch: Path) -> Graph:
    """A graph in npz files: arrays by name and type."""
    path = raw / "node-label.npz"
    labels = unpack_npz(path, scratch / "labels") if path.is_file() else {}
    if (raw / "data.npz").is_file():
        owners = {"node": NODE, "num": NODE, "edge": "___".join(ONE)}
        given = unpack_npz(raw / "data.npz", scratch / "data")
        known = {key: owners.get(key.partition("_")[0]) for key in given}
        read = {key.replace("_list", ""): {owner: given[key]} for key, owner in known.items() if owner}
        labels = {NODE: labels["node_label"]} if "node_label" in labels else {}
    else:
        files = {path.name[: -len("_dict.npz")]: path for path in raw.glob("*_dict.npz")}
        read = {key: unpack_npz(path, scratch / path.stem) for key, path in files.items()}
    read["node_label"] = {**read.get("node_label", {}), **labels}
    graph = Graph("", {}, [])
    for name, rows in sorted(read["num_nodes"].items()):
        counts = rows.whole().reshape(-1)
        _expect_one(raw, len(counts))
        own = {_NAMES.get(k, k): of[name] for k, of in read.items() if k.startswith("node_") and name in of}
        if "labels" in own:
            own["labels"] = _class_labels(own["labels"])
        graph.nodes[name] = nodes_of(name, int(counts[0]), own)
    for key, pairs in sorted(read.pop("edge_index").items()):
        source, relation, target = key.split("___")
        own = {_NAMES.get(k, k): of[key] for k, of in read.items() if k.startswith("edge_") and key in of}
        graph.edges.append(edges_of((source, relation, target), pairs, own, engine))
    return graph


def _class_labels(rows: Rows) -> Rows:
    """Labels as int64 ``[nodes]``, -1 where they are NaN. Several tasks, and numbers that are no classes, stay."""
    if len(rows.shape) == 2 and rows.shape[1] == 1:
        rows = rows.view(lambda a: a[:, 0])
    if len(rows.shape) > 1:
        return rows
    whole = rows.dtype.kind in "iu" or all((np.isnan(b) | (b == np.floor(b))).all() for b in rows.blocks())
    if not whole:
        return rows
    return Rows(rows.name, *rows.pieces, convert=lambda b: np.where(np.isnan(b), -1, b).astype(np.int64))


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
