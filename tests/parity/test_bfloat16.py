"""bfloat16 against plain torch and DGL in float64: results rounded once, for any number of workers."""

from __future__ import annotations

from typing import Any

import dgl
import numpy as np
import pytest
import torch

from tests.parity import cases_bfloat16 as cases
from tests.parity.cases_expression import Program
from tests.parity.expressions import E, Leaf, P, U, V, draw, oracle
from tests.parity.test_expression import ATTENTION
from tests.support.graphs import Graph, make
from tests.support.pool import Pool
from tests.support.sessions import Workers

HALF, SINGLE = "bfloat16", "float32"
LOADED: dict[str, Program] = {side: ["load", side, n] for n, side in enumerate((U, V, E))}


@pytest.fixture(scope="session", params=[1, 2, 3])
def some(request: pytest.FixtureRequest, pool: Pool) -> Workers:
    return Workers(pool, request.param, "shm")


def half(array: np.ndarray) -> np.ndarray:
    """The nearest numbers of bfloat16, as float32."""
    rounded: np.ndarray = torch.from_numpy(np.asarray(array, np.float32)).bfloat16().float().numpy()
    return rounded


def check(found: Any, exact: np.ndarray, dtype: str, what: str, ulps: float = 1.0, floor: float = 1e-5) -> None:
    """Holds numbers against exact ones: they are those rounded once, or a neighbour where float32 sums differ.

    :param floor: what may be missing, of the largest number there is: of sums of numbers that cancel out
    """
    kind, actual = found
    assert kind == dtype, f"{what} is {kind}"
    assert actual.shape == exact.shape, what
    if not exact.size:
        return
    wanted = half(exact).astype(np.float64) if dtype == HALF else exact
    digits = 8 if dtype == HALF else 17  # float32: as sums of other orders have them
    unit = np.exp2(np.floor(np.log2(np.maximum(np.abs(wanted), 1e-30))) - digits + 1)
    error = np.abs(actual - wanted) - ulps * unit - floor * max(1.0, np.abs(wanted).max())
    assert error.max() <= 0, f"{what}: {error.max()} too far, at {np.unravel_index(error.argmax(), error.shape)}"


class Case:
    """An expression of tensors of some dtypes, and what plain DGL has for it."""

    def __init__(
        self, graph: Graph, leaves: list[Leaf], program: Program, reduce: str | None, dtypes: list[str], **more: Any
    ) -> None:
        self.graph, self.leaves, self.dtypes, self.reduce = graph, leaves, dtypes, reduce
        tensors = draw(graph, leaves, "float32", seed=len(graph.src))
        self.tensors = [half(t) if d == HALF else t for t, d in zip(tensors, dtypes)]
        self.dtype = HALF if set(dtypes) == {HALF} else SINGLE
        self.program, self.more = program, more
        self.expected = oracle(graph, program, reduce, [t.astype(np.float64) for t in self.tensors])

    def rows(self, side: str, rank: int) -> Any:
        return {U: self.graph.rows, V: self.graph.rows, E: self.graph.edges, P: lambda _: ...}[side](rank)

    def job(self, rank: int) -> cases.Job:
        own = [t[self.rows(leaf.side, rank)] for t, leaf in zip(self.tensors, self.leaves)]
        grad = self.expected["grad"][self.rows(V if self.reduce else E, rank)]
        return cases.Job(self.program, self.reduce, own, self.dtypes, half(grad), **self.more)

    def check(self, found: list[dict[str, Any]]) -> None:
        name = f"{self.reduce} of {self.program} ({', '.join(self.dtypes)})"
        for rank, one in enumerate(found):
            own = self.rows(V if self.reduce else E, rank)
            check(one["out"], self.expected["out"][own], self.dtype, f"{name}, rank {rank}")
        for n, (leaf, dtype) in enumerate(zip(self.leaves, self.dtypes)):
            exact, what = self.expected["grads"][n], f"gradient {n} of {name}"
            each = [one["grads"][n] for one in found]
            if leaf.side == P:
                total = sum(numbers for _, numbers in each)
                check((each[0][0], total), exact, dtype, what, ulps=len(each), floor=0.1)  # sums over all edges
                continue
            for rank, one in enumerate(each):
                # the gradient that comes in and the result that is saved have been rounded
                check(one, exact[self.rows(leaf.side, rank)], dtype, what, ulps=2, floor=0.02)


