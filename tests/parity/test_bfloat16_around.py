"""bfloat16 in what surrounds training: inference, rematerialization, checkpoints, files, sampling, heterographs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch

from tests.parity import cases_bfloat16_around as cases
from tests.parity.test_bfloat16 import HALF, SINGLE, check, half, with_loops
from tests.parity.test_hetero import CITES, SIZES, Oracle, dgl_graph
from tests.support import hetero
from tests.support.command import run_sar
from tests.support.graphs import Graph, make
from tests.support.pool import Pool
from tests.support.sessions import Workers

KINDS = ["dgl sage", "dgl gcn", "dgl gat", "pyg sage", "pyg gcn", "pyg gat"]


def split(world: int) -> Graph:
    """The same graph for any number of workers."""
    return with_loops(make("random", 1, seed=3))._replace(start=make("random", world, seed=3).start)


def rows(width: int = cases.WIDTH, seed: int = 2) -> np.ndarray:
    return half(np.random.default_rng(seed).standard_normal((61, width)))


def alone(kind: str, mode: str, graph: Graph, x: np.ndarray) -> torch.Tensor:
    """What plain DGL or PyG has in evaluation mode; where DGL raises, in float32."""
    index = torch.from_numpy(np.stack([graph.src, graph.dst])) if kind.startswith("pyg") else graph.of_dgl()
    for dtype, cast in ((HALF, mode == "autocast"), (SINGLE, False)):
        model = cases.net(kind).eval()
        model = model.bfloat16() if mode == "half" and dtype == HALF else model
        try:
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=cast):
                found: torch.Tensor = model(index, torch.from_numpy(x).to(getattr(torch, dtype)))
            return found
        except (RuntimeError, dgl.DGLError):
            continue
    raise AssertionError(kind)


def test_inference(pool: Pool) -> None:
    """Layers by blocks of columns and features that are read again give what plain libraries give, on any number of
    workers."""
    x, first = rows(), {}
    for world in (1, 2, 3):
        graph = split(world)
        found = Workers(pool, world, "shm").run(cases.inferred, graph.shares(x=x), kinds=KINDS)
        for key in ((kind, mode) for kind in KINDS for mode in ("half", "autocast")):
            whole = np.concatenate([one[key][1] for one in found])
            exact = alone(key[0], "single", graph, x) if world == 1 else None
            if exact is not None:
                plain = alone(*key, graph, x)
                raises = "gat" in key[0] and key[0].startswith("dgl") and key[1] == "autocast"
                assert raises or found[0][key][0] == str(plain.dtype)[6:], key
                error, by_plain = (np.linalg.norm(a - exact.double().numpy()) for a in (whole, plain.double().numpy()))
                assert error <= 1.5 * by_plain + 2**-6 * np.linalg.norm(exact.double().numpy()), (key, error, by_plain)
            wanted = first.setdefault(key, whole)
            assert np.abs(whole - wanted).max() <= 2**-6 * max(1.0, np.abs(wanted).max()), f"{key}, {world} workers"


def test_computed_again(pool: Pool) -> None:
    for world in (1, 3):
        found = Workers(pool, world, "shm").run(cases.again, split(world).shares(x=rows()), kinds=KINDS)
        assert found == [[]] * world


def files(folder: Path, parts: int, form: str = "sar") -> str:
    graph = split(1)
    edges = np.stack([graph.src, graph.dst])
    np.savez(folder / "g.npz", edge_index=edges, features=np.random.default_rng(2).standard_normal((61, cases.WIDTH)))
    words = ("--method", "random", "--format", form, "--features-dtype", HALF, "--out", folder / f"{form}{parts}")
    run = run_sar("partition", folder / "g.npz", "-n", parts, *words)
    assert run.returncode == 0, run.stderr
    return str(next((folder / f"{form}{parts}").glob("*.json")))


def test_checkpoints(pool: Pool, tmp_path: Path) -> None:
    """Parameters, moments and rows of nodes in bfloat16, saved by two workers and loaded by three."""
    for world, save in ((2, True), (3, False), (1, False)):
        arguments = {"path": files(tmp_path, world), "folder": str(tmp_path), "save": save}
        assert Workers(pool, world, "shm").run(cases.checkpointed, **arguments) == [[]] * world


@pytest.mark.parametrize("form", ["sar", "dgl"])
def test_mapped_features(pool: Pool, tmp_path: Path, form: str) -> None:
    """Features in bfloat16 that stay in their files give the bits of those in memory."""
    for world in (1, 2):
        path = files(tmp_path, world, form)
        memory, mapped = (
            Workers(pool, world, "shm").run(cases.trained, path=path, how=how, kinds=["dgl sage", "dgl gat", "pyg gcn"])
            for how in ("memory", "mapped")
        )
        for a, b in zip(memory, mapped):
            assert a.pop("dtype") == b.pop("dtype") == f"torch.{HALF}"
            assert not a.pop("mapped") and b.pop("mapped") >= 2 * cases.WIDTH
            assert a == b


def test_sampled_blocks(two: Workers) -> None:
    assert two.run(cases.sampled, split(2).shares(x=rows(12))) == [[], []]


def test_blocks(pool: Pool) -> None:
    for world in (1, 3):
        for one in Workers(pool, world, "shm").run(cases.mfgs, split(world).shares(x=rows(12))):
            for mode, (block, whole) in one.items():
                check(block, whole[1], HALF, mode, floor=2**-7)


def test_heterographs(pool: Pool) -> None:
    """Results and gradients of a heterograph's convolutions: as near to DGL's in float64 as bfloat16 is."""
    ends = hetero.edges()
    whole = dgl_graph(ends)
    oracle = Oracle(whole, True, None)
    exact = cases.rgcn(whole, SIZES, oracle.x, oracle.grad, "single")
    for world in (1, 2, 3):
        cut, arguments = hetero.Cut(world), []
        for rank in range(world):
            own = {kind: cut.rows(kind, rank) for kind in hetero.KINDS}
            part, mine = cut.part(rank, ends), cut.held(CITES, ends, rank)
            column = np.zeros((len(part["src"]), 1))
            column[part["etype"] == hetero.TRIPLES.index(CITES)] = oracle.loaded[mine]
            source = {"part": part, "features": {"w": column}}
            cuts = {n: {k: v[own[k]] for k, v in of.items()} for n, of in (("x", oracle.x), ("grad", oracle.grad))}
            arguments.append({"source": source, **cuts})
        for mode in ("half", "autocast"):
            found = Workers(pool, world, "shm").run(cases.rgcn, arguments, sizes=SIZES, mode=mode)
            for of in ("out", "rows"):
                for kind in exact[of]:
                    parts = [one[of][kind] for one in found]
                    assert {dtype for dtype, _ in parts} <= {HALF if mode == "half" else SINGLE}, (of, kind, mode)
                    joined = np.zeros_like(exact[of][kind][1])
                    for rank, (_, numbers) in enumerate(parts):
                        joined[cut.rows(kind, rank)] = numbers
                    _near(joined, exact[of][kind][1], f"{of} of {kind}, {mode}")
            for name, (_, numbers) in exact["parameters"].items():
                dtype, gradient = found[0]["parameters"][name]
                assert dtype == (HALF if mode == "half" else SINGLE), name
                _near(gradient, numbers, f"gradient of {name}, {mode}")


def _near(found: np.ndarray, exact: np.ndarray, what: str) -> None:
    error = np.linalg.norm(found - exact) / max(1e-3, np.linalg.norm(exact))
    assert error < 2**-5, f"{what}: {error}"


def test_streams(pool: Pool) -> None:
    """Functions in Python on blocks of a few edges: forward's rows travel in two bytes a number, and gradients are
    added up in float32."""
    graph, x = split(1), rows(5)
    leaf = torch.from_numpy(x).double().requires_grad_()
    src, dst = torch.from_numpy(graph.src), torch.from_numpy(graph.dst)
    message = torch.erf(leaf) * leaf
    y = torch.zeros(61, 5, dtype=torch.double).index_add(0, dst, message[src])
    y.square().sum().backward()
    assert leaf.grad is not None
    first: Any = None
    for world in (1, 2, 3):
        found = Workers(pool, world, "shm").run(cases.streamed, split(world).shares(x=x))
        joined = {key: np.concatenate([one[key][1] for one in found]) for key in ("y", "x")}
        assert {one[key][0] for one in found for key in ("y", "x")} == {HALF}
        _near(joined["y"], y.detach().numpy(), "y")
        _near(joined["x"], leaf.grad.numpy(), "gradient")
        first = first or joined
        for key in joined:
            check((HALF, joined[key]), first[key], HALF, f"{key}, {world} workers")


def test_sums_are_rounded_where_they_lie(two: Workers) -> None:
    """Under the pool float32 sums lie where their result does, and in what is free behind it: the same bits as in
    memory of their own, of which half is needed."""
    rng, nodes, width = np.random.default_rng(9), 6000, 64
    graph = Graph(nodes, *rng.integers(0, nodes, (2, 30_000)), np.array([0, 3000, nodes]))
    x = rng.standard_normal((nodes, width), dtype=np.float32)
    apart, within = (two.run(cases.by_policy, graph.shares(x=x), policy=policy) for policy in ("compact", "pool"))
    for one, other in zip(apart, within):
        for key in ("y", "z", "x"):
            assert np.array_equal(one[key][1], other[key][1]), key
        assert one["scratch"] >= 4 * 3000 * width
        assert other["scratch"] < 0.7 * one["scratch"]
