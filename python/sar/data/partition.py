"""One worker's partition: the files on disk, and the record that scripts hold."""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

import torch
from torch import Tensor

from sar._engine import abi, mappings
from sar._engine.log import log_once
from sar._engine.native import Native
from sar.config import Config

from .directory import id_files
from .partition_book import CanonicalEtype, RangePartitionBook
from .records import ShardEdgesAndFeatures

TYPE_KEY = "_TYPE"
"""Feature name of the type number of each row: what DGL calls ``dgl.NTYPE`` and ``dgl.ETYPE``."""


class Reader(NamedTuple):
    """A feature that is still in its file."""

    shape: List[int]
    dtype: torch.dtype
    read: Callable[[], Tensor]


class StoredPartition(Native):
    """An opened partition directory. Features and edges are read when asked for.

    :param json_path: the partitioning's JSON file
    :param part: which partition
    :raises sar.FormatError: a file is damaged, with the offset
    :raises OSError: a file is missing
    """

    def __init__(self, json_path: str, part: int) -> None:
        self.json_path = json_path
        self.handle = abi.partition_open(json_path, part)
        self._release = self._own(abi.partition_close, self.handle)
        info = abi.partition_info(self.handle)
        self.graph_name: str = info["graph_name"]
        self.num_parts: int = info["num_parts"]
        self.part: int = info["part"]
        self.node_types: List[str] = list(info["node_types"])
        self.edge_types: List[CanonicalEtype] = [(t[0], t[1], t[2]) for t in info["edge_types"]]
        self.node_ranges: Dict[str, List[List[int]]] = {t: info["node_ranges"][t] for t in self.node_types}
        self.edge_ranges = {t: info["edge_ranges"][":".join(t)] for t in self.edge_types}
        self._info = info
        self._node_features: List[Dict[str, Any]] = info["node_features"] or []
        self._edge_features: List[Dict[str, Any]] = info["edge_features"] or []

    def close(self) -> None:
        """Frees the files; harmless when called twice."""
        self._release()

    def part_ranges(self) -> List[Tuple[int, int]]:
        """The homogenized node ids of each partition, over all types."""
        runs = list(self.node_ranges.values())
        return [(min(r[p][0] for r in runs), max(r[p][1] for r in runs)) for p in range(self.num_parts)]

    def node_features(self, device: torch.device) -> Dict[str, Tensor]:
        """All node features, mapped where ``Config.features`` asks for it, and ``_TYPE``: type number of each own node
        (int32)."""
        mapped = self._mapped()
        features = {f["name"]: self._node_feature(f, mapped).to(device) for f in self._node_features}
        runs = sorted(
            (ranges[self.part][0], kind, ranges[self.part][1] - ranges[self.part][0])
            for kind, ranges in enumerate(self.node_ranges.values())
        )
        kinds = torch.tensor([kind for _, kind, _ in runs], dtype=torch.int32)
        features[TYPE_KEY] = torch.repeat_interleave(kinds, torch.tensor([n for _, _, n in runs])).to(device)
        return features

    def readers(self, edge: bool = False) -> Dict[str, Reader]:
        """By name of a node feature, or of an edge feature, what opens the files again and reads it."""
        listed = self._edge_features if edge else self._node_features
        read = partial(partial, _read_again, self.json_path, self.part, edge)
        return {f["name"]: Reader(f["shape"], _dtype(f, self.json_path), read(f)) for f in listed}

    def node_keys(self) -> Dict[str, Callable[[], Tensor]]:
        """By node type, what reads the original ids of own nodes, where they have them."""
        found = self.readers()
        return {t: found[f"{t}/orig_id"].read for t in self.node_types if f"{t}/orig_id" in found}

    def node_id_files(self) -> Dict[str, str]:
        """By node type, the Parquet file with the users' ids of own nodes, in their order, where there is one."""
        return id_files(self.json_path, self.part, self._info)

    def edge_features(self, device: torch.device) -> Dict[str, Tensor]:
        """All edge features, by relation in ascending edge id."""
        return {f["name"]: self._read(True, f).to(device) for f in self._edge_features}

    def edges(self, relation: int) -> Tuple[Tensor, Tensor, Tensor]:
        """Sources, destinations and ids (homogenized, int64) of the in-edges of own nodes, in ascending id."""
        n = abi.partition_count_edges(self.handle, relation)
        src, dst, ids = (torch.empty(n, dtype=torch.int64) for _ in range(3))
        abi.partition_edges(self.handle, relation, src, dst, ids)
        return src, dst, ids

    def _mapped(self) -> bool:
        if Config.features not in ("memory", "mapped"):
            raise ValueError(f"sar.Config.features is {Config.features!r}: set it to 'memory' or 'mapped'")
        return Config.features == "mapped"

    def _node_feature(self, feature: Dict[str, Any], mapped: bool) -> Tensor:
        if mapped and len(feature["shape"]) > 1:  # vectors, such as labels and masks, are small
            shape = feature["shape"]
            return mappings.map_feature(self.handle, False, feature["name"], shape, _dtype(feature, self.json_path))
        return self._read(False, feature)

    def _read(self, edge: bool, feature: Dict[str, Any]) -> Tensor:
        out = torch.empty(feature["shape"], dtype=_dtype(feature, self.json_path))
        abi.partition_read(self.handle, edge, feature["name"], out)
        return out


def _dtype(feature: Dict[str, Any], path: str) -> torch.dtype:
    dtype = getattr(torch, feature["dtype"], None)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"feature {feature['name']!r} of {path} is {feature['dtype']}: torch has no such dtype")
    return dtype


