"""Typed calls into the engine: one Python function per function of ``sar.h`` that the package uses.

Everything above this file speaks of torch tensors, integers and dictionaries; everything below it of
pointers. Nothing here starts the engine before the first call.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence

from sar.config import Config

from . import library, programs, schedule, storage
from .library import calls
from .signatures import TYPES

if TYPE_CHECKING:
    from torch import Tensor

TRAIN, REDUCE = 0, 1
"""Communicators that exist from the start: aggregation and normalization; gradients and everything else."""

REDUCE_OPS = {"sum": 0, "min": 1, "max": 2, "product": 3, "avg": 4}
GRAD_U, GRAD_E, FUSED = 1, 2, 4
PARTITION_OUTSIDE = 1


class AggregateSpec(NamedTuple):
    """One aggregation: number of the relation, ``"copy_u"`` or ``"u_mul_e"``, ``"sum"`` or ``"mean"``, and what the
    rows of ``u`` are stored in (:func:`.storage.name_of`)."""

    relation: int
    message: str
    reduce: str
    storage: str = ""


# ---- process ---------------------------------------------------------------

set_num_threads = calls("sar_set_num_threads")
set_allocator = calls("sar_set_allocator")
pool_stats = calls("sar_pool_stats")
memory_stats = calls("sar_memory_stats")
pool_trim = calls("sar_pool_trim")


# ---- session ---------------------------------------------------------------


def session_open(*values: Any, **named: Any) -> int:
    """Opens a session of the values of ``sar_session_config`` after its size, in order or by name."""
    return library.call("sar_session_open", TYPES["sar_session_config"](*values, **named))


session_close = calls("sar_session_close")
session_set_window = calls("sar_session_set_window")
session_memory = calls("sar_session_memory")  # session, seconds to wait
session_stats = calls("sar_session_stats")
transport_library = calls("sar_transport_library")  # ucx or mpi, the file to open where the system has no such library


def job_token(public_id: str) -> str:
    """A job token derived from a public id and the secret of this user."""
    return library.call("sar_job_token", public_id)


def transport_probe(name: str) -> str:
    """What a transport that is a library would use here. ValueError, with the reason, where it cannot be used."""
    return library.call("sar_transport_probe", name)


def session_abort(session: int, message: str) -> None:
    library.call("sar_session_abort", session, message.encode("utf-8", "replace"))


EXCHANGES = ("auto", "pull", "push")


def session_set_exchange(session: int, exchange: str) -> None:
    library.call("sar_session_set_exchange", session, EXCHANGES.index(exchange))


def default_window(world: int, nodes: int) -> int:
    """The default window in bytes, for so many workers of which none owns more than ``nodes`` nodes."""
    return int(library.call("sar_default_window", world, nodes))


def session_value(session: int, request: Dict[str, Any]) -> Dict[str, Any]:
    """Asks for something of the values that rank 0 keeps for all ranks."""
    return library.call("sar_session_value", session, json.dumps(request))


def all_reduce(session: int, comm: int, tensor: Tensor, op: str) -> None:
    library.call("sar_all_reduce", session, comm, tensor, REDUCE_OPS[op])


broadcast = calls("sar_broadcast")  # session, communicator, tensor, root
barrier = calls("sar_barrier")  # session, communicator
exchange_pair = calls("sar_exchange_pair")  # session, communicator, rank to send to, tensor, rank to hear from, tensor


def all_to_all(session: int, comm: int, send: Sequence[Tensor], recv: Sequence[Tensor]) -> None:
    library.call("sar_all_to_all", session, comm, send, recv, len(send))


# ---- partitions ------------------------------------------------------------


def partition_open(json_path: str, part: int) -> int:
    return library.call("sar_partition_open", json_path, part, _partition_flags())


def partition_verify(json_path: str, part: int) -> List[Dict[str, Any]]:
    """A report on each file of a partition: ``file``, ``bytes``, ``arrays``, ``checksums``, ``damage``."""
    return library.call("sar_partition_verify", json_path, part, _partition_flags())


def _partition_flags() -> int:
    return PARTITION_OUTSIDE if Config.allow_outside_paths else 0


partition_close = calls("sar_partition_close")
partition_info = calls("sar_partition_info")


def part_info(json_path: str, part: int) -> Dict[str, Any]:
    """What one part of a partition directory holds."""
    partition = partition_open(json_path, part)
    try:
        return partition_info(partition)
    finally:
        partition_close(partition)


partition_read = calls("sar_partition_read")  # partition, whether of edges, name, tensor to fill
partition_count_edges = calls("sar_partition_count_edges")  # partition, relation
partition_edges = calls("sar_partition_edges")  # partition, relation, and to fill: sources, destinations, ids


# ---- graphs ----------------------------------------------------------------

graph_build = calls("sar_graph_build")  # session, partition, flags
graph_from_edges = calls("sar_graph_from_edges")  # session, first nodes of all workers, sources, destinations
graph_free = calls("sar_graph_free")
graph_boundary = calls("sar_graph_boundary")  # graph, relation
graph_degrees = calls("sar_graph_degrees")  # graph, relation, whether out-degrees, tensor to fill


def graph_relation_info(graph: int, relation: int) -> Any:
    """``sar_relation_info``: rows and edges of one relation, of this worker and of all."""
    info = TYPES["sar_relation_info"]()
    library.call("sar_graph_relation_info", graph, relation, info)
    return info


# ---- message passing -------------------------------------------------------


def aggregate_forward(
    graph: int,
    spec: AggregateSpec,
    need: int,
    u: Tensor,
    e: Optional[Tensor],
    out: Tensor,
    of: Optional[schedule.Operation] = None,
) -> int:
    """Fills ``out``. Returns the bits ``GRAD_U | GRAD_E`` that any rank asked for, and ``FUSED`` if all ranks did.

    :param of: in backward of another operation, that one
    """
    schedule.begin(f"update_all({spec.message}, {spec.reduce})", of)
    u = storage.stored(u, spec.storage)
    # what travels is who does not offer it: a bit is agreed where any worker has it
    call = programs.program_call(spec.relation, need ^ FUSED, 0, (), None, 0)
    operands = [u] if e is None else [u, _weights(e, out)]
    program = _sum(spec, storage.name_of(u), u, e)
    agreed, _ = programs.program_forward(graph, program, call, operands, (), out)
    return agreed ^ FUSED


def aggregate_backward(
    graph: int,
    spec: AggregateSpec,
    agreed: int,
    u: Optional[Tensor],
    e: Optional[Tensor],
    grad_out: Tensor,
    grad_u: Optional[Tensor],
    grad_e: Optional[Tensor],
    of: Optional[schedule.Operation] = None,
) -> None:
    """:param of: the forward operation; without it this is the forward of a sum over out-edges"""
    schedule.begin("a sum over out-edges", of)
    u = None if u is None else storage.stored(u, spec.storage)
    weights = None if e is None else _weights(e, grad_out)
    given, grads = ([u, weights], [grad_u, grad_e]) if spec.message == "u_mul_e" else ([u], [grad_u])
    need = sum(1 << i for i, grad in enumerate(grads) if grad is not None)
    call = programs.program_call(spec.relation, need, agreed, (), None, 0)
    program = _sum(spec, spec.storage if u is None else storage.name_of(u), grad_out, e)
    programs.program_backward(graph, program, call, given, (), None, grad_out, grads, None)


def _weights(e: Tensor, result: Tensor) -> Tensor:
    """Weights in the type that is computed in: there is one for many numbers."""
    return e.to(storage.computed_in(result.dtype))


@lru_cache(256)
def _sum_of(reduce: str, width: int, heads: Optional[int], stored: str) -> programs.Compiled:
    """The program of a sum of rows, or of rows times weights."""
    weights = [] if heads is None else [{"side": "e", "shape": [heads, 1]}]
    shape = [width] if heads is None else [heads, width // max(1, heads)]
    code = [{"op": "mul", "a": 0, "b": 1}] if weights else []
    operands = [{"side": "u", "shape": shape, "storage": stored}, *weights]
    text = {"operands": operands, "code": code, "result": 2 * len(code), "reduce": reduce}
    return programs.Compiled(json.dumps(text))


def _sum(spec: AggregateSpec, stored: str, rows: Tensor, e: Optional[Tensor]) -> int:
    return _sum_of(spec.reduce, rows.shape[1], None if e is None else e.shape[1], stored).handle
