"""Typed calls into the engine: one Python function per function of ``sar.h`` that the package uses.

Everything above this file speaks of torch tensors, integers and dictionaries; everything below it of
pointers. Nothing here starts the engine before the first call.
"""

from __future__ import annotations

import ctypes as ct
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from torch import Tensor

from sar.config import Config

from . import library

TRAIN, REDUCE = 0, 1
"""Communicators that exist from the start: aggregation and normalization; gradients and everything else."""

REDUCE_OPS = {"sum": 0, "min": 1, "max": 2, "product": 3, "avg": 4}
MESSAGES = {"copy_u": 0, "u_mul_e": 1}
REDUCERS = {"sum": 0, "mean": 1}
GRAD_U, GRAD_E, FUSED = 1, 2, 4
GRAPH_EDGE_DATA = 1
PARTITION_OUTSIDE = 1


class SessionConfig(ct.Structure):
    """``sar_session_config``."""

    _fields_ = [
        ("size", ct.c_size_t),
        ("rank", ct.c_int32),
        ("world", ct.c_int32),
        ("master_addr", ct.c_char_p),
        ("master_port", ct.c_int32),
        ("interface_name", ct.c_char_p),
        ("transport", ct.c_char_p),
        ("advertise", ct.c_char_p),
        ("start_seconds", ct.c_double),
        ("liveness_seconds", ct.c_double),
        ("operation_seconds", ct.c_double),
        ("window_bytes", ct.c_int64),
        ("job_token", ct.c_char_p),
        ("insecure", ct.c_int32),
        ("tls", ct.c_int32),
    ]


class AggregateSpec(NamedTuple):
    """One aggregation: number of the relation, a key of :data:`MESSAGES`, a key of :data:`REDUCERS`."""

    relation: int
    message: str
    reduce: str


class AggregateStruct(ct.Structure):
    """``sar_aggregate``."""

    _fields_ = [
        ("size", ct.c_size_t),
        ("relation", ct.c_int32),
        ("message", ct.c_int32),
        ("reduce", ct.c_int32),
        ("need_grad", ct.c_uint32),
        ("agreed", ct.c_uint32),
    ]


class RelationInfo(ct.Structure):
    """``sar_relation_info``: rows and edges of one relation, of this worker and of all."""

    _fields_ = [("size", ct.c_size_t)] + [
        (name, ct.c_int64)
        for name in (
            "num_src",
            "num_dst",
            "num_edges",
            "num_src_global",
            "num_dst_global",
            "num_edges_global",
            "num_boundary",
            "num_send",
            "structure_bytes",
        )
    ]

    num_src: int
    num_dst: int
    num_edges: int
    num_src_global: int
    num_dst_global: int
    num_edges_global: int
    num_boundary: int
    num_send: int
    structure_bytes: int


def _text(value: Optional[str]) -> Optional[bytes]:
    return value.encode() if value else None


def _handle(value: int) -> ct.c_uint64:
    return ct.c_uint64(value)


def _ref(tensor: Optional[Tensor]) -> Any:
    """A ``DLTensor*`` for a contiguous CPU tensor, or NULL."""
    return None if tensor is None else ct.byref(library.tensor(tensor))


def _array(tensors: Sequence[Tensor]) -> Any:
    views = [library.tensor(t) for t in tensors]
    array: Any = (type(views[0]) * len(views))(*views)
    array._keep = views  # the shapes that the copies point at live in the originals
    return array


# ---- process ---------------------------------------------------------------


def set_num_threads(n: int) -> None:
    library.call("sar_set_num_threads", ct.c_int32(n))


def set_allocator(policy: int) -> None:
    library.call("sar_set_allocator", ct.c_int32(policy))


def pool_trim() -> None:
    library._function("sar_pool_trim")[1]()


def pool_stats() -> Dict[str, int]:
    found: Dict[str, int] = library.json_call("sar_pool_stats")
    return found


def memory_stats() -> Dict[str, Any]:
    return library.json_call("sar_memory_stats")


# ---- session ---------------------------------------------------------------


