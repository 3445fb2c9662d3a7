"""What runs on the workers to test sampling. Blocks come back as numpy."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import torch

import sar
from cases import build, numpy, tensor
from cases_blocks import data_of
from sar.core import sampling


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


def interleaved(part: dict[str, Any], x: np.ndarray, seeds: np.ndarray) -> str:
    """Training, collectives, an abandoned epoch and two loaders at a time, all while batches are on their way."""
    import dgl

    graph, rows = build(part), tensor(x)
    ids = tensor(seeds)
    assert rows is not None and ids is not None
    low, high = graph.tgt_node_range

    def loader(fanouts: list[int], size: int) -> Any:
        sampler = sar.DistNeighborSampler(fanouts, input_node_features={"x": rows})
        return sar.DataLoader(graph, ids, sampler, size, precompute_optimized_batches=False)

    def right(blocks: list[Any]) -> None:
        met, got = blocks[0].srcdata[dgl.NID], blocks[0].srcdata["x"]
        mine = (met >= low) & (met < high)
        assert torch.equal(got[mine], rows[met[mine] - low]) and len(got) == len(met)

    first, second = loader([2, 2], 3), loader([-1], 5)

    for turn, (a, b) in enumerate(zip(first, second)):
        right(a)
        right(b)
        graph.srcdata["h"] = rows.float()
        graph.update_all(sar.function.copy_u("h", "m"), sar.function.sum("m", "out"))
        total = torch.ones(1)
        sar.comm.all_reduce(total, torch.distributed.ReduceOp.SUM)
        assert int(total) == sar.world_size()
        if turn == 2:
            break
    for turn, blocks in enumerate(first):  # abandoned, with batches ahead
        right(blocks)
        if turn == 1:
            break
    window = sar.Config.window_bytes
    try:
        for turn, blocks in enumerate(second):
            right(blocks)
            if turn == 0:
                sar.Config.window_bytes = 4 << 20
                graph.update_all(sar.function.copy_u("h", "m"), sar.function.sum("m", "out"))
    finally:
        sar.Config.window_bytes = window
    graph.update_all(sar.function.copy_u("h", "m"), sar.function.sum("m", "out"))
    del first, second
    return "done"


def precomputed(part: dict[str, Any], seeds: np.ndarray, size: int, cache: str) -> dict[str, Any]:
    """Batches with few edges between them: made, read from files, and made again where files are of no use."""
    graph, ids = build(part), torch.from_numpy(seeds)
    path = f"{cache}_{sar.rank()}_"
    made = sampling.minibatch_partition(graph, ids, size, cache)
    name = f"{path}{len(made)}"
    read = sampling.minibatch_partition(graph, ids, size, cache)
    with open(name, "r+b") as file:
        content = file.read()
        file.seek(0)
        file.write(b"\x80\x02damaged")
    mended = sampling.minibatch_partition(graph, ids, size, cache)
    with open(name, "rb") as file:
        assert file.read() == content
    with open(name, "wb") as file:
        file.write(content[:20])
    cut = sampling.minibatch_partition(graph, ids, size, cache)
    fewer = sampling.minibatch_partition(graph, ids[1:], size, cache)
    loader = sar.DataLoader(graph, ids, sar.DistNeighborSampler([2]), size, optimized_batches_cache=cache, shuffle=True)
    import dgl

    yielded = [blocks[-1].dstdata[dgl.NID] for blocks in loader]
    return numpy({"made": made, "read": read, "mended": mended, "cut": cut, "fewer": fewer, "yielded": yielded})


def dgl_partition(part: dict[str, Any], seeds: np.ndarray, size: int) -> list[Any]:
    """minibatch_partition of a DGL graph whose ids are those of the whole graph, as ``sampling_graph`` gives it."""
    graph = build(part)
    return numpy(sampling.minibatch_partition(graph.sampling_graph, torch.from_numpy(seeds), size))


class Recording:
    """A sampler of one's own."""

    def sample(self, graph: Any, seeds: torch.Tensor) -> list[Any]:
        assert seeds.tolist() == sorted(set(seeds.tolist()))
        return [seeds]


