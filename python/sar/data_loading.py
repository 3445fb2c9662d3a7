"""Loading partitions that DGL, or ``sar partition``, wrote."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Sequence

import torch
from torch import Tensor

from . import _session
from ._partition import TYPE_KEY, PartitionBookMaker, PartitionData, StoredPartition
from .common_tuples import ShardEdgesAndFeatures

__all__ = ["load_dgl_partition_data", "suffix_key_lookup"]


def load_dgl_partition_data(
    partition_json_file: str, own_partition_idx: int, device: Optional[torch.device] = None
) -> PartitionData:
    """Loads one partition of a graph.

    :param partition_json_file: the JSON file of ``dgl.distributed.partition_graph`` or ``sar partition``
    :param own_partition_idx: which partition; the worker's rank
    :param device: where features go; CPU by default
    :returns: node features at once; edges, edge features and the partition book when they are read
    :raises OSError: a file is missing
    :raises sar.FormatError: a file is damaged (names it, with the offset)
    :raises ValueError: there is no such partition, or the number of partitions is not the number of workers
    """
    _session.prepare_process()
    path = os.fspath(partition_json_file)
    place = torch.device(device) if device is not None else torch.device("cpu")
    stored = StoredPartition(path, int(own_partition_idx))
    session = _session.peek()
    if session is not None and session.world != stored.num_parts:
        raise ValueError(
            f"{path} holds {stored.num_parts} partitions, but {session.world} workers take part: start "
            f"{stored.num_parts} workers, or partition the graph into {session.world}"
        )
    return PartitionData(
        lambda: _shards(stored, place),
        stored.part_ranges(),
        stored.node_features(place),
        list(stored.node_types),
        list(stored.edge_types),
        PartitionBookMaker(stored),
        edge_features=lambda: stored.edge_features(place),
        stored=stored,
    )


def suffix_key_lookup(
    feature_dict: Dict[str, Tensor],
    key: str,
    expand_to_all: bool = False,
    type_list: Optional[Sequence[Any]] = None,
) -> Tensor:
    """The feature whose key ends with ``key``, so that ``"features"`` finds ``"_N/features"``.

    :param feature_dict: node or edge features of :class:`PartitionData`
    :param key: a feature's name; one named exactly so, after the last ``/``, comes before longer names that end so
    :param expand_to_all: rows for all nodes (edges) in place of those of the feature's own type, 0 for other types
    :param type_list: type names in the order that ``"_TYPE"`` counts; needed with ``expand_to_all``
    :returns: the tensor; an empty int64 one where nothing matches
    :raises ValueError: several features match, or ``type_list`` lacks the feature's type
    """
    matches = [k for k in feature_dict if k.endswith(key)]
    if not matches:
        return torch.empty(0, dtype=torch.int64)
    if len(matches) > 1:
        exact = [k for k in matches if k.rpartition("/")[2] == key]
        if len(exact) != 1:
            raise ValueError(
                f"several features end with {key!r}: {', '.join(sorted(matches))}; give more of the name"
            )
        matches = exact
    found = feature_dict[matches[0]]
    if not expand_to_all:
        return found
    if type_list is None:
        raise ValueError("suffix_key_lookup: expand_to_all needs type_list, the type names in order")
    if len(type_list) < 2 or TYPE_KEY not in feature_dict:
        return found
    names = [":".join(t) if isinstance(t, tuple) else str(t) for t in type_list]
    own_type = matches[0].rpartition("/")[0]
    if own_type not in names:
        raise ValueError(f"the type {own_type!r} of feature {matches[0]!r} is not in type_list: {', '.join(names)}")
    kinds = feature_dict[TYPE_KEY]
    expanded = found.new_zeros((kinds.shape[0], *found.shape[1:]))
    expanded[kinds == names.index(own_type)] = found
    return expanded


def _shards(stored: StoredPartition, device: torch.device) -> List[ShardEdgesAndFeatures]:
    """Edges by the partition of their source; within a shard by relation, then by ascending id."""
    starts = torch.tensor([end for _, end in stored.part_ranges()], dtype=torch.int64)
    features = stored.edge_features(device)
    sources: List[List[Tensor]] = [[] for _ in range(stored.num_parts)]
    targets: List[List[Tensor]] = [[] for _ in range(stored.num_parts)]
    columns: List[Dict[str, List[Tensor]]] = [{} for _ in range(stored.num_parts)]
    for relation, triple in enumerate(stored.edge_types):
        src, dst, _ = stored.edges(relation)
        owner = torch.searchsorted(starts, src, right=True)
        mine = {name: t for name, t in features.items() if name.rpartition("/")[0] == ":".join(triple)}
        mine[TYPE_KEY] = torch.full((src.shape[0],), relation, dtype=torch.int32, device=device)
        for part in range(stored.num_parts):
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
        for part in range(stored.num_parts)
    ]