def session_open(
    rank: int,
    world: int,
    master_addr: str,
    master_port: int,
    interface: Optional[str],
    transport: Optional[str],
    advertise: Optional[str],
    start_seconds: float,
    liveness_seconds: float,
    operation_seconds: float,
    window_bytes: int,
    job_token: str = "",
    insecure: bool = False,
    tls: bool = False,
) -> int:
    config = SessionConfig(
        ct.sizeof(SessionConfig),
        rank,
        world,
        _text(master_addr),
        master_port,
        _text(interface),
        _text(transport),
        _text(advertise),
        start_seconds,
        liveness_seconds,
        operation_seconds,
        window_bytes,
        _text(job_token),
        insecure,
        tls,
    )
    out = ct.c_uint64()
    library.call("sar_session_open", ct.byref(config), ct.byref(out))
    return out.value


def job_token(public_id: str) -> str:
    """A job token made of what is no secret and a secret of this user."""
    return library.string_call("sar_job_token", public_id.encode())


def session_close(session: int) -> None:
    library.call("sar_session_close", _handle(session))


def session_abort(session: int, message: str) -> None:
    library.call("sar_session_abort", _handle(session), message.encode("utf-8", "replace"))


def session_set_window(session: int, window_bytes: int) -> None:
    library.call("sar_session_set_window", _handle(session), ct.c_int64(window_bytes))


EXCHANGES = ("auto", "pull", "push")


def session_set_exchange(session: int, exchange: str) -> None:
    library.call("sar_session_set_exchange", _handle(session), ct.c_int32(EXCHANGES.index(exchange)))


def default_window(world: int, nodes: int) -> int:
    """Bytes of the window that a session gives itself among so many workers, none of which owns more nodes."""
    return int(library._function("sar_default_window")[1](world, nodes))


def session_memory(session: int, wait_seconds: float) -> Dict[str, Any]:
    return library.json_call("sar_session_memory", _handle(session), ct.c_double(wait_seconds))


def session_stats(session: int) -> Dict[str, Any]:
    return library.json_call("sar_session_stats", _handle(session))


def comm_create(session: int, name: str) -> int:
    out = ct.c_int32()
    library.call("sar_comm_create", _handle(session), name.encode(), ct.byref(out))
    return out.value


def all_reduce(session: int, comm: int, tensor: Tensor, op: str) -> None:
    library.call("sar_all_reduce", _handle(session), ct.c_int32(comm), _ref(tensor), ct.c_int32(REDUCE_OPS[op]))


def broadcast(session: int, comm: int, tensor: Tensor, root: int) -> None:
    library.call("sar_broadcast", _handle(session), ct.c_int32(comm), _ref(tensor), ct.c_int32(root))


def barrier(session: int, comm: int) -> None:
    library.call("sar_barrier", _handle(session), ct.c_int32(comm))


def all_to_all(session: int, comm: int, send: Sequence[Tensor], recv: Sequence[Tensor]) -> None:
    library.call(
        "sar_all_to_all", _handle(session), ct.c_int32(comm), _array(send), _array(recv), ct.c_int32(len(send))
    )


def exchange_pair(
    session: int, comm: int, send_to: int, send: Optional[Tensor], recv_from: int, recv: Optional[Tensor]
) -> None:
    library.call(
        "sar_exchange_pair",
        _handle(session),
        ct.c_int32(comm),
        ct.c_int32(send_to),
        _ref(send),
        ct.c_int32(recv_from),
        _ref(recv),
    )


# ---- partitions ------------------------------------------------------------


def partition_open(json_path: str, part: int) -> int:
    out = ct.c_uint64()
    library.call("sar_partition_open", json_path.encode(), ct.c_int32(part), _partition_flags(), ct.byref(out))
    return out.value


def partition_verify(json_path: str, part: int) -> List[Dict[str, Any]]:
    """What is wrong with each file of a partition: ``file``, ``bytes``, ``arrays``, ``checksums``, ``damage``."""
    found: List[Dict[str, Any]] = library.json_call(
        "sar_partition_verify", json_path.encode(), ct.c_int32(part), _partition_flags()
    )
    return found


