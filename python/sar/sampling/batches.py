"""Which seeds make a batch, agreed among workers; batches with few edges between them."""

from __future__ import annotations

import os
from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from sar._engine import abi, session as _session
from sar._engine.log import log_once, logger
from sar.distributed.agreement import equal_on_all
from sar.graph.queries import edge_ends

_MAGIC = 0x31_48_43_54_42_52_41_53  # "SARBTCH1", as files hold it


class Count(NamedTuple):
    """How many batches every worker yields, and the seeds of the worker that has most."""

    batches: int
    most_seeds: int


def agree(n_seeds: int, batch_size: int, drop_last: bool) -> Count:
    """Collective."""
    whole, rest = divmod(n_seeds, batch_size)
    return Count(*equal_on_all((), (whole if drop_last else whole + (rest > 0), n_seeds), abi.REDUCE)[1])


def in_sequence(n_seeds: int, batch_size: int, count: Count, shuffle: bool) -> List[Tensor]:
    """Places of the seeds of each batch, in order or shuffled. A worker with too few repeats its own."""
    order = _order(n_seeds, shuffle)
    if n_seeds == 0:
        return [order] * count.batches
    missing = min(count.batches * batch_size, count.most_seeds) - n_seeds
    if len(order.split(batch_size)) < count.batches:
        _say_repeated(n_seeds, count)
        while missing > 0:
            more = _order(n_seeds, shuffle)[:missing]
            order, missing = torch.cat([order, more]), missing - len(more)
    return list(order.split(batch_size))[: count.batches]


def _order(n: int, shuffle: bool) -> Tensor:
    return torch.randperm(n) if shuffle else torch.arange(n)


def _say_repeated(n_seeds: int, count: Count) -> None:
    log_once(
        f"repeated seeds {n_seeds} {count}",
        f"this worker has {n_seeds} seed nodes and another has {count.most_seeds}: some of its seeds are repeated, so "
        f"that every worker yields {count.batches} batches",
    )


def precomputed(
    seeds: Tensor,
    batch_size: int,
    cache: Optional[str],
    edges: Callable[[], Tuple[Tensor, Tensor, int]],
    first: int = 0,
) -> List[Tensor]:
    """The batches of :func:`sar.core.sampling.minibatch_partition`. Collective.

    :param seeds: int64 ids; repeated ones count once
    :param edges: makes what :func:`few_edges_between` needs, in which a seed is the node ``seed - first``
    """
    seeds = torch.unique(seeds)
    count = agree(len(seeds), batch_size, drop_last=False)
    path = cache_file(cache, count.batches) if cache else None
    found = load(path, seeds, count.batches) if path else None
    if found is None:
        found = [seeds[places] for places in few_edges_between(*edges(), seeds - first, count)]
        if path:
            store(path, found)
    return found


def few_edges_between(src: Tensor, dst: Tensor, num_nodes: int, seeds: Tensor, count: Count) -> List[Tensor]:
    """Places of the seeds of each batch, such that seeds of a batch have neighbours in common.

    :param src: int64 ``[n]``: edges among ``num_nodes`` nodes
    :param dst: int64 ``[n]``
    :param seeds: int64, nodes, none twice
    :returns: ``count.batches`` tensors whose lengths differ by at most 1
    """
    parts, n = count.batches, len(seeds)
    if n == 0:
        return [torch.empty(0, dtype=torch.int64)] * parts
    if n < parts:
        _say_repeated(n, count)
        return [torch.tensor([i % n]) for i in range(parts)]
    assignment = _metis(src, dst, num_nodes, seeds, parts) if parts > 1 else torch.zeros(n, dtype=torch.int64)
    assignment = _even(assignment, parts)
    order = assignment.argsort(stable=True)
    return list(order.split(torch.bincount(assignment, minlength=parts).tolist()))


