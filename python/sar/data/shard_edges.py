"""Edges and edge features, by relation, of partition data built in memory."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .partition import TYPE_KEY, PartitionData
from .partition_book import CanonicalEtype


def triples_of(data: PartitionData) -> List[CanonicalEtype]:
    """The relations as triples. With one node type the relation's name is enough.

    :raises ValueError: a name without its node types, or node types that do not exist
    """
    kinds, triples = data.node_type_names, []
    for name in data.edge_type_names:
        if isinstance(name, str) and name.count(":") == 2:
            name = tuple(name.split(":"))
        if isinstance(name, str):
            if len(kinds) != 1:
                raise ValueError(
                    f"edge type {name!r} of a graph of {len(kinds)} node types: give (source type, relation, "
                    "destination type)"
                )
            name = (kinds[0], name, kinds[0])
        source, relation, target = name
        for kind in (source, target):
            if kind not in kinds:
                raise ValueError(f"edge type {name!r}: there is no node type {kind!r}; there are: {', '.join(kinds)}")
        triples.append((source, relation, target))
    return triples


def relation_edges(data: PartitionData, triples: Sequence[CanonicalEtype]) -> List[Tuple[Tensor, Tensor]]:
    """Sources and destinations of the edges of each relation, int64, in the order of the shards."""
    if data._relation_edges is not None:
        return [(src.to("cpu", torch.int64), dst.to("cpu", torch.int64)) for src, dst in data._relation_edges]
    picked = list(zip(data.all_shard_edges, _picks(data, len(triples))))

    def ends(side: int, n: int) -> Tensor:
        return torch.cat([_part(shard.edges[side], pick[n]) for shard, pick in picked]).to("cpu", torch.int64)

    return [(ends(0, n), ends(1, n)) for n in range(len(triples))]


def relation_features(data: PartitionData, triples: Sequence[CanonicalEtype]) -> Dict[str, Tensor]:
    """``{"src:rel:dst/name": [edges of the relation, ...]}``, in the order of :func:`relation_edges`.

    A shard holds a feature either for all of its edges or, under such a name, for those of one relation.
    """
    shards = data.all_shard_edges
    picks = _picks(data, len(triples))
    texts = [":".join(t) for t in triples]
    features: Dict[str, Tensor] = {}
    for key in shards[0].edge_features:
        owner, _, name = key.rpartition("/")
        if name == TYPE_KEY:
            continue
        for n, text in enumerate(texts):
            if owner and owner != text:
                continue
            pieces = []
            for shard, pick in zip(shards, picks):
                column = shard.edge_features[key]
                positions = pick[n]
                every = len(shard.edges[0])
                some = every if positions is None else len(positions)
                if len(column) not in (every, some):
                    raise ValueError(
                        f"edge feature {key!r} has {len(column)} rows in a shard of {every} edges, {some} of them of "
                        f"relation {text}"
                    )
                pieces.append(_part(column, positions) if len(column) == every else column)
            features[f"{text}/{name}"] = torch.cat(pieces)
    return features


def _picks(data: PartitionData, relations: int) -> List[List[Optional[Tensor]]]:
    """Per shard and relation, the positions of its edges; ``None``: all of the shard."""
    picks: List[List[Optional[Tensor]]] = []
    for shard in data.all_shard_edges:
        types = shard.edge_features.get(TYPE_KEY)
        if relations == 1:
            picks.append([None])
            continue
        if types is None:
            raise ValueError(
                f"shards of a graph of {relations} relations need the relation of each edge: set "
                f"edge_features[{TYPE_KEY!r}] (dgl.ETYPE), integers [{len(shard.edges[0])}]"
            )
        if len(types) != len(shard.edges[0]):
            raise ValueError(f"edge_features[{TYPE_KEY!r}] has {len(types)} entries for {len(shard.edges[0])} edges")
        if len(types) and (int(types.min()) < 0 or int(types.max()) >= relations):
            raise ValueError(f"edge_features[{TYPE_KEY!r}] must be from 0 to {relations - 1}")
        picks.append([(types == n).nonzero().view(-1) for n in range(relations)])
    return picks


def _part(column: Tensor, pick: Optional[Tensor]) -> Tensor:
    return column if pick is None else column[pick.to(column.device)]