def own_sampler(part: dict[str, Any], seeds: np.ndarray) -> list[Any]:
    graph = build(part)
    loader = sar.DataLoader(graph, torch.from_numpy(seeds), Recording(), 4, precompute_optimized_batches=False)
    return [numpy(blocks[0]) for blocks in loader]


def collated(part: dict[str, Any], seeds: np.ndarray) -> list[Any]:
    """NodeCollator, with single ids and with a batch."""
    graph = build(part)
    collator = sampling.NodeCollator(graph, sar.DistNeighborSampler([-1], copy_edata=False))
    ids = torch.from_numpy(seeds)
    return [plain(collator.collate(list(ids)))[0], plain(collator.collate([ids[:2], ids[1:]]))[0]]


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
    window = sar.Config.window_bytes
    try:
        sampler.sample(graph, own)
    except sar.BudgetError as error:
        assert "window_bytes" in str(error)
        sar.Config.window_bytes = error.minimum
        try:
            block = sampler.sample(graph, own)[0]
        finally:
            sar.Config.window_bytes = window
        assert sorted(block.srcdata["x"].float().mean(1).tolist()) == [0, 0, 1, 1]
        return "done"
    raise AssertionError("rows of 2 MiB went through a window of 16 MiB")


def leave_early(part: dict[str, Any], rank: int) -> None:
    """One rank raises in the middle of an epoch, while batches are on their way."""
    graph = build(part)
    own, sampler = torch.arange(*graph.tgt_node_range), sar.DistNeighborSampler([2, 2])
    loader = sar.DataLoader(graph, own, sampler, 1, precompute_optimized_batches=False)
    for turn, _ in enumerate(loader):
        if turn == 3 and rank == 1:
            from sar import _abi, _session

            with contextlib.suppress(RuntimeError):
                _abi.session_abort(_session.current().handle, "ValueError: a bug of the script")
            raise ValueError("a bug of the script")


def train(
    part: dict[str, Any],
    x: np.ndarray,
    y: np.ndarray,
    masks: np.ndarray,
    classes: int,
    fanouts: list[int],
    batch_size: int,
    epochs: int,
    hidden: int,
    seed: int = 0,
) -> float:
    """A sampled SAGE, then its accuracy on all test nodes with the full graph."""
    import dgl.nn
    from torch.nn.functional import cross_entropy, relu

    graph = build(part)
    features, labels = torch.from_numpy(x), torch.from_numpy(y)
    first = graph.tgt_node_range[0]
    torch.manual_seed(seed)
    sizes = [x.shape[1]] + [hidden] * (len(fanouts) - 1) + [classes]
    layers = torch.nn.ModuleList([dgl.nn.SAGEConv(a, b, "mean") for a, b in zip(sizes, sizes[1:])])

    def model(graphs: Any, h: torch.Tensor) -> torch.Tensor:
        for n, layer in enumerate(layers):
            h = layer(graphs[n], h)
            h = relu(h) if n < len(layers) - 1 else h
        return h

    sar.sync_params(layers)
    optimizer = torch.optim.Adam(layers.parameters(), lr=0.01)
    sampler = sar.DistNeighborSampler(
        fanouts, input_node_features={"x": features}, output_node_features={"y": labels}, copy_edata=False
    )
    seeds = torch.from_numpy(masks[0]).nonzero().view(-1) + first
    loader = sar.DataLoader(graph, seeds, sampler, batch_size, shuffle=True, precompute_optimized_batches=False)
    for _ in range(epochs):
        for blocks in loader:
            logits = model(blocks, blocks[0].srcdata["x"])
            target = blocks[-1].dstdata["y"]
            loss = cross_entropy(logits, target, reduction="sum") / max(1, len(target)) / sar.world_size()
            optimizer.zero_grad()
            loss.backward()
            sar.gather_grads(layers)
            optimizer.step()
    with torch.no_grad():
        right = model([graph] * len(fanouts), features).argmax(1) == labels
    test = torch.from_numpy(masks[1])
    counts = torch.tensor([float(right[test].sum()), float(test.sum())])
    sar.comm.all_reduce(counts, torch.distributed.ReduceOp.SUM)
    return float(counts[0] / counts[1])
