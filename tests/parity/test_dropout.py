"""Dropout drawn by seed, node and column: which elements go, and the gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sar
import sar.nn
from tests.parity import cases_dropout as cases
from tests.support import hetero
from tests.support.graphs import close, make
from tests.support.pool import Pool
from tests.support.sessions import Workers


def mix(x: np.ndarray) -> np.ndarray:
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def dropped(seed: int, nodes: int, width: int, share: float, kind: int = 0) -> np.ndarray:
    """Which elements of the rows of nodes 0, 1, .. of a type are dropped."""
    keys = (np.arange(nodes, dtype=np.uint64) + np.uint64(kind << 48)) * np.uint64(0x9E3779B97F4A7C15)
    both = mix(mix(np.array([seed], np.uint64)) ^ keys)[:, None]
    h = both.astype(np.uint32) + np.arange(width, dtype=np.uint32) * np.uint32(0x9E3779B9)
    h = (h ^ h >> 16) * np.uint32(0x21F0AAAD) ^ (both >> np.uint64(32)).astype(np.uint32)
    h = (h ^ h >> 15) * np.uint32(0x735A2D97)
    return np.asarray((h ^ h >> 15) >> 1 < round(share * 2**31))


@pytest.mark.parametrize("way", ["modules", "functions", "checkpoint"])
def test_masks_and_gradients(few: Workers, way: str) -> None:
    """Each number of workers drops what the ids of nodes say, and gradients are those of these masks in float64."""
    share = 0.4
    graph = make("random", few.world, seed=80)
    rng = np.random.default_rng(81)
    x, grad = rng.standard_normal((graph.num_nodes, 24)), rng.standard_normal((graph.num_nodes, 5))
    found = few.run(cases.step, graph.shares(x=x, grad=grad), share=share, way=way)
    torch.manual_seed(cases.SEED)
    seeds = [int(torch.randint(0, 2**63 - 1, (1,))), int(torch.randint(1 << 53, ())) + 1]
    seeds += [int(torch.randint(0, 2**63 - 1, (1,))) for _ in range(1 + (way == "modules"))]
    if way == "modules":  # which draws for itself
        del seeds[1]
    for rank, one in enumerate(found):
        assert "Dropout" in one["described"] and "drawn by node" in one["described"]
        assert one["eval"]
        for key, value in one["one"].items():
            close(value, one["apart"][key], key)
        for seed, seen, later in zip(seeds, one["seen"], one["later"]):
            gone = dropped(seed, graph.num_nodes, seen.shape[1], share)[graph.rows(rank)]
            assert not seen[gone].any() and not np.array_equal(seen == 0, later == 0)
        gone = dropped(seeds[0], graph.num_nodes, 24, share)[graph.rows(rank)]
        np.testing.assert_array_equal(one["seen"][0] == 0, gone)


def test_as_torch() -> None:
    """Nothing dropped, all dropped, evaluation, and two dropouts of one tensor."""
    torch.manual_seed(0)
    norm, x = sar.DistributedBN1D(60, distributed=False), torch.randn(50, 60, requires_grad=True)
    h = norm(x)
    assert F.dropout(h, 0.0) is h and F.dropout(h, 0.5, training=False) is h
    a, b = F.dropout(h, 0.5), F.dropout(h, 0.5)
    assert not torch.equal(a == 0, b == 0)
    assert abs((a == 0).double().mean().item() - 0.5) < 0.05
    gone = F.dropout(norm(x), 1.0)
    gone.sum().backward()
    assert not gone.any() and x.grad is not None and not x.grad.any()
    for act in (sar.nn.BatchNormAct(60, "elu", 1.0, distributed=False), nn.Dropout(1.0)):
        assert not act(x).any()
    with pytest.raises(ValueError, match="between 0 and 1"):
        F.dropout(norm(x), 1.5)


def test_node_types(pool: Pool) -> None:
    """Rows of each type draw by type and original id, for any number of workers, although a worker may have as many
    nodes of one type as of another."""
    share, width = 0.4, 24
    ends, features = hetero.edges(), hetero.features(3, width)
    torch.manual_seed(cases.SEED)
    seeds = [[int(torch.randint(0, 2**63 - 1, (1,))), int(torch.randint(1 << 53, ())) + 1] for _ in hetero.KINDS]
    for world in (1, 2, 4):
        cuts = (hetero.Cut(world, seed) for seed in range(200))
        cut = next(c for c in cuts if world == 1 or any(0 < c.counts[0, p] == c.counts[2, p] for p in range(world)))
        each = []
        for rank in range(world):
            own = {kind: cut.rows(kind, rank) for kind in hetero.KINDS}
            x = {kind: features[kind][rows] for kind, rows in own.items()}
            each.append({"part": cut.part(rank, ends), "own": own, "x": x})
        for rank, found in enumerate(Workers(pool, world, "shm").run(cases.typed, each, share=share)):
            for n, (kind, nodes) in enumerate(hetero.KINDS.items()):
                for seed, gone in zip(seeds[n], found[kind]):
                    wanted = dropped(seed, nodes, width, share, n)[cut.rows(kind, rank)]
                    np.testing.assert_array_equal(gone, wanted, f"{kind}, {world} workers, rank {rank}")


def test_prepared_modules_compile(two: Workers) -> None:
    assert all(two.run(cases.compiled, make("random", 2, seed=82).shares()))
