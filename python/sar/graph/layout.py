"""Node ids by type and worker."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from sar._engine import session as _session
from sar.data.partition import TYPE_KEY, PartitionData
from sar.distributed.agreement import said_by_all

from .state import NodeRows


class Layout:
    """Nodes of each type on each worker. Ids over all types run worker by worker, and in each type by type.

    :param kinds: node types
    :param counts: int64 ``[types, workers]``
    """

    def __init__(self, kinds: Sequence[str], counts: Tensor) -> None:
        self.kinds = list(kinds)
        self.counts = counts
        starts = [0, *counts.sum(0).cumsum(0).tolist()]
        self.part_ranges: List[Tuple[int, int]] = list(zip(starts, starts[1:]))
        """Ids over all types that each worker owns."""

    def node_rows(
        self, rank: int, src: Optional[Sequence[Tensor]] = None, dst: Optional[Sequence[Tensor]] = None
    ) -> Dict[str, NodeRows]:
        """Rows of each type on one worker: all of its nodes, or those of a block."""
        offsets = [0, *self.counts[:, rank].cumsum(0).tolist()]
        rows = {}
        for n, kind in enumerate(self.kinds):
            starts = (0, *self.counts[n].cumsum(0).tolist())
            rows[kind] = NodeRows(
                int(self.counts[n, rank]),
                starts[-1],
                offsets[n],
                starts[rank],
                starts,
                None if src is None else src[n],
                None if dst is None else dst[n],
            )
        return rows

    def by_type(self, ids: Tensor, rank: int) -> List[Tensor]:
        """Own nodes, given as ids over all types, as rows of each type; the order stays.

        :raises ValueError: an id that this worker does not own
        """
        start, end = self.part_ranges[rank]
        strange = ids[(ids < start) | (ids >= end)]
        if len(strange):
            raise ValueError(
                f"node {int(strange[0])} is not owned by this worker, rank {rank}, whose ids are {start} to {end - 1}: "
                "give each worker its own nodes, as row number + node_ranges[rank][0]"
            )
        ends = self.counts[:, rank].cumsum(0) + start
        kind = torch.searchsorted(ends, ids, right=True)
        return [ids[kind == n] - (int(ends[n]) - int(self.counts[n, rank])) for n in range(len(self.kinds))]


def layout(data: PartitionData) -> Layout:
    """The layout of a partition's graph. Collective for data made by hand with several node types.

    :raises ValueError: ``_TYPE`` is missing, or own nodes are not sorted by type
    """
    kinds = data.node_type_names
    if data.stored is not None:
        runs = [data.stored.node_ranges[kind] for kind in kinds]
        return Layout(kinds, torch.tensor([[end - start for start, end in r] for r in runs], dtype=torch.int64))
    if len(kinds) == 1:
        return Layout(kinds, torch.tensor([[end - start for start, end in data.node_ranges]], dtype=torch.int64))
    counts = said_by_all(_own_counts(data, _session.current().rank).tolist())
    made = Layout(kinds, torch.tensor(counts, dtype=torch.int64).t())
    if made.part_ranges != [(int(a), int(b)) for a, b in data.node_ranges]:
        raise ValueError(
            f"node_ranges {list(data.node_ranges)} do not agree with the node types of the workers, which give "
            f"{made.part_ranges}"
        )
    return made


def _own_counts(data: PartitionData, rank: int) -> Tensor:
    start, end = data.node_ranges[rank]
    types = data.node_features.get(TYPE_KEY)
    if types is None:
        raise ValueError(
            f"partition data of {len(data.node_type_names)} node types needs the type of each own node: set "
            f"node_features[{TYPE_KEY!r}] (dgl.NTYPE), integers [{end - start}]"
        )
    types = types.to("cpu", torch.int64)
    if len(types) != end - start:
        raise ValueError(f"node_features[{TYPE_KEY!r}] has {len(types)} entries for {end - start} own nodes")
    last = len(data.node_type_names) - 1
    if len(types) and (bool((types.diff() < 0).any()) or int(types[0]) < 0 or int(types[-1]) > last):
        raise ValueError(
            f"node_features[{TYPE_KEY!r}] must ascend from 0 to {last}: a worker's nodes are "
            "numbered type by type, as DGL's partitioner numbers them"
        )
    return torch.bincount(types, minlength=len(data.node_type_names))
