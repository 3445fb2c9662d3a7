"""What runs on the workers to test sampling. Blocks come back as numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import sar
from tests.support.worker import build, data_of, numpy, settings, tensor


def plain(blocks: list[Any]) -> list[dict[str, Any]]:
    """Blocks as ids and edges by relation, with their columns."""
    import dgl

    out = []
    for block in blocks:
        relations = {}
        for triple in block.canonical_etypes:
            u, v = block.edges(etype=triple)
            relations[triple] = {"u": u, "v": v, "columns": dict(block.edges[triple].data)}
        sides = {
            "src": {t: dict(block.srcnodes[t].data) for t in block.srctypes},
            "dst": {t: dict(block.dstnodes[t].data) for t in block.dsttypes},
        }
        ids = {side: {t: columns.pop(dgl.NID) for t, columns in types.items()} for side, types in sides.items()}
        out.append({**ids, "srcdata": sides["src"], "dstdata": sides["dst"], "relations": relations})
    return [widened(block) for block in out]


def widened(tree: Any) -> Any:
    """The same as numpy, which has no bfloat16."""
    if isinstance(tree, torch.Tensor) and tree.dtype == torch.bfloat16:
        return numpy(tree.float())
    return {k: widened(v) for k, v in tree.items()} if isinstance(tree, dict) else numpy(tree)


def batches(
    part: dict[str, Any],
    seeds: Any,
    fanouts: list[Any],
    inputs: dict[str, Any] | None = None,
    outputs: dict[str, Any] | None = None,
    edata: dict[str, np.ndarray] | None = None,
    seed: int = 0,
    epochs: int = 1,
    threads: int = 1,
    loader: dict[str, Any] | None = None,
    bfloat16: tuple[str, ...] = (),
    **options: Any,
) -> list[list[Any]]:
    """All batches of some epochs."""

    def given(tree: Any, name: str = "") -> Any:
        if isinstance(tree, dict):
            return {k: given(v, k) for k, v in tree.items()}
        found = tensor(tree)
        assert found is not None
        return found.bfloat16() if name in bfloat16 else found

    sar.set_num_threads(threads)
    try:
        if "etype" in part:
            graph: Any = sar.construct_full_graph(data_of(part, edata))
        else:
            graph = build(part)
            for name, column in (edata or {}).items():
                graph.edata[name] = given(column, name)
        torch.manual_seed(seed)
        sampler = sar.DistNeighborSampler(
            fanouts,
            input_node_features=None if inputs is None else given(inputs),
            output_node_features=None if outputs is None else given(outputs),
            **options,
        )
        made = sar.DataLoader(graph, given(seeds), sampler, **{"precompute_optimized_batches": False, **(loader or {})})
        found = []
        for _ in range(epochs):
            epoch = [plain(blocks) for blocks in made]
            assert len(epoch) == len(made)
            found.append(epoch)
        return found
    finally:
        sar.set_num_threads(1)


def again(part: dict[str, Any], seeds: np.ndarray) -> list[Any]:
    """The same seed twice, another one, and the same one with more threads."""
    loader = {"batch_size": 4, "shuffle": True}
    return [
        batches(part, seeds, [3, 5], seed=seed, threads=threads, loader=loader)
        for seed, threads in ((1, 1), (1, 1), (2, 1), (1, 3))
    ]


def cached(part: dict[str, Any], width: int) -> tuple[int, int, int, int]:
    """Bytes sent in a first epoch, which takes all nodes with all edges, and in a second one; bytes that the cache
    holds, and how many nodes of the other rank the epochs met."""
    import dgl

    graph = build(part)
    low, high = graph.tgt_node_range

    def features() -> int:
        return sar.memory_stats()["features"]["live"]

    def sent() -> int:
        return sum(kind["sent_bytes"] for kind in sar.stats()["operations"].values())

    x, before = torch.rand(high - low, width), features()
    sampler = sar.DistNeighborSampler([-1], input_node_features={"x": x}, feature_cache_bytes=1 << 30)
    counts, met = [sent()], 0
    for _ in range(2):
        ids = sampler.sample(graph, torch.arange(low, high))[0].srcdata[dgl.NID]
        met = int(((ids < low) | (ids >= high)).sum())
        sar.comm.barrier()
        counts.append(sent())
    return counts[1] - counts[0], counts[2] - counts[1], features() - before, met


def same_node(part: dict[str, Any], node: int) -> list[int]:
    """The edges that this rank gets for one node of rank 0, drawn with the same random seed everywhere. Every other
    rank meets it as the source of an edge into each of its own nodes."""
    graph = build(part)
    torch.manual_seed(3)
    own = torch.arange(*graph.tgt_node_range)
    blocks = sar.DistNeighborSampler([4, -1]).sample(graph, own)
    import dgl

    at = (blocks[0].dstdata[dgl.NID] == node).nonzero().view(-1)
    if len(at) == 0:
        return []
    _, _, edges = blocks[0].in_edges(at, form="all")
    return sorted(blocks[0].edata[dgl.EID][edges].tolist())


def changed(part: dict[str, Any], x: np.ndarray, seeds: np.ndarray) -> str:
    """Features changed in place, replaced, and made of columns of a wider tensor."""
    import dgl

    graph, ids = build(part), torch.from_numpy(seeds)
    first = graph.tgt_node_range[0]
    rows = tensor(x)
    assert rows is not None
    features = {"x": rows}
    sampler = sar.DistNeighborSampler([3], output_node_features=features)

    def holds(expected: torch.Tensor) -> None:
        block = sampler.sample(graph, ids)[0]
        assert torch.equal(block.dstdata["x"], expected[block.dstdata[dgl.NID] - first])

    holds(rows)
    rows += 1
    holds(rows)
    features["x"] = rows.double() * 2
    holds(rows.double() * 2)
    wide = torch.stack([rows, -rows], dim=-1)
    features["x"] = wide[..., 1]
    holds(-rows)
    wide += 5
    holds(-rows + 5)
    return "done"


def refused(part: dict[str, Any], x: np.ndarray) -> list[tuple[str, str]]:
    """What is refused before anything is sent, so that the session goes on."""
    graph = build(part)
    low, high = graph.tgt_node_range
    own, rows = torch.arange(low, high), torch.from_numpy(x)
    graph.edata["p"] = -torch.ones(graph.num_edges())
    graph.edata["wide"] = torch.ones(graph.num_edges(), 2)
    sampler = sar.DistNeighborSampler([2])

    def loader(seeds: Any, size: int = 4, **options: Any) -> Any:
        return sar.DataLoader(graph, seeds, sar.DistNeighborSampler([2], **options), size)

    calls = [
        lambda: sar.DistNeighborSampler([]),
        lambda: sampler.sample(graph, own + 1),
        lambda: sampler.sample(graph, own.float()),
        lambda: sampler.sample(graph, {"user": own}),
        lambda: loader(own - 1),
        lambda: loader(own, size=0),
        lambda: sar.DistNeighborSampler([2, -3]).sample(graph, own),
        lambda: sar.DistNeighborSampler([{"likes": 2}]).sample(graph, own),
        lambda: sar.DistNeighborSampler([2], prob="q").sample(graph, own),
        lambda: sar.DistNeighborSampler([2], prob="p").sample(graph, own),
        lambda: sar.DistNeighborSampler([2], prob="wide").sample(graph, own),
        lambda: sar.DistNeighborSampler([2], input_node_features={"x": rows[1:]}).sample(graph, own),
        lambda: sar.DistNeighborSampler([2], input_node_features={"x": {"user": rows}}).sample(graph, own),
    ]
    found = []
    for call in calls:
        try:
            call()
        except (ValueError, KeyError, TypeError) as error:
            found.append((type(error).__name__, str(error)))
        else:
            found.append(("nothing", ""))
    sar.comm.barrier()
    return found


def unlike(part: dict[str, Any], fanouts: list[int], width: int | None) -> None:
    """Samplers that differ between ranks."""
    graph = build(part)
    low, high = graph.tgt_node_range
    features = None if width is None else {"x": torch.zeros(high - low, width)}
    sampler = sar.DistNeighborSampler(fanouts, input_node_features=features)
    for _ in range(2):
        sampler.sample(graph, torch.arange(low, high))


def too_wide(part: dict[str, Any], width: int) -> str:
    """Rows that the window cannot carry, until it is made larger."""
    graph = build(part)
    own = torch.arange(*graph.tgt_node_range)
    features = {"x": torch.full((len(own), width), sar.rank(), dtype=torch.uint8)}
    sampler = sar.DistNeighborSampler([-1], input_node_features=features)
    try:
        sampler.sample(graph, own)
    except sar.BudgetError as error:
        assert "window_bytes" in str(error)
        with settings(window_bytes=error.minimum):
            block = sampler.sample(graph, own)[0]
        assert sorted(block.srcdata["x"].float().mean(1).tolist()) == [0, 0, 1, 1]
        return "done"
    raise AssertionError("rows of 2 MiB went through a window of 16 MiB")
