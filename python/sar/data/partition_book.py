"""Partition book: which partition owns which ids, with the interface of DGL's ``RangePartitionBook``."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

CanonicalEtype = Tuple[str, str, str]
Ranges = Dict[Any, List[List[int]]]


class RangePartitionBook:
    """Ranges of ids by type and partition.

    Two ways of counting: ids per type, which begin at 0 for each type, and homogenized ids over all types, which is
    what partition files and ``PartitionData`` hold. In both, each partition owns one run per type.

    :param part_id: partition of this worker
    :param node_ranges: ``{node type: [[start, end], ... per partition]}``, homogenized
    :param edge_ranges: the same for ``{(source, relation, destination): ...}``
    """

    def __init__(self, part_id: int, node_ranges: Ranges, edge_ranges: Ranges) -> None:
        self.partid = part_id
        self.ntypes = list(node_ranges)
        self.canonical_etypes: List[CanonicalEtype] = list(edge_ranges)
        self._canonical_etypes = self.canonical_etypes  # DGL's own name of them
        self.etypes = [relation for _, relation, _ in self.canonical_etypes]
        self.is_homogeneous = len(self.ntypes) == 1 and len(self.etypes) == 1
        self._nodes = {t: _Runs(r) for t, r in node_ranges.items()}
        self._edges = {t: _Runs(r) for t, r in edge_ranges.items()}
        self._parts = len(next(iter(node_ranges.values())))
        self._node_map = _TypeMap([self._nodes[t] for t in self.ntypes])
        self._edge_map = _TypeMap([self._edges[t] for t in self.canonical_etypes])

    def num_partitions(self) -> int:
        """How many partitions there are."""
        return self._parts

    def metadata(self) -> List[Dict[str, int]]:
        """Per partition: ``machine_id``, ``num_nodes``, ``num_edges``."""
        return [
            {
                "machine_id": p,
                "num_nodes": sum(r.size(p) for r in self._nodes.values()),
                "num_edges": sum(r.size(p) for r in self._edges.values()),
            }
            for p in range(self._parts)
        ]

    def to_canonical_etype(self, etype: Union[str, CanonicalEtype]) -> CanonicalEtype:
        """The triple for a relation's name.

        :raises KeyError: unknown, or several relations have the name
        """
        return canonical(etype, self.canonical_etypes)

    def nid2partid(self, nids: Tensor, ntype: Optional[str] = None) -> Tensor:
        """Partition of each node; ids per type."""
        return self._nodes[self._ntype(ntype)].part_of(nids)

    def eid2partid(self, eids: Tensor, etype: Optional[Union[str, CanonicalEtype]] = None) -> Tensor:
        """Partition of each edge; ids per type."""
        return self._edges[self._etype(etype)].part_of(eids)

    def partid2nids(self, partid: int, ntype: Optional[str] = None) -> Tensor:
        """Ids, per type, of a partition's nodes: int64."""
        return self._nodes[self._ntype(ntype)].ids(partid)

    def partid2eids(self, partid: int, etype: Optional[Union[str, CanonicalEtype]] = None) -> Tensor:
        """Ids, per type, of a partition's edges: int64."""
        return self._edges[self._etype(etype)].ids(partid)

    def nid2localnid(self, nids: Tensor, partid: int, ntype: Optional[str] = None) -> Tensor:
        """Row of each node within the partition that owns it; ids per type."""
        return nids - self._nodes[self._ntype(ntype)].first[partid]

    def eid2localeid(self, eids: Tensor, partid: int, etype: Optional[Union[str, CanonicalEtype]] = None) -> Tensor:
        """Row of each edge within the partition that owns it; ids per type."""
        return eids - self._edges[self._etype(etype)].first[partid]

    def map_to_per_ntype(self, ids: Tensor) -> Tuple[Tensor, Tensor]:
        """Type numbers and ids per type of homogenized node ids."""
        return self._node_map.to_typed(ids)

    def map_to_per_etype(self, ids: Tensor) -> Tuple[Tensor, Tensor]:
        """Type numbers and ids per type of homogenized edge ids."""
        return self._edge_map.to_typed(ids)

    def map_to_homo_nid(self, ids: Tensor, ntype: str) -> Tensor:
        """Homogenized ids of nodes of one type."""
        return self._nodes[self._ntype(ntype)].homogenized(ids)

    def map_to_homo_eid(self, ids: Tensor, etype: Union[str, CanonicalEtype]) -> Tensor:
        """Homogenized ids of edges of one type."""
        return self._edges[self._etype(etype)].homogenized(ids)

    def _num_nodes(self, ntype: Optional[str] = None) -> int:
        return self._nodes[self._ntype(ntype)].total

    def _num_edges(self, etype: Optional[Union[str, CanonicalEtype]] = None) -> int:
        return self._edges[self._etype(etype)].total

    def _ntype(self, ntype: Optional[str]) -> str:
        if ntype is None and len(self.ntypes) == 1:
            return self.ntypes[0]
        if ntype is None or ntype not in self._nodes:
            raise KeyError(f"node type {ntype!r} is unknown; there are: {', '.join(self.ntypes)}")
        return ntype

    def _etype(self, etype: Optional[Union[str, CanonicalEtype]]) -> CanonicalEtype:
        if etype is None and len(self.canonical_etypes) == 1:
            return self.canonical_etypes[0]
        return self.to_canonical_etype(etype if etype is not None else "")