def forms(graph: Graph, few: bool) -> list[Case]:
    """Sums of every side and operation, of one storage type and of two, and attention."""
    found = []
    for n, reduce in enumerate(("sum", "mean", "max", "min")):
        width = (47,) if n % 2 else (1,)
        found.append(Case(graph, [Leaf(U, width)], LOADED[U], reduce, [HALF], strided=n > 1))
        weighted: Program = ["mul", ["load", U, 0], ["load", E, 1]]
        for e in (HALF, SINGLE):
            found.append(Case(graph, [Leaf(U, (4, 3)), Leaf(E, (4, 1))], weighted, reduce, [HALF, e]))
    for n, op in enumerate(("add", "sub", "mul", "dot")):
        both: Program = [op, ["load", U, 0], ["load", V, 1]]
        dtypes = [HALF, (HALF, SINGLE)[n % 2]]
        found.append(Case(graph, [Leaf(U, (3, 4)), Leaf(V, (3, 4))], both, "sum" if n % 2 else None, dtypes))
    for n, (leaves, program) in enumerate(ATTENTION.values()):
        found.append(Case(graph, leaves, program, "sum", [HALF] * len(leaves), strided=bool(n % 2)))
    leaves, program = ATTENTION["gat"]  # under autocast, scores are float32
    found.append(Case(graph, leaves, program, "sum", [SINGLE, SINGLE, HALF]))
    return found[::3] if few else found


@pytest.mark.parametrize("kind", ["random", "empty_worker", "no_edges", "one_node"])
def test_expressions(some: Workers, kind: str) -> None:
    if (some.world == 1) != (kind == "random") and some.world != 3:
        pytest.skip("the others show it")
    graph = make(kind, some.world, seed=17)
    chosen = forms(graph, kind in ("no_edges", "one_node"))
    given = {"jobs": [[tuple(case.job(rank)) for case in chosen] for rank in range(some.world)]}
    found = some.run(cases.expressions, graph.shares(ranks=given))
    for n, case in enumerate(chosen):
        case.check([one[n] for one in found])


# ---- functions in Python, batch norm, and what backward saves ---------------------


def test_many_ones(pool: Pool) -> None:
    """The partial sums of workers are not rounded: 10,000 ones are 9,984, the nearest number there is."""
    for world in (1, 2, 3, 8):
        nodes = 10_000
        start = np.linspace(0, nodes, world + 1).astype(np.int64)
        graph = Graph(nodes, np.arange(nodes), np.zeros(nodes, np.int64), start)
        found = Workers(pool, world, "shm").run(cases.many, graph.shares())
        assert found[0] == [9984.0, 1.0] * 2 and not any(found[1:])


def test_rounding_is_torchs(pool: Pool) -> None:
    """Sums of two rows are those of torch in float32, rounded by it, to the bit: halfway between two, denormal,
    infinite, and too large. Of NaNs, torch itself has several."""
    bits = np.random.default_rng(6).integers(0, 1 << 16, (3, 100_000), np.uint16)
    bits[2] = bits[1] - np.uint16(8 << 7)  # 8 binary places apart
    bits[2, ::2] = bits[0, ::2]
    a, b = (torch.from_numpy(x.view(np.int16)).view(torch.bfloat16).float() for x in bits[1:])
    wanted = (a + b).bfloat16()
    for world in (1, 2, 3):
        start = np.array([0, 3] if world == 1 else [0, 2, 3] if world == 2 else [0, 1, 2, 3])
        graph = Graph(3, np.array([1, 2]), np.array([0, 0]), start)
        found = Workers(pool, world, "shm").run(cases.pairs, graph.shares(rows=bits.view(np.int16)))[0][0]
        rounded = torch.from_numpy(found).view(torch.bfloat16)
        numbers = ~wanted.isnan()
        assert torch.equal(rounded.isnan(), wanted.isnan()) and int(numbers.sum()) > 90_000
        assert torch.equal(rounded.view(torch.int16)[numbers], wanted.view(torch.int16)[numbers]), world