def _partition_flags() -> ct.c_uint32:
    return ct.c_uint32(PARTITION_OUTSIDE if Config.allow_outside_paths else 0)


def partition_close(partition: int) -> None:
    library.call("sar_partition_close", _handle(partition))


def partition_info(partition: int) -> Dict[str, Any]:
    return library.json_call("sar_partition_info", _handle(partition))


def partition_read(partition: int, edge: bool, name: str, out: Tensor) -> None:
    library.call("sar_partition_read", _handle(partition), ct.c_int32(edge), name.encode(), _ref(out))


def partition_count_edges(partition: int, relation: int) -> int:
    out = ct.c_int64()
    library.call("sar_partition_count_edges", _handle(partition), ct.c_int32(relation), ct.byref(out))
    return out.value


def partition_edges(
    partition: int, relation: int, src: Optional[Tensor], dst: Optional[Tensor], ids: Optional[Tensor]
) -> None:
    library.call(
        "sar_partition_edges", _handle(partition), ct.c_int32(relation), _ref(src), _ref(dst), _ref(ids)
    )


# ---- graphs ----------------------------------------------------------------


def graph_build(session: int, partition: int, flags: int) -> int:
    out = ct.c_uint64()
    library.call("sar_graph_build", _handle(session), _handle(partition), ct.c_uint32(flags), ct.byref(out))
    return out.value


def graph_from_edges(session: int, node_start: Tensor, src: Tensor, dst: Tensor) -> int:
    out = ct.c_uint64()
    library.call(
        "sar_graph_from_edges", _handle(session), _ref(node_start), _ref(src), _ref(dst), ct.byref(out)
    )
    return out.value


def graph_free(graph: int) -> None:
    library.call("sar_graph_free", _handle(graph))


def graph_num_relations(graph: int) -> int:
    out = ct.c_int32()
    library.call("sar_graph_num_relations", _handle(graph), ct.byref(out))
    return out.value


def graph_relation_info(graph: int, relation: int) -> RelationInfo:
    info = RelationInfo(ct.sizeof(RelationInfo))
    library.call("sar_graph_relation_info", _handle(graph), ct.c_int32(relation), ct.byref(info))
    return info


def graph_boundary(graph: int, relation: int) -> List[Dict[str, int]]:
    return library.json_call("sar_graph_boundary", _handle(graph), ct.c_int32(relation))


def graph_degrees(graph: int, relation: int, out_degrees: bool, out: Tensor) -> None:
    library.call(
        "sar_graph_degrees", _handle(graph), ct.c_int32(relation), ct.c_int32(1 if out_degrees else 0), _ref(out)
    )


# ---- message passing -------------------------------------------------------


def aggregate_forward(
    graph: int, spec: AggregateSpec, need: int, u: Tensor, e: Optional[Tensor], out: Tensor
) -> int:
    """Fills ``out``; the bits ``GRAD_U | GRAD_E`` that any rank asked for come back, and ``FUSED`` if all ranks did."""
    agreed = ct.c_uint32()
    library.call(
        "sar_aggregate_forward",
        _handle(graph),
        ct.byref(_struct(spec, need=need)),
        _ref(u),
        _ref(e),
        _ref(out),
        ct.byref(agreed),
    )
    return agreed.value


def aggregate_backward(
    graph: int,
    spec: AggregateSpec,
    agreed: int,
    u: Optional[Tensor],
    e: Optional[Tensor],
    grad_out: Tensor,
    grad_u: Optional[Tensor],
    grad_e: Optional[Tensor],
) -> None:
    library.call(
        "sar_aggregate_backward",
        _handle(graph),
        ct.byref(_struct(spec, agreed=agreed)),
        _ref(u),
        _ref(e),
        _ref(grad_out),
        _ref(grad_u),
        _ref(grad_e),
    )


def _struct(spec: AggregateSpec, need: int = 0, agreed: int = 0) -> AggregateStruct:
    return AggregateStruct(
        ct.sizeof(AggregateStruct), spec.relation, MESSAGES[spec.message], REDUCERS[spec.reduce], need, agreed
    )
