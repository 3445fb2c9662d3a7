"""Layers of DGL and PyG in bfloat16 against plain DGL and PyG: numbers, dtypes, bytes."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import dgl
import numpy as np
import pytest
import torch

from tests.parity import cases_bfloat16 as cases
from tests.parity.test_bfloat16 import HALF, SINGLE, half, with_loops
from tests.support.graphs import Graph, make
from tests.support.pool import Pool
from tests.support.sessions import Workers

DGL = (
    *("graph", "graph_left", "graph_widening", "graph_weights_normed"),
    *("sage_mean", "sage_mean_widening", "sage_pool", "gat", "gat_residual", "gatv2"),
    *("dot_gat", "agnn", "gin_max", "gine", "edge_conv_norm", "rel_graph", "nn_mean", "gmm", "egat", "tag"),
    *("avg_pooling", "attention_pooling"),
)
PYG = (
    *("gcn", "gcn_weights", "gcn_model", "sage", "sage_square", "sage_wide", "gat", "gatv2", "transformer", "gin"),
    "edge_conv",
)
PRODUCTS = {
    ("dgl", "prepared"): {"graph", "graph_left", "graph_widening"},
    ("pyg", "prepared"): {"gcn", "gatv2", "transformer"},
    ("pyg", "autocast"): {"gcn", "gatv2", "transformer"},
}
"""Layers whose product, or one of whose, is not torch's, which is slow on some processors."""
NAMES = {"dgl": DGL, "pyg": PYG, "columns": ("flat", "mean", "heads")}


class Alone:
    """Layers of a road on the whole graph, in float32 and as plain DGL or PyG has them in bfloat16."""

    def __init__(self, road: str, graph: Graph, names: tuple[str, ...]) -> None:
        self.library, self.graph, self.names = cases.LIBRARIES[road], graph, names
        self.whole = torch.from_numpy(np.stack([graph.src, graph.dst])) if road == "pyg" else graph.of_dgl()
        self.rows = {n: [self._half(x) for x in self.library.draw(graph, n, "float32")] for n in names}
        self.exact = {n: self.run(n, "single", None) for n in names}

    @staticmethod
    def _half(x: Any) -> Any:
        return half(x) if isinstance(x, np.ndarray) and x.dtype == np.float32 else x

    def run(self, name: str, mode: str, grads: Any) -> Any:
        """Of equal maxima, which rows in bfloat16 often are, libxsmm has the last win; all others the first."""
        before = dgl.is_libxsmm_enabled()
        dgl.use_libxsmm(False)
        try:
            return cases.run_layer(self.library, name, mode, self.whole, self.rows[name], grads, alone=True)
        finally:
            dgl.use_libxsmm(before)

    def plain(self, name: str, mode: str, grads: Any) -> Any:
        """As the library rounds; None where it raises: DGL has no kernels for rows and weights of two dtypes."""
        with contextlib.suppress(Exception):
            return self.run(name, mode, grads)

    def cut(self, name: str, values: list[Any], rank: int) -> list[Any]:
        """The rows of a worker; of what all workers have, a share."""
        edges = len(self.graph.src)
        cuts = {edges: self.graph.edges(rank), self.graph.num_nodes: self.graph.rows(rank)}
        world = self.graph.world
        return [(x[cuts[len(x)]] if len(x) in cuts else x / world) if isinstance(x, np.ndarray) else x for x in values]

    def given(self) -> dict[str, Any]:
        ranks, exact = range(self.graph.world), self.exact
        rows = [[self.cut(n, self.rows[n], rank) for n in self.names] for rank in ranks]
        return {"rows": rows, "grads": [[self.cut(n, exact[n]["grads"], rank) for n in self.names] for rank in ranks]}

    def check(self, name: str, mode: str, found: list[Any]) -> None:
        """Results and gradients have the dtypes that the library gives them, and errors as its own."""
        exact, what = self.exact[name], f"{name}, {mode}"
        plain = self.plain(name, mode, exact["grads"])
        rounds_as = plain or self.plain(name, "half", exact["grads"])
        for rank, one in enumerate(found):
            assert isinstance(one, dict), f"{what}: {one}"
            for n, (_, numbers) in enumerate(exact["out"]):
                own = self.cut(name, [numbers], rank)[0] if len(numbers) > 1 else numbers
                near = 2 * self._error(plain, "out", n, numbers) + 2**-6 * max(1.0, np.abs(numbers).max())
                assert np.abs(one["out"][n][1] - own).max(initial=0) <= near, f"{what}, rank {rank}"
            dtypes = [d for d, _ in one["out"]]
            assert plain is None or dtypes == [d for d, _ in plain["out"]], what
            if plain is None and name in ("gat", "gat_residual", *NAMES["columns"]):
                assert dtypes == [HALF], f"{what}: DGL's GATConv, which raises an error itself"
            for n, gradient in enumerate(exact["inputs"]):
                if gradient is None or len(gradient[1]) not in (self.graph.num_nodes, len(self.graph.src)):
                    continue
                own = self.cut(name, [gradient[1]], rank)[0]
                by_plain = 0.0 if rounds_as is None else np.linalg.norm(rounds_as["inputs"][n][1] - gradient[1])
                dtype, actual = one["inputs"][n]
                assert dtype == (HALF if mode == "half" else SINGLE), what
                error = np.linalg.norm(actual - own)
                # in a model, rounding puts numbers on the other side of ReLU
                share = 2**-4 if name.endswith("_model") else 2**-7
                near = 1.5 * by_plain + share * np.linalg.norm(gradient[1])
                assert error <= near, f"{what}: gradient {n}, {error}"
        for key, (dtype, numbers) in exact["parameters"].items():
            dtype = HALF if mode == "half" else SINGLE
            assert found[0]["parameters"][key][0] == dtype, f"{what}: {key}"
            error = np.linalg.norm(found[0]["parameters"][key][1] - numbers)
            by_plain = 0.0 if plain is None else np.linalg.norm(plain["parameters"][key][1] - numbers)
            assert error <= 3 * by_plain + 0.2 * max(1.0, np.linalg.norm(numbers)), f"{what}: {key}, {error}"

    def of_nodes(self, name: str, found: Any, rank: int) -> list[np.ndarray]:
        """Results and gradients of a worker that have a row for each of its nodes."""
        own = self.graph.rows(rank)
        every = zip(found["out"] + found["inputs"], self.exact[name]["out"] + self.exact[name]["inputs"])
        nodes = [one[1] for one, whole in every if whole is not None and len(whole[1]) == self.graph.num_nodes]
        assert all(len(rows) == own.stop - own.start for rows in nodes)
        return nodes

    @staticmethod
    def _error(plain: Any, of: str, key: Any, exact: np.ndarray) -> float:
        return 0.0 if plain is None else float(np.abs(plain[of][key][1] - exact).max(initial=0))