def with_loops(graph: Graph) -> Graph:
    """The graph with an edge from each node to itself, since DGL's layers refuse nodes that nothing arrives at."""
    nodes = np.arange(graph.num_nodes)
    return graph._replace(src=np.concatenate([graph.src, nodes]), dst=np.concatenate([graph.dst, nodes]))


def whole(graph: Graph, x: np.ndarray, w: np.ndarray, grad: np.ndarray, reduce: str) -> dict[str, np.ndarray]:
    """Messages as torch has them in bfloat16; what follows in float64."""
    net, dgl_graph = cases.Net(), graph.of_dgl()
    rows = torch.from_numpy(x).bfloat16().requires_grad_()
    src, dst = dgl_graph.edges()
    wide = torch.erf(rows[src] @ net.weight.bfloat16()) * torch.from_numpy(w).bfloat16()
    if reduce == "logsumexp":  # a function in Python sees bfloat16, as its messages are
        dgl_graph.update_all(lambda edges: {"m": wide}, cases.received)
        y = dgl_graph.dstdata["y"].double()
    else:
        dgl_graph.edata["m"] = wide.double()
        dgl_graph.update_all(dgl.function.copy_e("m", "m"), getattr(dgl.function, reduce)("m", "y"))
        y = dgl_graph.dstdata["y"].bfloat16().double()
    norm = torch.nn.BatchNorm1d(3).double()
    normed = torch.nn.functional.elu(norm(y))
    normed.backward(torch.from_numpy(half(grad)).double())
    assert rows.grad is not None and net.weight.grad is not None and norm.weight.grad is not None
    pooled = {"sum of nodes": y.sum(0), "mean of nodes": y.mean(0), "max of nodes": y.max(0).values}
    found = {"y": y, "normed": normed, "x": rows.grad, "weight": net.weight.grad, "scale": norm.weight.grad}
    return {name: t.detach().double().numpy() for name, t in {**found, **pooled}.items()}


@pytest.mark.parametrize("reduce", ["sum", "mean", "logsumexp"])
def test_functions_in_python(some: Workers, reduce: str) -> None:
    graph = with_loops(make("empty_worker", some.world, seed=8))
    rng = np.random.default_rng(4)
    x, w, grad = (half(rng.standard_normal(s)) for s in ((61, 2), (len(graph.src), 1), (61, 3)))
    found = some.run(cases.mixed, graph.shares({"w": w}, x=x, grad=grad), reduce=reduce)
    exact = whole(graph, x, w, grad, reduce)
    for rank, one in enumerate(found):
        rows = graph.rows(rank)
        check(one["y"], exact["y"][rows], HALF, "y")
        check(one["normed"], exact["normed"][rows], HALF, "normed", floor=0.01)
        check(one["x"], exact["x"][rows], HALF, "gradient of x", ulps=4, floor=0.02)
        check(one["weight"], exact["weight"], SINGLE, "gradient of weight", floor=0.05)
        check(one["scale"], exact["scale"], SINGLE, "gradient of scale", floor=0.05)
        for op in ("sum", "mean", "max"):
            check(one[f"{op} of nodes"], exact[f"{op} of nodes"][None], HALF, op)
        assert set(one["saved"]) <= {HALF}, "a tensor of the size of the rows is saved in float32"


def test_autocast_where_it_is_written(two: Workers) -> None:
    graph = make("random", 2, seed=9)
    x = np.random.default_rng(1).standard_normal((graph.num_nodes, 5)).astype(np.float32)
    for one in two.run(cases.written_under_autocast, graph.shares(x=x)):
        assert one == {"saved": [HALF], "kinds": [HALF, SINGLE, SINGLE]}


def test_float16_is_refused(two: Workers) -> None:
    graph = make("random", 2, seed=9)
    for *refusals, read in two.run(cases.refused, graph.shares(x=np.ones((graph.num_nodes, 3), np.float32))):
        assert read == "torch.float32"
        for text, name in zip(refusals, ("'x'", "side 'u'", "the message", "batch norm")):
            assert text.startswith("TypeError") and "is float16" in text and ".bfloat16()" in text and name in text


