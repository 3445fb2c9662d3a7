"""What runs on the workers to visit in-edges and to fetch rows."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import torch

import sar
from sar._engine import abi, session as _session
from sar.autograd.fetch import fetch
from sar.autograd.stream import Block, stream
from sar.graph.relation import NativeGraph, Relation
from tests.support.worker import ETYPE, data_of, numpy, settings


def relation(part: dict[str, Any]) -> Relation:
    """A relation from edges in memory, in the order given."""
    arrays = (torch.from_numpy(part[key].copy()) for key in ("start", "src", "dst"))
    return Relation(NativeGraph(abi.graph_from_edges(_session.current().handle, *arrays)), 0, ETYPE)


def _strided(x: torch.Tensor) -> torch.Tensor:
    """The same values, every second one of a larger tensor."""
    return torch.stack([x, x], dim=-1)[..., 0]


def visits(
    part: dict[str, Any], fields: list[np.ndarray], max_edges: int, edge_ids: bool = True, window: int = 0
) -> dict[str, Any]:
    """What the visits of a relation show: peers in order, and the rows of the fields by edge."""
    rel = relation(part)
    tensors = [_strided(torch.from_numpy(f.copy())) for f in fields]
    seen: list[dict[str, Any]] = []
    thread = threading.get_ident()

    def visit(block: Block) -> None:
        assert threading.get_ident() == thread
        assert 0 < len(block.src) <= max_edges and len(block.src) == len(block.dst)
        assert bool((block.dst.diff() >= 0).all())
        assert all(r.is_contiguous() for r in block.rows) and block.grad_rows == [None] * len(fields)
        seen.append(
            {
                "peer": block.peer,
                "dst": numpy(block.dst),
                "eid": numpy(block.eid),
                "rows": [numpy(r[block.src]) for r in block.rows],
            }
        )

    with settings(window_bytes=window):
        flags = stream(rel, tensors, visit, max_edges, flags=1 << sar.rank(), edge_ids=edge_ids)
    assert flags == (1 << sar.world_size()) - 1
    return {"seen": seen, "num_dst": rel.num_dst}


def gradients(
    part: dict[str, Any], fields: list[np.ndarray], g: np.ndarray, w: np.ndarray, wants: list[bool], max_edges: int
) -> list[np.ndarray | None]:
    """Gradients of ``sum over edges of w[e] * (x[src] ** 2 * g[dst])`` for every field; a field that is not wanted here
    returns all the same. The last field has none."""
    rel = relation(part)
    tensors = [torch.from_numpy(f.copy()) for f in fields]
    grads: list[torch.Tensor | None] = [torch.ones_like(t) if want else None for t, want in zip(tensors, wants)]
    upstream, weight = torch.from_numpy(g.copy()), torch.from_numpy(w.copy())

    def visit(block: Block) -> None:
        for number, (rows, grad) in enumerate(zip(block.rows, block.grad_rows)):
            if number == len(fields) - 1:
                assert grad is None
                continue
            if block.peer == sar.rank():
                assert grad is grads[number]
            else:
                assert grad is not None
            if grad is None:
                continue
            along = (weight[block.eid] * upstream[block.dst]).to(rows.dtype).view(-1, *[1] * (rows.dim() - 1))
            grad.index_add_(0, block.src, 2 * rows[block.src] * along)

    return_grads = [True] * (len(fields) - 1) + [False]
    stream(rel, tensors, visit, max_edges, grads, return_grads=return_grads)
    return [numpy(t) for t in grads]


def repeated(part: dict[str, Any], x: np.ndarray, g: np.ndarray) -> bool:
    """The same gradients to the bit, whatever the sizes of blocks and windows."""
    rel, rows = relation(part), torch.from_numpy(x.copy())
    upstream = torch.from_numpy(g.copy())
    found = []

    def visit(block: Block) -> None:
        grad = block.grad_rows[0]
        assert grad is not None
        for s, d in zip(block.src.tolist(), block.dst.tolist()):
            grad[s] += upstream[d]

    for max_edges, window in ((1 << 20, 0), (7, 0), (1 << 20, 65536 * max(1, sar.world_size() - 1)), (1 << 20, 0)):
        with settings(window_bytes=window):
            grads = [torch.zeros_like(rows)]
            stream(rel, [rows], visit, max_edges, grads)
        found.append(grads[0])
    return all(torch.equal(f, found[0]) for f in found)


class Custom(Exception):
    """An exception that the package cannot know."""


def exception(part: dict[str, Any], how: str, backward: bool) -> str:
    """Rank 0 raises in a visit; the name of what each rank saw."""
    rel = relation(part)
    x = torch.ones(rel.num_src, 3)
    error: BaseException = KeyboardInterrupt("pressed") if how == "interrupt" else Custom("out of spoons")
    own = sar.rank() == 0
    visited = [0]

    def visit(block: Block) -> None:
        visited[0] += 1
        if not own or how == "between":
            return
        if how == "remote" and block.peer == 0:
            return
        if how == "signal":
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        raise error

    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    if how == "between":  # the signal comes while rank 0 waits for the others
        if own:
            timer.start()
        else:
            time.sleep(2)
    try:
        if how != "between":
            sar.comm.barrier()  # else the others might hear of it while they still build the relation
        stream(rel, [x], visit, 1 << 20, [torch.zeros_like(x)] if backward else None)
        sar.comm.all_reduce(torch.ones(1))  # a rank that had its rows already hears of it here
    except BaseException as caught:
        if own and how in ("custom", "remote", "interrupt"):
            assert caught is error
        try:
            sar.comm.all_reduce(torch.ones(1))
        except sar.RemoteError as later:
            assert "rank 0" in str(later)
        else:
            raise AssertionError("the session goes on") from None
        return f"{type(caught).__name__}: {caught}"
    return "nothing"


def refused(part: dict[str, Any]) -> list[str]:
    """Arguments that make no sense, and a row that no frame holds; the session goes on."""
    rel = relation(part)
    n = rel.num_src
    x, whole = torch.ones(n, 3), torch.ones(n, 3, dtype=torch.int64)

    def visit(block: Block) -> None:
        raise AssertionError("visited")

    calls: list[tuple[Any, ...]] = [
        ([torch.ones(n + 1, 3)], 5),
        ([torch.tensor(3.0)], 5),
        ([x], 0),
        ([x], 5, [None, None]),
        ([x], 5, [torch.ones(n, 4)]),
        ([x], 5, [torch.ones(3, n).t() if n > 1 else torch.ones(n, 4)]),
        ([whole], 5, [whole]),
    ]
    found = []
    for fields, *rest in calls:
        try:
            stream(rel, fields, visit, *rest)
        except (ValueError, TypeError) as error:
            found.append(f"{type(error).__name__}: {error}")
    try:
        stream(rel, [x], visit, 5, [x], return_grads=[False])
    except ValueError as error:
        found.append(f"ValueError: {error}")
    if sar.world_size() > 1:
        try:
            stream(rel, [torch.empty(n, 1 << 22)], visit, 5)
        except sar.BudgetError as error:
            assert error.minimum > 16 << 20
            found.append("BudgetError")
    sar.comm.all_reduce(torch.ones(1))
    return found


def fetched(
    part: dict[str, Any], asks: list[np.ndarray], x: np.ndarray, grads: list[np.ndarray], wants: bool, window: int = 0
) -> dict[str, Any]:
    """Rows fetched one after the other from the same tensor, and its gradient. ``asks`` are places among the columns,
    as fractions, since only the worker knows how many columns it has."""
    rel = relation(part)
    n = rel.num_columns
    columns = [torch.from_numpy((a * n).astype(np.int64)) if n else torch.empty(0, dtype=torch.int64) for a in asks]
    rows = torch.from_numpy(x.copy())
    rows.requires_grad_(wants and rows.is_floating_point())
    with settings(window_bytes=window):
        got = [fetch(rel, c, rows) for c in columns]
        if got[0].requires_grad:
            torch.autograd.backward(got, [torch.from_numpy(g[: len(c)].copy()) for g, c in zip(grads, columns)])
    return {
        "columns": numpy(columns),
        "owner": numpy(rel.columns_owner()),
        "row": numpy(rel.columns_global()),
        "again": numpy(rel.columns_global()),
        "got": numpy(got),
        "requires_grad": [g.requires_grad for g in got],
        "grad": numpy(rows.grad),
    }


def in_edges(part: dict[str, Any], rows: np.ndarray) -> dict[str, Any]:
    """In-edges of rows, and what is refused."""
    rel = relation(part)
    found = []
    for bad in (torch.tensor([rel.num_dst]), torch.tensor([-1]), torch.tensor([0.5])):
        try:
            rel.in_edges(bad)
        except (ValueError, TypeError) as error:
            found.append(f"{type(error).__name__}: {error}")
    return {
        "edges": numpy(rel.in_edges(torch.from_numpy(rows.copy()))),
        "owner": numpy(rel.columns_owner()),
        "row": numpy(rel.columns_global()),
        "refused": found,
    }


def refused_fetches(part: dict[str, Any]) -> list[str]:
    """Bad arguments; every rank has the same ones, and the session goes on."""
    rel = relation(part)
    x = torch.ones(rel.num_src, 2)
    none = torch.empty(0, dtype=torch.int64)
    found = []
    for columns, rows in (
        (torch.tensor([rel.num_columns]), x),
        (torch.tensor([-1]), x),
        (torch.zeros(2), x),
        (torch.zeros(2, 1, dtype=torch.int64), x),
        (none, torch.ones(rel.num_src + 1)),
        (none, x.half().requires_grad_()),
    ):
        try:
            fetch(rel, columns, rows)
        except (ValueError, TypeError) as error:
            found.append(f"{type(error).__name__}: {error}")
    if sar.world_size() > 1:
        try:
            fetch(rel, none, torch.empty(rel.num_src, 1 << 22))
        except sar.BudgetError:
            found.append("BudgetError")
    assert fetch(rel, none, x).shape == (0, 2)
    return found


def bipartite(part: dict[str, Any], x: dict[str, np.ndarray], g: dict[str, np.ndarray]) -> list[list[np.ndarray]]:
    """For each relation of a graph of several: sums of source rows, their gradient, and the sum again by fetching."""
    found = []
    for rel in sar.construct_full_graph(data_of(part))._relations:
        source, _, target = rel.canonical
        rows, upstream = torch.from_numpy(x[source].copy()), torch.from_numpy(g[target].copy())
        assert rows.shape[0] == rel.num_src and upstream.shape[0] == rel.num_dst
        out, grad = torch.zeros_like(upstream), torch.zeros_like(rows)

        def forward(block: Block, out: torch.Tensor = out) -> None:
            out.index_add_(0, block.dst, block.rows[0][block.src])

        def backward(block: Block, upstream: torch.Tensor = upstream) -> None:
            assert block.grad_rows[0] is not None
            block.grad_rows[0].index_add_(0, block.src, upstream[block.dst])

        stream(rel, [rows], forward, 13, edge_ids=False)
        stream(rel, [rows], backward, 13, [grad], edge_ids=False)
        indptr, columns, _ = rel.in_edges(torch.arange(rel.num_dst))
        got = fetch(rel, columns, rows.requires_grad_())
        again = torch.segment_reduce(got, "sum", offsets=indptr, initial=0.0) if rel.num_dst else torch.zeros_like(out)
        torch.autograd.backward(got, upstream.repeat_interleave(indptr.diff(), dim=0))
        found.append(numpy([out, grad, again, rows.grad]))
    return found
