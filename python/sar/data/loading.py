"""Loads partitions that DGL or ``sar partition`` wrote."""

from __future__ import annotations

import os
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from sar._engine import allocator, session as _session

from .directory import description_of
from .partition import TYPE_KEY, PartitionData, StoredPartition, book_of
from .partition_book import CanonicalEtype, RangePartitionBook
from .records import ShardEdgesAndFeatures

__all__ = [
    "create_partition_data",
    "load_dgl_partition_data",
    "load_dgl_partition_data_from_graph",
    "suffix_key_lookup",
]

if TYPE_CHECKING:
    from sar.integrations.types import DGLGraph, DistGraph, GraphPartitionBook


def load_dgl_partition_data(
    partition_json_file: Union[str, os.PathLike[str]], own_partition_idx: int, device: Optional[torch.device] = None
) -> PartitionData:
    """Loads one partition of a graph.

    :param partition_json_file: the JSON file of ``dgl.distributed.partition_graph`` or ``sar partition``, or the
        directory that it lies in
    :param own_partition_idx: which partition; the worker's rank
    :param device: where features go; CPU by default
    :returns: node features at once, or mapped over their files (``Config.features``); edges, edge features and the
        partition book when they are read
    :raises OSError: a file is missing
    :raises sar.FormatError: a file is damaged, by its structure or by the checksums that ``sar partition`` wrote (names
        it, with the offset), is no regular file, or lies outside the directory (``Config.allow_outside_paths``)
    :raises ValueError: there is no such partition, or the number of partitions is not the number of workers
    """
    allocator.prepare_process()
    path = description_of(partition_json_file)
    place = torch.device(device) if device is not None else torch.device("cpu")
    stored = StoredPartition(path, int(own_partition_idx))
    session = _session.peek()
    if session is not None:
        session.check_parts(f"{path} holds", stored.num_parts)
    return PartitionData(
        lambda: _shards(
            stored.part_ranges(),
            stored.edge_types,
            [stored.edges(n)[:2] for n in range(len(stored.edge_types))],
            stored.edge_features(place),
            place,
        ),
        stored.part_ranges(),
        stored.node_features(place),
        list(stored.node_types),
        list(stored.edge_types),
        partial(book_of, path, stored.part, stored.node_ranges, stored.edge_ranges),
        edge_features=lambda: stored.edge_features(place),
        stored=stored,
    )


def suffix_key_lookup(
    feature_dict: Dict[str, Tensor],
    key: str,
    expand_to_all: bool = False,
    type_list: Optional[Sequence[Union[str, CanonicalEtype]]] = None,
) -> Tensor:
    """The feature whose key ends with ``key``, so that ``"features"`` finds ``"_N/features"``.

    :param feature_dict: node or edge features of :class:`PartitionData`
    :param key: a feature's name; one named exactly so, after the last ``/``, comes before longer names that end so
    :param expand_to_all: rows for all nodes (edges) in place of those of the feature's own type, 0 for other types
    :param type_list: type names in the order that ``"_TYPE"`` counts; needed with ``expand_to_all``
    :returns: the tensor; an empty int64 one, and a warning that lists the features and names the nearest, where nothing
        matches
    :raises ValueError: several features match, or ``type_list`` lacks the feature's type
    """
    try:
        name = full_name(feature_dict, key)
    except KeyError as error:
        warnings.warn(error.args[0], stacklevel=2)
        return torch.empty(0, dtype=torch.int64)
    found = feature_dict[name]
    if not expand_to_all:
        return found
    if type_list is None:
        raise ValueError("suffix_key_lookup: expand_to_all needs type_list, the type names in order")
    if len(type_list) < 2 or TYPE_KEY not in feature_dict:
        return found
    names = [":".join(t) if isinstance(t, tuple) else str(t) for t in type_list]
    own_type = name.rpartition("/")[0]
    if own_type not in names:
        raise ValueError(f"the type {own_type!r} of feature {name!r} is not in type_list: {', '.join(names)}")
    kinds = feature_dict[TYPE_KEY]
    expanded = found.new_zeros((kinds.shape[0], *found.shape[1:]))
    expanded[kinds == names.index(own_type)] = found
    return expanded