def canonical(etype: Union[str, CanonicalEtype], known: Sequence[CanonicalEtype]) -> CanonicalEtype:
    """The triple among ``known`` that a name or triple stands for.

    :raises KeyError: none, or several
    """
    found = [c for c in known if c == etype or (isinstance(etype, str) and c[1] == etype)]
    if len(found) == 1:
        return found[0]
    problem = "is unknown" if not found else "is the name of several relations, give the triple"
    raise KeyError(f"edge type {etype!r} {problem}; there are: {', '.join(map(str, known))}")


class _Runs:
    """The runs of one type: homogenized starts, and ids per type, by partition."""

    def __init__(self, ranges: Sequence[Sequence[int]]) -> None:
        self.start = torch.tensor([r[0] for r in ranges], dtype=torch.int64)
        sizes = torch.tensor([r[1] - r[0] for r in ranges], dtype=torch.int64)
        self.end = self.start + sizes
        self.last = sizes.cumsum(0)
        self.first = self.last - sizes
        self.total = int(self.last[-1])

    def size(self, part: int) -> int:
        return int(self.last[part] - self.first[part])

    def ids(self, part: int) -> Tensor:
        if not 0 <= part < len(self.first):
            raise IndexError(f"partition {part} is outside 0..{len(self.first) - 1}")
        return torch.arange(int(self.first[part]), int(self.last[part]))

    def part_of(self, ids: Tensor) -> Tensor:
        return torch.searchsorted(self.last, ids.to(torch.int64), right=True)

    def homogenized(self, ids: Tensor) -> Tensor:
        part = self.part_of(ids)
        return self.start[part] + ids - self.first[part]


class _TypeMap:
    """Homogenized ids to types: all runs of all types in ascending order."""

    def __init__(self, types: Sequence[_Runs]) -> None:
        start = torch.cat([r.start for r in types])
        end = torch.cat([r.end for r in types])
        first = torch.cat([r.first for r in types])
        kind = torch.cat([torch.full_like(r.start, t) for t, r in enumerate(types)])
        keep = (end > start).nonzero().view(-1)
        order = keep[start[keep].argsort()]
        self.start, self.end, self.first, self.kind = start[order], end[order], first[order], kind[order]

    def to_typed(self, ids: Tensor) -> Tuple[Tensor, Tensor]:
        run = torch.searchsorted(self.end, ids.to(torch.int64), right=True)
        return self.kind[run], ids - self.start[run] + self.first[run]
