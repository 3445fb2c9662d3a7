"""What runs on the workers. Arguments and results are numpy arrays and plain values."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sar.common_tuples import PartitionData, ShardEdgesAndFeatures

import sar

ETYPE = ("_N", "_E", "_N")


def build(part: dict[str, Any]) -> sar.GraphShardManager:
    """A graph from edges in memory, in the order given."""
    starts = part["start"].tolist()
    edges = (torch.from_numpy(part["src"]), torch.from_numpy(part["dst"]))
    ranges = list(zip(starts[:-1], starts[1:]))
    data = PartitionData([ShardEdgesAndFeatures(edges, {})], ranges, {}, ["_N"], [ETYPE], None)
    return sar.construct_full_graph(data)


def numpy(tree: Any) -> Any:
    if isinstance(tree, torch.Tensor):
        return tree.detach().numpy().copy()
    if isinstance(tree, dict):
        return {k: numpy(v) for k, v in tree.items()}
    return [numpy(v) for v in tree] if isinstance(tree, (list, tuple)) else tree


def tensor(array: np.ndarray | None, grad: bool = False) -> torch.Tensor | None:
    return None if array is None else torch.from_numpy(array.copy()).requires_grad_(grad)


def raw(
    part: dict[str, Any],
    message: str,
    reduce: str,
    u: np.ndarray,
    e: np.ndarray | None,
    grad: np.ndarray,
    needs: tuple[bool, bool],
    strided: bool = False,
) -> dict[str, Any]:
    """One ``update_all`` and its backward."""
    graph = build(part)
    x, w = tensor(u, needs[0]), tensor(e, needs[1])
    assert x is not None
    fed = x
    if strided:  # the same values, every second column of a wider tensor
        fed = torch.stack([x, torch.full_like(x, 7.0)], dim=-1)[..., 0]
        assert x.numel() < 2 or not fed.is_contiguous()
    with graph.local_scope():
        graph.srcdata["h"] = fed
        if w is not None:
            graph.edata["w"] = w
        send = sar.function.copy_u("h", "m") if message == "copy_u" else sar.function.u_mul_e("h", "w", "m")
        graph.update_all(send, getattr(sar.function, reduce)("m", "out"))
        out = graph.dstdata["out"]
    assert not graph.ndata
    if out.requires_grad:
        out.backward(torch.from_numpy(grad))
    return numpy(
        {
            "out": out,
            "requires_grad": out.requires_grad,
            "u": x.grad,
            "e": None if w is None else w.grad,
            "degrees": [graph.in_degrees(), graph.out_degrees()],
        }
    )


# ---- collectives -----------------------------------------------------------


def all_reduce(x: np.ndarray, op: str) -> np.ndarray:
    t = torch.from_numpy(x.copy())
    sar.comm.all_reduce(t, getattr(torch.distributed.ReduceOp, op), move_to_comm_device=True)
    return t.numpy()


def odd_all_reduces() -> str:
    rank, world = sar.rank(), sar.world_size()
    total = world * (world - 1) // 2
    scalar = torch.tensor(rank)
    sar.comm.all_reduce(scalar, op=torch.distributed.ReduceOp.SUM)
    assert scalar.item() == total and scalar.dim() == 0
    sar.comm.all_reduce(torch.empty(0), "sum")
    wide = torch.zeros(4, 6)
    view = wide[:, ::2]
    view += rank
    sar.comm.all_reduce(view, torch.distributed.ReduceOp.SUM)
    assert torch.equal(wide, torch.tensor([total, 0] * 3).expand(4, 6).float())
    half = torch.full((5,), float(rank), dtype=torch.bfloat16)
    sar.comm.all_reduce(half, "max")
    assert half.tolist() == [world - 1] * 5
    sar.Config.max_collective_size = 7
    try:
        long = torch.arange(100.0) + rank
        sar.comm.all_reduce(long, "sum")
        assert torch.equal(long, torch.arange(100.0) * world + total)
    finally:
        sar.Config.max_collective_size = 0
    leaf = torch.ones(3, requires_grad=True)
    sar.comm.all_reduce(leaf, "sum")
    assert leaf.requires_grad and leaf.tolist() == [world] * 3
    saved = torch.full((3,), 2.0, requires_grad=True).clone()
    product = saved * saved
    sar.comm.all_reduce(saved, "sum")
    try:
        product.sum().backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    else:
        raise AssertionError("autograd did not notice that a saved tensor changed")
    return "done"


def all_reduce_messages() -> list[str]:
    found = []
    for tensor, op in ((torch.ones(2), torch.distributed.ReduceOp.BAND), (torch.ones(2, dtype=torch.complex64), "sum")):
        try:
            sar.comm.all_reduce(tensor, op)
        except (ValueError, TypeError) as error:
            found.append(str(error))
    return found


def exchanges() -> str:
    rank, world = sar.rank(), sar.world_size()
    # all_to_all of unequal sizes: rank p sends p + q + 1 numbers to q
    send = [torch.full((rank + q + 1,), 100 * rank + q) for q in range(world)]
    recv = [torch.zeros(rank + q + 1, dtype=torch.int64) for q in range(world)]
    sar.comm.all_to_all(recv, send)
    assert all(t.tolist() == [100 * q + rank] * (rank + q + 1) for q, t in enumerate(recv))
    # exchange_tensors, with sizes given and not; some are empty
    rows = [torch.full((q, 2), float(rank)) for q in range(world)]
    for sizes in (None, [rank] * world):
        got = sar.comm.exchange_tensors(rows, sizes)
        assert [tuple(t.shape) for t in got] == [(rank, 2)] * world
        assert all((t == q).all() for q, t in enumerate(got))
    # round by round, the own rank first
    for step in range(world):
        to, origin = (rank + step) % world, (rank - step) % world
        got_one = torch.zeros(3, dtype=torch.bool)
        sar.comm.exchange_single_tensor(origin, to, got_one, torch.tensor([True, rank % 2 == 0, False]))
        assert got_one.tolist() == [True, origin % 2 == 0, False]
    sar.comm.barrier()
    mine = torch.full((2, 2), rank)
    sar.comm.broadcast(mine, world - 1)
    assert (mine == world - 1).all()
    for call in (
        lambda: sar.comm.all_to_all(recv[:-1], send),
        lambda: sar.comm.exchange_tensors([torch.ones(2)] * (world + 1)),
        lambda: sar.comm.exchange_single_tensor(world, 0, mine, mine),
    ):
        try:
            call()
        except ValueError as error:
            assert "workers" in str(error) or "outside" in str(error)
        else:
            raise AssertionError("not refused")
    return "done"


def parameters() -> str:
    from sar.distributed import gradients

    rank, world = sar.rank(), sar.world_size()
    torch.manual_seed(rank)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2).double(), torch.nn.Linear(2, 2))
    model.register_parameter("unused", torch.nn.Parameter(torch.randn(3)))
    model.register_parameter("rare", torch.nn.Parameter(torch.randn(3, 2).t()))
    sar.sync_params(model)
    torch.manual_seed(0)
    first = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2).double(), torch.nn.Linear(2, 2))
    assert all(torch.equal(a, b) for a, b in zip(model[0].parameters(), first[0].parameters()))
    assert all(torch.equal(a, b) for a, b in zip(model[1].parameters(), first[1].parameters()))
    bytes_before, gradients.BUCKET_BYTES = gradients.BUCKET_BYTES, 20  # several buckets of one dtype
    try:
        for n, p in enumerate(model.parameters()):
            p.grad = torch.full_like(p, float(n + rank))
        model.unused.grad = None
        if rank != world - 1:
            model.rare.grad = None  # one rank alone has it
        sar.gather_grads(model)
    finally:
        gradients.BUCKET_BYTES = bytes_before
    assert model.unused.grad is None
    for n, (name, p) in enumerate(model.named_parameters()):
        if name == "unused":
            continue
        expected = n * world + world * (world - 1) / 2 if name != "rare" else n + world - 1
        assert p.grad is not None and p.grad.dtype == p.dtype and bool((p.grad == expected).all()), (name, p.grad)
    embedding = torch.nn.Embedding(3, 2, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    try:
        sar.gather_grads(embedding)
    except ValueError as error:
        assert "weight is sparse" in str(error)
    else:
        raise AssertionError("a sparse gradient was not refused")
    return "done"


def different_models() -> str:
    try:
        sar.sync_params(torch.nn.Linear(4 + sar.rank(), 3))
    except ValueError as error:
        return str(error)
    return "not refused"


def facts() -> dict[str, Any]:
    return {
        "rank": sar.rank(),
        "world": sar.world_size(),
        "backend": sar.comm.backend(),
        "device": str(sar.comm_device()),
        "ip": sar.comm.master_ip(),
        "initialized": sar.comm.is_initialized(),
        "stats": sar.stats(),
        "memory": sar.memory_stats(),
    }


# ---- partitions on disk ----------------------------------------------------


def from_files(json_file: str, feature: str) -> dict[str, Any]:
    """Weighted mean over the graph of a partition directory, with gradients."""
    data = sar.load_dgl_partition_data(json_file, sar.rank(), torch.device("cpu"))
    graph = sar.construct_full_graph(data).to(torch.device("cpu"))
    x = sar.suffix_key_lookup(data.node_features, feature).requires_grad_()
    with graph.local_scope():
        weight = graph.edata["w"].requires_grad_()
        graph.srcdata["h"] = x
        graph.update_all(sar.function.u_mul_e("h", "w", "m"), sar.function.mean("m", "out"))
        out = graph.dstdata["out"]
    out.sum().backward()
    counts = [graph.num_nodes(), graph.num_nodes_global(), graph.num_edges(), graph.num_edges_global()]
    return {
        "out": numpy(out),
        "x": numpy(x.grad),
        "w": numpy(weight.grad),
        "counts": [*counts, type(graph).__name__],
        "out_degrees": numpy(graph.out_degrees()),
    }


def hetero_from_files(json_file: str) -> dict[str, Any]:
    """Aggregation over each relation of a heterograph."""
    fn = sar.function
    data = sar.load_dgl_partition_data(json_file, sar.rank())
    graph = sar.construct_full_graph(data)
    papers = sar.suffix_key_lookup(data.node_features, "features")
    cites = graph["cites"]
    with graph.local_scope():
        cites.srcdata["h"] = papers
        cites.edata["v"] = cites.edata["w"].view(-1, 1)
        cites.update_all(fn.u_mul_e("h", "v", "m"), fn.sum("m", "out"))
        out = cites.dstdata["out"]
        graph.srcdata["one"] = {t: torch.ones(graph.num_nodes(t), 1, dtype=torch.float64) for t in graph.ntypes}
        graph.update_all(fn.copy_u("one", "m"), fn.sum("m", "writes"), etype="writes")
        graph.update_all(fn.copy_u("one", "m"), fn.sum("m", "reviewed"), etype=("paper", "reviewed", "author"))
        try:
            graph.update_all(lambda edges: {"m": edges.src["one"]}, fn.sum("m", "x"))
            unnamed = ""
        except NotImplementedError as error:
            unnamed = str(error)
        return {
            "cites": numpy(out),
            "writes": numpy(graph.dstdata["writes"]["paper"]),
            "reviewed": float(graph.dstdata["reviewed"]["author"].sum()),
            "class": type(graph).__name__,
            "types": [graph.ntypes, graph.canonical_etypes],
            "global": [
                graph.num_nodes_global(),
                graph.num_nodes_global("paper"),
                graph.num_edges_global(),
                graph.num_edges_global("cites"),
            ],
            "unnamed": unnamed,
            "columns": list(graph.ndata["one"]),
        }


def files_are_closed(json_file: str) -> list[Any]:
    """Whether the partition's memory is given back once the data is gone, though the graph lives on."""
    import gc
    import weakref

    data = sar.load_dgl_partition_data(json_file, sar.rank())
    graph = sar.construct_full_graph(data)
    stored = weakref.ref(data.stored)
    del data
    gc.collect()
    book = graph.partition_book
    return [stored() is None, len(book.partid2nids(sar.rank(), "_N"))]


def wrong_partition(json_file: str) -> str:
    data = sar.load_dgl_partition_data(json_file, 1 - sar.rank())
    try:
        sar.construct_full_graph(data)
    except ValueError as error:
        return str(error)
    return "not refused"


def load_message(json_file: str) -> str:
    try:
        sar.load_dgl_partition_data(json_file, 0)
    except ValueError as error:
        return str(error)
    return "not refused"