def full_name(features: Mapping[str, Tensor], key: str) -> str:
    """The name that ends with ``key``; one that is exactly so, after the last ``/``, comes before longer names.

    :raises KeyError: none does; says which there are, and which one of them was probably meant
    :raises ValueError: several do
    """
    matches = [name for name in features if name.endswith(key)]
    if len(matches) > 1:
        matches = [name for name in matches if name.rpartition("/")[2] == key] or matches
    if len(matches) > 1:
        raise ValueError(f"several features end with {key!r}: {', '.join(sorted(matches))}; give more of the name")
    if matches:
        return matches[0]
    import difflib  # costs import sar a millisecond otherwise

    names = sorted(name for name in features if name != TYPE_KEY)
    # A key may lack the type in front of a name, or have one.
    endings = {ending.lower(): name for name in names for ending in (name, name.rpartition("/")[2])}
    near = difflib.get_close_matches(key.lower(), endings, 1)
    hint = f"; did you mean {endings[near[0]]!r}?" if near else ""
    raise KeyError(f"no feature ends with {key!r}; there are: {', '.join(names) or 'none'}{hint}")


def create_partition_data(
    graph: DGLGraph,
    own_partition_idx: int,
    node_features: Dict[str, Tensor],
    edge_features: Dict[str, Tensor],
    partition_book: Union[GraphPartitionBook, RangePartitionBook],
    node_type_list: Sequence[str],
    edge_type_list: Sequence[CanonicalEtype],
    device: torch.device,
) -> PartitionData:
    """Partition data of a graph that ``dgl.distributed.load_partition`` gave.

    :param graph: the partition: a homogeneous DGL graph with ``_ID``, ``inner_node`` and ``inner_edge``, and ``_TYPE``
        where there are several types
    :param own_partition_idx: which partition; the worker's rank
    :param node_features: ``{"type/name": [own nodes of the type, ...]}``
    :param edge_features: ``{"src:rel:dst/name": [in-edges of own nodes, ...]}``, in ascending edge id
    :param partition_book: DGL's
    :param node_type_list: names of the node types
    :param edge_type_list: ``(source, relation, destination)`` triples
    :param device: where features go
    :raises ValueError: an inner edge that ends in a node of another partition
    """
    kinds = list(node_type_list)
    triples = [(t[0], t[1], t[2]) if isinstance(t, tuple) else t for t in edge_type_list]
    ends = torch.tensor([int(m["num_nodes"]) for m in partition_book.metadata()]).cumsum(0)
    ranges = [(int(end) - int(m["num_nodes"]), int(end)) for end, m in zip(ends, partition_book.metadata())]
    ids, inner = graph.ndata["_ID"].long(), graph.ndata["inner_node"].bool()
    own = ids[inner].sort().values
    features = {name: feature.to(device) for name, feature in node_features.items()}
    features[TYPE_KEY] = partition_book.map_to_per_ntype(own)[0].to(device, torch.int32)
    mine = graph.edata["inner_edge"].bool()
    src, dst, eid = graph.all_edges(form="all", order="eid")
    mine = mine[eid]
    edge_ids = graph.edata["_ID"].long()[eid][mine]
    order = edge_ids.argsort()
    src, dst = ids[src[mine].long()][order], ids[dst[mine].long()][order]
    low, high = ranges[own_partition_idx]
    strange = (dst < low) | (dst >= high)
    if bool(strange.any()):
        node = int(dst[strange][0])
        raise ValueError(
            f"partition {own_partition_idx} owns nodes {low} to {high - 1}, but an inner edge ends in {node}"
        )
    kind = partition_book.map_to_per_etype(edge_ids[order])[0]
    edges = [(src[kind == n], dst[kind == n]) for n in range(len(triples))]
    texts = [":".join(t) if isinstance(t, tuple) else f"{kinds[0]}:{t}:{kinds[0]}" for t in triples]
    typed = {
        (name if "/" in name else f"{texts[0]}/{name}"): column.to(device)
        for name, column in edge_features.items()
        if not name.endswith("/reltype")
    }
    return PartitionData(
        lambda: _shards(ranges, [tuple(t.split(":")) for t in texts], edges, typed, device),
        ranges,
        features,
        kinds,
        triples,
        partition_book,
        edge_features=typed,
        relation_edges=edges,
    )