def _metis(src: Tensor, dst: Tensor, num_nodes: int, seeds: Tensor, parts: int) -> Tensor:
    """The part of each seed."""
    try:
        import pymetis
    except ImportError:
        log_once(
            "pymetis",
            "pymetis is not installed: precomputed batches are runs of consecutive seeds; `pip install pymetis` for "
            "batches with fewer edges between them",
        )
        return torch.arange(len(seeds)) * parts // len(seeds)
    both = torch.cat([src * num_nodes + dst, dst * num_nodes + src])
    keys = torch.unique(both[torch.cat([src, src]) != torch.cat([dst, dst])])  # sorted: row by row
    rows, columns = keys // max(1, num_nodes), keys % max(1, num_nodes)
    indptr = torch.zeros(num_nodes + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(rows, minlength=num_nodes), 0, out=indptr[1:])
    weights = torch.zeros(num_nodes, dtype=torch.int64)
    weights[seeds] = 1
    _, membership = pymetis.part_graph(
        parts, xadj=indptr.tolist(), adjncy=columns.tolist(), vweights=weights.tolist(), recursive=False
    )
    return torch.tensor(membership, dtype=torch.int64)[seeds]


def _even(assignment: Tensor, parts: int) -> Tensor:
    """Moves as few members as it takes to make sizes differ by at most 1."""
    sizes = torch.bincount(assignment, minlength=parts)
    base, extra = divmod(len(assignment), parts)
    target = torch.full_like(sizes, base)
    target[sizes.argsort(descending=True, stable=True)[:extra]] += 1
    order = assignment.argsort(stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order)) - (sizes.cumsum(0) - sizes)[assignment[order]]
    spilled = (place >= target[assignment]).nonzero().view(-1)
    assignment = assignment.clone()
    assignment[spilled] = torch.repeat_interleave(torch.arange(parts), (target - sizes).clamp(min=0))
    return assignment


# ---- files -----------------------------------------------------------------


def cache_file(prefix: str, batches: int) -> str:
    """The file of this worker's batches."""
    return f"{prefix}_{_session.current().rank}_{batches}"


def load(path: str, seeds: Tensor, batches: int) -> Optional[List[Tensor]]:
    """The batches in a file, if it holds these seeds in so many batches; ``None``, with a line in the log, if not."""
    if not os.path.exists(path):
        return None
    size = os.path.getsize(path) // 8
    numbers = torch.from_file(path, shared=False, size=size, dtype=torch.int64).clone() if size >= 3 else torch.zeros(3)
    if int(numbers[0]) == _MAGIC and int(numbers[1]) == batches and len(numbers) >= 2 + batches:
        lengths, ids = numbers[2 : 2 + batches], numbers[2 + batches :]
        if bool((lengths >= 0).all()) and int(lengths.sum()) == len(ids):
            held, wanted = torch.unique(ids), torch.unique(seeds)
            if held.shape == wanted.shape and bool((held == wanted).all()):
                logger.info(f"precomputed batches are read from {path}")
                return list(ids.split(lengths.tolist()))
    logger.warning(f"{path} does not hold batches of these seeds: it is made again")
    return None


def store(path: str, batches: List[Tensor]) -> None:
    """Writes a file that :func:`load` reads: int64 numbers; magic, number of batches, their lengths, their ids."""
    numbers = torch.cat([torch.tensor([_MAGIC, len(batches)] + [len(b) for b in batches], dtype=torch.int64), *batches])
    temporary = f"{path}.{os.getpid()}"
    target = torch.from_file(temporary, shared=True, size=len(numbers), dtype=torch.int64)
    target.copy_(numbers)
    del target
    os.replace(temporary, path)
    logger.info(f"precomputed batches are written to {path}")


def local_edges(graph: Any) -> Tuple[Tensor, Tensor, int]:
    """The edges between own nodes of a graph manager, all relations together, and the number of own nodes. Nodes are
    numbered over all types, from the worker's first one."""
    nodes = graph._state.nodes
    ends = []
    for relation in graph._relations:
        source, _, target = relation.canonical
        src, dst = edge_ends(relation)
        own = src < relation.num_src
        ends.append((src[own] + nodes[source].offset, dst[own] + nodes[target].offset))
    total = sum(info.num_own for info in nodes.values())
    return torch.cat([s for s, _ in ends]), torch.cat([d for _, d in ends]), total