def _read_again(path: str, part: int, edge: bool, feature: Dict[str, Any]) -> Tensor:
    partition = StoredPartition(path, part)
    try:
        return partition._read(edge, feature)
    finally:
        partition.close()


class PartitionData:
    """What one worker holds of the graph. Fields that are large or need DGL are made when they are first read.

    - ``all_shard_edges``: per partition q, the edges from q's nodes into own nodes (:class:`ShardEdgesAndFeatures`)
    - ``node_ranges``: per partition, ``(start, end)`` of its node ids over all types
    - ``node_features``: ``{"type/name": [own nodes of the type, ...]}``, and ``"_TYPE"`` (``dgl.NTYPE``): int32
      ``[own nodes]``
    - ``node_type_names``: node types; ``"_TYPE"`` counts in this order
    - ``edge_type_names``: ``(source, relation, destination)`` triples
    - ``partition_book``: DGL's own where DGL is installed, else :class:`RangePartitionBook`
    - ``edge_features``: ``{"src:rel:dst/name": [in-edges of the relation, ...]}``, in ascending edge id

    The first six can be given by position; ``all_shard_edges`` also as a function that makes it. Where edges are known
    by relation too, in ascending id, ``relation_edges`` gives sources and destinations of each, in the order of
    ``edge_type_names``; graphs then have them in that order, and not in that of the shards. ``readers`` gives edge
    features when they are asked for.
    """

    _fields = (
        "all_shard_edges",
        "node_ranges",
        "node_features",
        "node_type_names",
        "edge_type_names",
        "partition_book",
    )

    _whole: Any = None
    """The full graph that blocks are cut out of (:func:`sar.construct_mfgs`), once there is one."""

    def __init__(
        self,
        all_shard_edges: Union[List[ShardEdgesAndFeatures], Callable[[], List[ShardEdgesAndFeatures]]],
        node_ranges: List[Tuple[int, int]],
        node_features: Dict[str, Tensor],
        node_type_names: List[str],
        edge_type_names: List[CanonicalEtype],
        partition_book: Any,
        *,
        edge_features: Union[None, Dict[str, Tensor], Callable[[], Dict[str, Tensor]]] = None,
        stored: Optional[StoredPartition] = None,
        relation_edges: Optional[List[Tuple[Tensor, Tensor]]] = None,
        readers: Optional[Dict[str, Callable[[], Tensor]]] = None,
    ) -> None:
        self._shard_edges = all_shard_edges
        self.node_ranges = node_ranges
        self.node_features = node_features
        self.node_type_names = node_type_names
        self.edge_type_names = edge_type_names
        self._book = partition_book
        self._edge_features = {} if edge_features is None else edge_features
        self.stored = stored
        self._relation_edges = relation_edges
        self._readers = readers

    @property
    def all_shard_edges(self) -> List[ShardEdgesAndFeatures]:
        if callable(self._shard_edges):
            self._shard_edges = self._shard_edges()
        return self._shard_edges

    @property
    def partition_book(self) -> RangePartitionBook:
        book: RangePartitionBook = made(self._book)
        self._book = book
        return book

    @property
    def edge_features(self) -> Dict[str, Tensor]:
        if callable(self._edge_features):
            self._edge_features = self._edge_features()
        return self._edge_features

    def edge_readers(self) -> Dict[str, Callable[[], Tensor]]:
        """By name of an edge feature, what gives it; what nobody has read yet stays in its file until then."""
        if callable(self._edge_features) and self.stored is not None:
            return {name: reader.read for name, reader in self.stored.readers(edge=True).items()}
        if self._readers is not None:
            return self._readers
        return {name: partial(self.edge_features.__getitem__, name) for name in self.edge_features}

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, field) for field in self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __getitem__(self, index: Any) -> Any:
        names = self._fields[index]
        return getattr(self, names) if isinstance(names, str) else tuple(getattr(self, name) for name in names)

    def _asdict(self) -> Dict[str, Any]:
        """The fields by name, as of a named tuple."""
        return dict(zip(self._fields, self))

    def _replace(self, **fields: Any) -> PartitionData:
        """The same with other fields, as of a named tuple. Other edges or ranges part it from its files.

        :raises ValueError: there is no such field
        """
        unknown = [name for name in fields if name not in self._fields]
        if unknown:
            raise ValueError(f"partition data has no field {unknown[0]!r}; there are: {', '.join(self._fields)}")
        kept: List[Any] = [self._shard_edges, self.node_ranges, self.node_features]
        kept += [self.node_type_names, self.edge_type_names, self._book]
        moved = "all_shard_edges" in fields or "node_ranges" in fields
        return PartitionData(
            *(fields.get(name, value) for name, value in zip(self._fields, kept)),
            edge_features=None if moved else self._edge_features,
            stored=None if moved else self.stored,
            relation_edges=None if moved else self._relation_edges,
            readers=None if moved else self._readers,
        )

    def __repr__(self) -> str:
        return (
            f"PartitionData(node_type_names={self.node_type_names}, edge_type_names={self.edge_type_names}, "
            f"node_ranges={self.node_ranges}, node_features={sorted(self.node_features)})"
        )


def book_of(path: str, part: int, node_ranges: Any, edge_ranges: Any) -> Any:
    """The partition book; DGL's own where DGL is installed and works."""
    if importlib.util.find_spec("dgl") is not None:
        try:
            from sar.integrations.dgl import fallback as dgl_fallback
        except Exception as error:
            log_once("dgl", f"DGL is installed but cannot be imported ({error}); using SAR's partition book")
        else:
            return dgl_fallback.load_partition_book(path, part)
    return RangePartitionBook(part, node_ranges, edge_ranges)


def made(book: Any) -> Any:
    """The book itself, where it may be a function that makes it."""
    return book() if callable(book) else book
