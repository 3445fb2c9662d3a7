"""Pairs of nodes that are no edges, drawn so that all workers together draw the same for any number of them.

Pairs of original ids are numbered, and a seed permutes their numbers. Workers share the first numbers of the
permutation, send each pair to the owner of its destination, and that drops those that are edges. What is left over is
cut to as many as are wanted, in the order of the permutation: so negatives are distinct, and uniform.
"""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple, TypeVar, Union

import torch
from torch import Tensor

from sar._engine import session as _session
from sar.autograd.compile import uncompiled
from sar.distributed.agreement import agreed_seed, all_or_none, largest_of_all, summed
from sar.graph.edge_index.index import SplitEdgeIndex, edge_index
from sar.graph.manager import GraphShardManager
from sar.graph.state import NodeRows

from .draw import permuted
from .edges import graph_of, graph_of_pairs
from .known import Known, known
from .originals import OriginalIds, originals

Count = Union[int, float, None]
Ends = Union[Tensor, Tuple[Tensor, Tensor]]
Sizes = Union[int, Tuple[int, int], None]
Given = TypeVar("Given")


@uncompiled
def negative_sampling(
    edges: Given, num_nodes: Sizes, num_neg_samples: Count, method: str, force_undirected: bool, seed: Optional[int]
) -> Given:
    """See :func:`sar.negative_sampling`."""
    graph = graph_of(edges)
    space = _whole(graph)

    def check() -> None:
        sizes = num_nodes if isinstance(num_nodes, (tuple, list)) else (num_nodes, num_nodes)
        for size, nodes in zip(sizes, _nodes(graph)):
            if size is not None and size not in (nodes.num_own, nodes.num_global):
                raise ValueError(
                    f"negative_sampling: {size} nodes were given, and this worker has {nodes.num_own} of "
                    f"{nodes.num_global}: give neither, or leave num_nodes out"
                )
        if method not in ("sparse", "dense"):
            raise ValueError(f"negative_sampling: method is {method!r}; give 'sparse' or 'dense'")

    all_or_none("sar.negative_sampling", check)
    drawn = _draw(graph, space, _wanted(graph, num_neg_samples), agreed_seed(seed), force_undirected and space.square)
    return _as_given(edges, graph, [drawn])


@uncompiled
def batched_negative_sampling(
    edges: Given, batch: Ends, num_neg_samples: Count, method: str, force_undirected: bool, seed: Optional[int]
) -> Given:
    """See :func:`sar.batched_negative_sampling`."""
    graph = graph_of(edges)
    both = (batch, batch) if isinstance(batch, Tensor) else (batch[0], batch[1])
    spans = _spans(graph, both)
    of_edges = both[1].as_subclass(Tensor)[graph.edges()[1]]
    per_graph = summed(torch.bincount(of_edges, minlength=len(spans))).tolist()
    first = agreed_seed(seed)
    drawn = []
    for number, (space, found) in enumerate(zip(spans, per_graph)):
        wanted = _of(found, num_neg_samples)
        drawn.append(_draw(graph, space, wanted, first + number, force_undirected and space.square, found))
    return _as_given(edges, graph, drawn)


def pairs_apart(edges: SplitEdgeIndex, wanted: int, batch: Optional[Tensor] = None) -> SplitEdgeIndex:
    """Pairs of nodes with no edge in either direction. Collective.

    :param wanted: pairs that this worker counts; with a batch vector, those of all workers are wanted in each graph
    :param batch: the graph of each own node
    """
    graph, seed = graph_of(edges), agreed_seed()
    spaces = [_whole(graph)] if batch is None else _spans(graph, (batch, batch))
    total, count = _wanted(graph, wanted), 2 * graph._relations[0].info.num_edges_global
    drawn = [
        _draw(graph, space._replace(apart=True), total, seed + number, False, count)
        for number, space in enumerate(spaces)
    ]
    return _as_given(edges, graph, drawn)


class Space(NamedTuple):
    """Pairs that may be drawn: of some original ids at each end.

    :ivar sources: first original id, and how many
    :ivar targets: likewise
    :ivar square: both are the same nodes, so that self loops are left out
    :ivar apart: pairs with an edge in the other direction are left out too
    """

    sources: Tuple[int, int]
    targets: Tuple[int, int]
    square: bool
    apart: bool = False

    @property
    def pairs(self) -> int:
        """How many there are."""
        return self.sources[1] * max(0, self.targets[1] - self.square)

    def numbered(self, numbers: Tensor) -> Tuple[Tensor, Tensor]:
        """Original ids of both ends of pairs with some numbers."""
        each = max(1, self.targets[1] - self.square)
        source, target = numbers // each, numbers % each
        if self.square:
            target += target >= source
        return source + self.sources[0], target + self.targets[0]


class Drawn(NamedTuple):
    """Pairs of this worker: ids of sources, and own rows of destinations."""

    sources: Tensor
    rows: Tensor


def _nodes(graph: GraphShardManager) -> Tuple[NodeRows, NodeRows]:
    """Nodes at both ends of the relation of a graph."""
    source, _, target = graph._relations[0].canonical
    return graph._state.nodes[source], graph._state.nodes[target]


def _whole(graph: GraphShardManager) -> Space:
    source, target = _nodes(graph)
    return Space((0, source.num_global), (0, target.num_global), source is target)