@functools.lru_cache(1)
def alone_of(road: str) -> Alone:
    return Alone(road, with_loops(make("random", 1, seed=3)), NAMES[road])


@pytest.mark.parametrize("mode", cases.MODES[1:])
@pytest.mark.parametrize("road", NAMES)
def test_layers(pool: Pool, road: str, mode: str) -> None:
    """Layers of DGL and PyG, and by blocks of columns, under autocast, as ``layer.bfloat16()``, and prepared: as alone,
    and the same for any number of workers."""
    if road == "pyg":
        pytest.importorskip("torch_geometric")
    alone, first = alone_of(road), {}
    for world in (1, 2 if road == "pyg" else 3):
        alone.graph = alone.graph._replace(start=make("random", world, seed=3).start)
        shares = alone.graph.shares(ranks=alone.given())
        found = Workers(pool, world, "shm").run(cases.layers, shares, road=road, names=alone.names, mode=mode)
        for n, name in enumerate(alone.names):
            of_ranks = [one[n] for one in found]
            alone.check(name, mode, of_ranks)
            assert {one["by columns"] for one in of_ranks} == {int(road == "columns")}, name
            assert {one["products"] for one in of_ranks} == {1} or name not in PRODUCTS.get((road, mode), ()), name
            rows = [alone.of_nodes(name, one, rank) for rank, one in enumerate(of_ranks)]
            for key, parts in enumerate(zip(*rows)):
                whole = np.concatenate(parts)
                wanted = first.setdefault((name, key), whole)
                near = 2**-7 * max(1.0, np.abs(wanted).max())
                assert np.abs(whole - wanted).max() <= near, f"{name}, {mode}: {key} differs for {world} workers"


def test_rows_are_halved(two: Workers) -> None:
    """Under autocast rows travel and are saved in bfloat16, also where a layer gives float32."""
    pytest.importorskip("torch_geometric")
    graph = make("random", 2, seed=9)
    x = np.random.default_rng(3).standard_normal((graph.num_nodes, 64)).astype(np.float32)
    for one in two.run(cases.halved, graph.shares(x=x)):
        for name, (wide, narrow, kept) in one.items():
            assert 0 < narrow <= 0.55 * wide, f"{name}: {narrow} bytes, {wide} in float32"
            assert set(kept) <= {HALF}, name