def test_rows_travel_in_half_the_bytes(some: Workers) -> None:
    """Config.wire_dtype: results are those of rounded rows, in float32, whatever the number of workers; so are
    gradients."""
    graph = make("random", some.world, seed=9)
    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((graph.num_nodes, 4), (len(graph.src), 1)))
    given = [{**share, "dtypes": [HALF] * some.world} for share in graph.shares({"w": w}, x=x)]
    found = some.run(cases.rounded_rows, given)
    given = [{**share, "dtypes": [None] * some.world} for share in graph.shares({"w": w}, x=half(x))]
    plain = some.run(cases.rounded_rows, given)
    for one, same in zip(found, plain):
        assert one["forward", HALF] * 2 == one["forward", None] and (some.world == 1) == (one["forward", None] == 0)
        for what in ("results", "gradients"):
            for n, ((kind, actual), (_, wanted)) in enumerate(zip(one[what, HALF], same[what, None])):
                assert kind == SINGLE, (what, n)
                floor = 1e-5 * np.abs(wanted).max()
                np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=floor, err_msg=f"{what} {n}")
        assert not np.allclose(one["results", None][0][1], one["results", HALF][0][1], rtol=1e-5)


def test_workers_that_round_differently(two: Workers) -> None:
    graph = make("random", 2, seed=9)
    x, w = np.ones((graph.num_nodes, 4), np.float32), np.ones((len(graph.src), 1), np.float32)
    given = [{**share, "dtypes": [None, HALF]} for share in graph.shares({"w": w}, x=x)]
    texts = [str(failure) for failure in two.attempt(cases.rounded_rows, given)]
    # whoever finds out first says what it sends itself
    said = "copy_u in bfloat16 sum over relation 0", "copy_u sum over relation 0, float32"
    assert any("ScheduleError" in text and any(words in text for words in said) for text in texts), texts


@pytest.mark.parametrize("form", ["sum", "expression", "sage", "gat", "columns", "pyg gcn", "python"])
def test_ranks_of_different_dtypes(two: Workers, form: str) -> None:
    graph = make("random", 2, seed=9)
    two.pool.leave()
    said = two.run(cases.differing, graph.shares(ranks={"dtype": [HALF, SINGLE]}), form=form)
    two.pool.leave()
    if form == "python":
        assert all("bfloat16" in text and "float32" in text and "on another" in text for text in said), said
        return
    assert all(text.startswith("ScheduleError") for text in said), said
    assert all("another dtype" in text for text in said), said


def test_training(pool: Pool) -> None:
    """Losses do not depend on how many workers there are, and no tensor of the size of the rows is saved in float32
    where a layer gives bfloat16."""
    for kind, prepare, memoize in (("sage", True, True), ("gcn", False, False), ("gat", True, False)):
        alone: list[float] = []
        for world in (1, 2, 3):
            start = make("empty_worker", world, seed=5).start
            graph = with_loops(make("random", 1, seed=5))._replace(start=start)
            x = half(np.random.default_rng(2).standard_normal((61, 6)))
            options = {"kind": kind, "prepare": prepare, "memoize": memoize}
            found = Workers(pool, world, "shm").run(cases.trained, graph.shares(x=x), **options)
            alone = alone or found[0]["losses"]
            np.testing.assert_allclose(found[0]["losses"], alone, rtol=3e-3)
            assert alone[-1] < alone[0]
            for one in found:
                assert one["gradients"] == [SINGLE]
                assert one["out"] == (SINGLE if kind == "gcn" else HALF)
                assert kind == "gcn" or set(one["saved"]) <= {HALF}


@pytest.mark.full
def test_compiled_under_autocast(pool: Pool) -> None:
    graph = make("random", 1, seed=5)
    x = np.random.default_rng(2).standard_normal((61, 6)).astype(np.float32)
    assert Workers(pool, 1, "shm").run(cases.compiled, graph.shares(x=x)) == [[HALF, HALF]]