def _wanted(graph: GraphShardManager, given: Count) -> int:
    """Pairs of all workers. Collective."""
    own = int(given) if isinstance(given, int) else 0
    total = int(summed(torch.tensor(own)))
    return total if isinstance(given, int) else _of(graph._relations[0].info.num_edges_global, given)


def _of(edges: int, given: Count) -> int:
    """Pairs that are wanted of a graph with so many edges."""
    return edges if given is None else int(given * edges) if isinstance(given, float) else given


def _draw(
    graph: GraphShardManager, space: Space, wanted: int, seed: int, undirected: bool, edges: Optional[int] = None
) -> Drawn:
    """Pairs that are no edges. Collective.

    :param wanted: of all workers
    :param undirected: pairs whose source has the smaller original id, and these turned round
    :param edges: of all workers, among the pairs
    """
    edges = graph._relations[0].info.num_edges_global if edges is None else edges
    source, _, target = graph._relations[0].canonical
    ids = originals(graph._state, source), originals(graph._state, target)
    found, given, missing = known(graph), 0, wanted // 2 if undirected else wanted
    kept: List[Tensor] = [torch.empty(3, 0, dtype=torch.int64)]
    while missing > 0 and given < space.pairs:
        share = max(1 - edges / space.pairs, 1 / 64) / (1 + undirected)
        tried = min(space.pairs - given, 32 + int(1.1 * missing / share))
        kept.append(_tried(space, found, ids, seed, given, tried, undirected))
        given += tried
        missing -= int(summed(torch.tensor(kept[-1].shape[1])))
    pairs = torch.cat(kept, 1)
    pairs = pairs[:, pairs[0].argsort()]
    if missing < 0:
        pairs = pairs[:, : _cut(pairs[0].contiguous(), -missing, given)]
    if undirected:
        pairs = torch.cat([pairs, _turned(found, pairs)], 1)
    return Drawn(pairs[1], pairs[2])


def _tried(
    space: Space, found: Known, ids: Tuple[OriginalIds, OriginalIds], seed: int, first: int, count: int, upper: bool
) -> Tensor:
    """Of a run of the permutation, places, sources and own rows of pairs that are no edges. Collective."""
    session = _session.current()
    places = torch.arange(count * session.rank // session.world, count * (session.rank + 1) // session.world) + first
    ends = space.numbered(permuted(space.pairs, seed, places))
    if upper:
        below = ends[0] < ends[1]
        places, ends = places[below], (ends[0][below], ends[1][below])
    sources, targets = (known_ids.nodes(end) for known_ids, end in zip(ids, ends))
    (places, sources, rows), _, _ = found.to_owners(targets, places, sources)
    free = ~found.edges(sources, rows)
    if space.apart:
        free &= ~found.asked(rows + found.nodes[1].first, sources)
    return torch.stack([places[free], sources[free], rows[free]])


def _cut(places: Tensor, surplus: int, end: int) -> int:
    """How many of ascending places stay, so that all workers together leave out as many, the last ones. Collective."""
    total = int(summed(torch.tensor(len(places)))) - surplus
    low, high = 0, end  # fewer than total are below low, and at least so many below high
    while high - low > 1:
        middle = (low + high) // 2
        below = torch.searchsorted(places, torch.tensor([middle]))
        low, high = (low, middle) if int(summed(below)) >= total else (middle, high)
    return int(torch.searchsorted(places, torch.tensor([high])))


def _turned(found: Known, pairs: Tensor) -> Tensor:
    """The same pairs with their ends exchanged, in the order of places. Collective."""
    targets = pairs[2] + found.nodes[1].first
    (places, sources, rows), _, _ = found.to_owners(pairs[1], pairs[0], targets)
    return torch.stack([places, sources, rows])[:, places.argsort()]


def _spans(graph: GraphShardManager, batch: Tuple[Tensor, Tensor]) -> List[Space]:
    """The pairs within each graph of a batch. Collective."""
    ends = []
    graphs = largest_of_all(max(int(one.max()) + 1 if len(one) else 0 for one in batch))
    for one, nodes, kind in zip(batch, _nodes(graph), graph._relations[0].canonical[::2]):
        one = one.as_subclass(Tensor)
        counts = summed(torch.bincount(one, minlength=graphs))
        first = counts.cumsum(0) - counts
        own = originals(graph._state, kind).of_own(nodes)

        def check(one: Tensor = one, own: Tensor = own, first: Tensor = first, counts: Tensor = counts) -> None:
            if len(one) != len(own):
                raise ValueError(f"batched_negative_sampling: a batch vector of {len(one)} for {len(own)} own nodes")
            if bool(((own < first[one]) | (own >= (first + counts)[one])).any()):
                raise ValueError(
                    "batched_negative_sampling: batch does not ascend with the original ids of nodes: number graphs "
                    "in the order of their nodes before the graph is partitioned"
                )

        all_or_none("sar.batched_negative_sampling", check)
        ends.append(list(zip(first.tolist(), counts.tolist())))
    square = batch[0] is batch[1]
    return [Space(source, target, square) for source, target in zip(*ends)]


def _as_given(edges: Given, graph: GraphShardManager, drawn: List[Drawn]) -> Given:
    """Pairs as edges, in the form in which edges were given. Collective."""
    made = graph_of_pairs(graph, torch.cat([d.sources for d in drawn]), torch.cat([d.rows for d in drawn]))
    found: Union[GraphShardManager, SplitEdgeIndex] = made if isinstance(edges, GraphShardManager) else edge_index(made)
    return found  # type: ignore[return-value]