def load_dgl_partition_data_from_graph(graph: DistGraph, device: torch.device) -> PartitionData:
    """Partition data of this worker's part of a ``dgl.distributed.DistGraph``, with features of own nodes and edges.

    :param graph: the distributed graph; its partition is the one that its partition book names
    :param device: where features go
    """
    book = graph.get_partition_book()
    nodes = _readers({kind: graph.nodes[kind].data for kind in graph.ntypes}, book.partid2nids, book.partid)
    read = {name: fetch().to(device) for name, fetch in nodes.items()}
    return _of_dist_graph(graph, read, {name: fetch() for name, fetch in _edge_readers(graph).items()}, device)


def lazy_partition_data(graph: Any) -> PartitionData:
    """The same without node features, and with edge features that are fetched when they are first asked for."""
    data = _of_dist_graph(graph, {}, {}, torch.device("cpu"))
    data._readers = _edge_readers(graph)
    return data


def _edge_readers(graph: Any) -> Dict[str, Callable[[], Tensor]]:
    book = graph.get_partition_book()
    data_of = {triple: graph.edges[triple].data for triple in graph.canonical_etypes}
    return _readers(data_of, book.partid2eids, book.partid)


def _readers(data_of: Mapping[Any, Any], ids_of: Callable[..., Tensor], part: int) -> Dict[str, Callable[[], Tensor]]:
    """What fetches the features of own nodes, or of own in-edges, out of a DistGraph. Names have no type where there is
    one."""

    def fetch(column: Any, kind: Any) -> Tensor:
        return torch.as_tensor(column[ids_of(part, kind)])

    found: Dict[str, Callable[[], Tensor]] = {}
    for kind, data in data_of.items():
        prefix = "" if len(data_of) == 1 else (kind if isinstance(kind, str) else ":".join(kind)) + "/"
        found.update({prefix + name: partial(fetch, data[name], kind) for name in list(data.keys())})
    return found


def _of_dist_graph(
    graph: Any, node_features: Dict[str, Tensor], edge_features: Dict[str, Tensor], device: torch.device
) -> PartitionData:
    book, local = graph.get_partition_book(), graph.local_partition
    if local is None:
        raise ValueError("this DistGraph has no local partition: run the partition's server on the trainer's machine")
    triples, kinds = [tuple(t) for t in graph.canonical_etypes], list(graph.ntypes)
    return create_partition_data(local, book.partid, node_features, edge_features, book, kinds, triples, device)


def _shards(
    ranges: Sequence[Tuple[int, int]],
    triples: Sequence[Any],
    edges: Sequence[Tuple[Tensor, Tensor]],
    features: Dict[str, Tensor],
    device: torch.device,
) -> List[ShardEdgesAndFeatures]:
    """Edges by the partition of their source; within a shard by relation, then by ascending id."""
    parts = len(ranges)
    ends = torch.tensor([end for _, end in ranges], dtype=torch.int64)
    sources: List[List[Tensor]] = [[] for _ in range(parts)]
    targets: List[List[Tensor]] = [[] for _ in range(parts)]
    columns: List[Dict[str, List[Tensor]]] = [{} for _ in range(parts)]
    for relation, (triple, (src, dst)) in enumerate(zip(triples, edges)):
        owner = torch.searchsorted(ends, src, right=True)
        mine = {name: t for name, t in features.items() if name.rpartition("/")[0] == ":".join(triple)}
        mine[TYPE_KEY] = torch.full((src.shape[0],), relation, dtype=torch.int32, device=device)
        for part in range(parts):
            picked = (owner == part).nonzero().view(-1)
            sources[part].append(src[picked])
            targets[part].append(dst[picked])
            for name, column in mine.items():
                columns[part].setdefault(name, []).append(column[picked.to(device)])
    return [
        ShardEdgesAndFeatures(
            (torch.cat(sources[part]), torch.cat(targets[part])),
            {name: torch.cat(pieces) for name, pieces in columns[part].items()},
        )
        for part in range(parts)
    ]
