"""What runs on the workers to test batches of sampled blocks."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import torch

import sar
from sar.sampling import loader as sampling_loader
from tests.sampling.cases_sampling import plain
from tests.support.worker import build, numpy, tensor


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
    made = sampling_loader.minibatch_partition(graph, ids, size, cache)
    name = f"{path}{len(made)}"
    read = sampling_loader.minibatch_partition(graph, ids, size, cache)
    with open(name, "r+b") as file:
        content = file.read()
        file.seek(0)
        file.write(b"\x80\x02damaged")
    mended = sampling_loader.minibatch_partition(graph, ids, size, cache)
    with open(name, "rb") as file:
        assert file.read() == content
    with open(name, "wb") as file:
        file.write(content[:20])
    cut = sampling_loader.minibatch_partition(graph, ids, size, cache)
    fewer = sampling_loader.minibatch_partition(graph, ids[1:], size, cache)
    loader = sar.DataLoader(graph, ids, sar.DistNeighborSampler([2]), size, optimized_batches_cache=cache, shuffle=True)
    import dgl

    yielded = [blocks[-1].dstdata[dgl.NID] for blocks in loader]
    return numpy({"made": made, "read": read, "mended": mended, "cut": cut, "fewer": fewer, "yielded": yielded})


def dgl_partition(part: dict[str, Any], seeds: np.ndarray, size: int) -> list[Any]:
    """minibatch_partition of a DGL graph whose ids are those of the whole graph, as ``sampling_graph`` gives it."""
    graph = build(part)
    return numpy(sampling_loader.minibatch_partition(graph.sampling_graph, torch.from_numpy(seeds), size))


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
    collator = sampling_loader.NodeCollator(graph, sar.DistNeighborSampler([-1], copy_edata=False))
    ids = torch.from_numpy(seeds)
    return [plain(collator.collate(list(ids)))[0], plain(collator.collate([ids[:2], ids[1:]]))[0]]


def leave_early(part: dict[str, Any], rank: int) -> None:
    """One rank raises in the middle of an epoch, while batches are on their way."""
    graph = build(part)
    own, sampler = torch.arange(*graph.tgt_node_range), sar.DistNeighborSampler([2, 2])
    loader = sar.DataLoader(graph, own, sampler, 1, precompute_optimized_batches=False)
    for turn, _ in enumerate(loader):
        if turn == 3 and rank == 1:
            from sar._engine import abi, session as _session

            with contextlib.suppress(RuntimeError):
                abi.session_abort(_session.current().handle, "ValueError: a bug of the script")
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
