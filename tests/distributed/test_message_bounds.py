"""Python functions stay within their memory, and their mistakes are named."""

from __future__ import annotations

import re

import pytest

from tests.parity import cases_message
from tests.support.graphs import make
from tests.support.pool import Failure, Pool
from tests.support.sessions import Workers

MIB = 1 << 20


@pytest.fixture(scope="module", params=[1, 2], ids=lambda p: f"shm{p}")
def some(request: pytest.FixtureRequest, pool: Pool) -> Workers:
    return Workers(pool, request.param, "shm")


@pytest.mark.parametrize("mailbox", [False, True], ids=["sum", "mailbox"])
def test_a_gigabyte_of_messages_more_takes_no_memory(pool: Pool, mailbox: bool) -> None:
    """The peak with messages of 1 GiB more, summed over workers as the messages are."""
    workers = Workers(pool, 2, "shm")
    both = workers.run(cases_message.peak, sizes=[16384, 16384 + 262144], width=1024, mailbox=mailbox)
    less, more = ([rank[n] for rank in both] for n in (0, 1))
    assert sum(b["messages"] - a["messages"] for a, b in zip(less, more)) == 1 << 30
    for a, b in zip(less, more):
        assert b["growth"] - a["growth"] <= 16 * MIB, f"{a['growth'] / MIB:.1f} and {b['growth'] / MIB:.1f} MiB"
        assert b["growth"] < 64 * MIB < b["messages"]


SAID = {
    "unknown source": r"KeyError: .*no edges.src\['q'\]; there are: x",
    "unknown destination": r"KeyError: .*no edges.dst\['q'\]; there are: x",
    "unknown edge": r"KeyError: .*no edges.data\['q'\]; there are: none",
    "wrong key": r"ValueError: .*<lambda> returned 'k', 'l', but the reducer reads 'm'",
    "wrong message": r"ValueError: the message writes field 'm', but the reducer reads 'k'",
    "no dictionary": r"TypeError: .*<lambda> returned a tensor: functions of edges return \{name: tensor\}",
    "no tensor": r"TypeError: .*returned a int as 'm'",
    "rows": r"ValueError: .*returned 'm' of shape \(1, 2\) for \d+ edges: it must have one row for each, \(\d+, ...\)",
    "scalar": r"ValueError: .*returned 'm' of shape \(\) for \d+ edges",
    "reduced rows": r"ValueError: .*returned 'out' of shape \(\d+, 2\) for \d+ nodes",
    "mailbox key": r"KeyError: .*'k'.*m",
    "node column": r"KeyError: .*no nodes.data\['q'\]; there are: x",
    "apply": r"ValueError: .*returned 'out' of shape \(\) for \d+ nodes",
    "own error": r"RuntimeError: .*mat1 and mat2 shapes cannot be multiplied",
    "reducer": r"TypeError: the reducer must be a function.*'sum'",
    "message": r"TypeError: the message must be a function.*None",
    "relation": r"KeyError: .*'likes' is unknown; there are:.*_E",
    "cross": r"ValueError: the cross reducer 'prod' is unknown; there are 'sum', 'mean', 'max', 'min', 'stack'",
    "tuple": r"ValueError: relation '_E': give \(message, reducer\)",
    "edges": r"ValueError: edges are positions 0 .. \d+ of this worker's in-edges",
}


def test_mistakes(some: Workers) -> None:
    graph = make("random", some.world)
    for found in some.run(cases_message.mistakes, graph.shares()):
        assert found.keys() == SAID.keys()
        for name, pattern in SAID.items():
            assert re.search(pattern, found[name]), f"{name}: {found[name]}"


@pytest.mark.parametrize(
    "kind, words", [("mailbox", "shape and dtype must not depend on the rows"), ("rank", "it must be the same on all")]
)
def test_results_that_change_shape(some: Workers, kind: str, words: str) -> None:
    graph = make("random", some.world)
    arguments = [{"part": graph.part(r), "kind": kind} for r in range(graph.world)]
    results = some.attempt(cases_message.changes_shape, arguments)
    if kind == "rank" and some.world == 1:
        assert results == [None]
        return
    assert all(isinstance(r, Failure) for r in results)
    assert any(words in r.message for r in results)
    for result in results:
        assert result.kind in ("ValueError", "RemoteError")
