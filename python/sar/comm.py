"""Meeting of the workers, and collectives on torch tensors.

Collectives are collective: every worker calls the same ones in the same order, also workers without nodes.
"""

from __future__ import annotations

import atexit
import multiprocessing
import multiprocessing.util
import os
import sys
import traceback
from types import TracebackType
from typing import Any, Dict, List, Optional, Sequence, Type

import torch
from torch import Tensor

from . import _abi, _allocator, _interrupt, _rendezvous, _session, _summary
from ._allocator import set_allocator
from ._buckets import gather_grads, sync_params
from ._comm_thread import CommThread, comm_thread
from ._network import dump_ip_address, get_ip_address, get_socket, get_socket_name, nfs_ip_init, seconds
from .config import Config
from .errors import PeerLostError, RemoteError, ScheduleError
from .logging_setup import logger
from .ops import memo

__all__ = [
    "CommThread",
    "all_reduce",
    "all_to_all",
    "all_to_all_rounds",
    "backend",
    "barrier",
    "broadcast",
    "comm_device",
    "comm_thread",
    "dump_ip_address",
    "exchange_single_tensor",
    "exchange_tensors",
    "gather_grads",
    "get_ip_address",
    "get_socket",
    "get_socket_name",
    "initialize_comms",
    "is_initialized",
    "master_ip",
    "master_port",
    "memory_stats",
    "nfs_ip_init",
    "rank",
    "set_allocator",
    "set_num_threads",
    "shutdown",
    "stats",
    "sync_params",
    "world_size",
]

_hooks_installed = False
_threads_chosen = False


def initialize_comms(
    _rank: int,
    _world_size: int,
    master_ip_address: str,
    backend: str,
    _comm_device: Optional[torch.device] = None,
    master_port_number: int = 12345,
) -> None:
    """Joins the other workers. Collective; returns when all have met.

    :param _rank: number of this worker, from 0
    :param _world_size: how many workers there are
    :param master_ip_address: address of rank 0's host
    :param backend: ``"sar"``: the native engine alone. ``"gloo"``, ``"mpi"``, ``"ccl"``, ``"nccl"``: also
        torch.distributed under that name (or the process group that exists), for the script's own calls; graphs and
        the collectives of this package travel natively all the same. ``SAR_BACKEND`` overrides the script.
    :param _comm_device: device that scripts should use for tensors they communicate; by default CUDA for nccl
    :param master_port_number: port of rank 0 for the rendezvous
    :raises ValueError: rank, size, backend, or an environment variable makes no sense
    :raises sar.RendezvousError: the workers cannot meet: master unreachable, port in use, two workers of one rank
    :raises RuntimeError: already initialized

    Environment: ``SAR_TRANSPORT`` (shm, tcp, auto), ``SAR_SOCKET_NAME`` (interface whose address peers use),
    ``SAR_ADVERTISE`` (host:port that peers connect to in place of it), ``SAR_START_TIMEOUT`` (300 s),
    ``SAR_LIVENESS_TIMEOUT`` (20 s), ``SAR_TIMEOUT`` (1800 s for any one operation).
    """
    if _session.peek() is not None:
        raise RuntimeError("SAR is initialized already; call sar.comm.shutdown() before initializing it again")
    me, world, port = int(_rank), int(_world_size), int(master_port_number)
    if world < 1:
        raise ValueError(f"world size {world}: there must be at least one worker")
    if not 0 <= me < world:
        raise ValueError(f"rank {me} is outside 0..{world - 1}: world_size is {world}")
    name = _rendezvous.choose_backend(backend)
    start = seconds("SAR_START_TIMEOUT", 300.0)
    operation = seconds("SAR_TIMEOUT", 1800.0)
    liveness = seconds("SAR_LIVENESS_TIMEOUT", 20.0)
    interface = os.environ.get("SAR_SOCKET_NAME")
    if interface and world > 1:
        get_socket()  # refuses an interface that is not here, by name
    _allocator.prepare_process()
    if not _threads_chosen:
        _abi.set_num_threads(_threads_from_environment() or max(1, torch.get_num_threads()))
    owns = False
    if name != _rendezvous.NATIVE:
        owns = _rendezvous.set_up_torch(name, me, world, master_ip_address, port, start)
    try:
        address, native_port = _rendezvous.native_address(name, me, world, master_ip_address, port, start)
        handle = _abi.session_open(
            me,
            world,
            address,
            native_port,
            interface,
            os.environ.get("SAR_TRANSPORT"),
            os.environ.get("SAR_ADVERTISE"),
            start,
            liveness,
            operation,
            int(Config.window_bytes or 0),
        )
    except BaseException:
        if owns:
            torch.distributed.destroy_process_group()
        raise
    device = _rendezvous.default_device(name, _comm_device)
    session = _session.Session(handle, me, world, name, device, master_ip_address, port)
    session.owns_process_group = owns
    _session.install(session)
    _install_hooks()
    _interrupt.watch(_interrupted)
    logger.info("rank %d of %d initialized, backend %s", me, world, name)


def shutdown() -> None:
    """Says goodbye to the other workers and frees what the engine holds.

    Not collective, and harmless when called twice; it also happens when the interpreter exits. Workers that still wait
    for this one raise :class:`sar.PeerLostError`. Where rank 0 logs at level INFO, it waits half a second at most for
    the others, whose memory its closing line sums up.
    """
    session = _session.remove()
    if session is None:
        return
    memo.forget()
    try:
        _summary.log(session)
        _abi.session_close(session.handle)
    finally:
        if session.owns_process_group and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def is_initialized() -> bool:
    """Whether :func:`initialize_comms` was called, and :func:`shutdown` was not."""
    return _session.peek() is not None


def rank() -> int:
    """Number of this worker. Raises RuntimeError before :func:`initialize_comms`."""
    return _session.current().rank


def world_size() -> int:
    """How many workers there are. Raises RuntimeError before :func:`initialize_comms`."""
    return _session.current().world


def comm_device() -> torch.device:
    """Device for tensors that a script communicates itself. Raises RuntimeError before :func:`initialize_comms`."""
    return _session.current().device


def backend() -> str:
    """The backend in use: ``SAR_BACKEND``, or what the script named. RuntimeError before :func:`initialize_comms`."""
    return _session.current().backend


def master_ip() -> str:
    """The master's address, as given. Raises RuntimeError before :func:`initialize_comms`."""
    return _session.current().master_ip


def master_port() -> int:
    """The rendezvous port, as given. Raises RuntimeError before :func:`initialize_comms`."""
    return _session.current().master_port


def all_reduce(red_tensor: Tensor, op: Any = "sum", move_to_comm_device: bool = False) -> None:
    """``red_tensor = op over all workers of red_tensor``, in place. Collective.

    :param red_tensor: any shape, strides and device; float64, float32, float16, bfloat16, int64, int32, uint8 or bool
    :param op: a ``torch.distributed.ReduceOp`` (SUM, MIN, MAX, PRODUCT, AVG) or its name. The sum of bool is "or".
    :param move_to_comm_device: accepted for scripts that say it; tensors travel from CPU memory in any case
    :raises ValueError: the operation is not one of the five, or shapes differ between workers
    :raises TypeError: the dtype is not one of those above
    """
    _session.all_reduce(red_tensor, _op_name(op))


def broadcast(tensor: Tensor, root: int = 0) -> None:
    """Gives every worker the values that ``root`` holds in ``tensor``, in place. Any dtype. Collective."""
    _session.broadcast(tensor, root)


def barrier() -> None:
    """Returns when every worker has called it. Collective."""
    _abi.barrier(_session.current().handle, _abi.REDUCE)


def all_to_all(
    recv_tensors: Sequence[Tensor], send_tensors: Sequence[Tensor], move_to_comm_device: bool = False
) -> None:
    """``recv_tensors[q]`` gets what worker q has in ``send_tensors[own rank]``. Collective.

    :param recv_tensors: one tensor per worker, as large as what comes from it
    :param send_tensors: one tensor per worker
    :param move_to_comm_device: accepted for scripts that say it
    :raises ValueError: not one tensor per worker, or sizes that do not match pairwise
    """
    world = world_size()
    for name, tensors in (("recv_tensors", recv_tensors), ("send_tensors", send_tensors)):
        if len(tensors) != world:
            raise ValueError(f"all_to_all: {name} holds {len(tensors)} tensors for {world} workers; give one for each")
    all_to_all_rounds(recv_tensors, send_tensors)


def all_to_all_rounds(recv_tensors: Sequence[Tensor], send_tensors: Sequence[Tensor]) -> None:
    """:func:`all_to_all` in as many rounds as ``Config.max_collective_size`` asks for; 0: one. Collective.

    :param recv_tensors: one tensor per worker, as large as what comes from it
    :param send_tensors: one tensor per worker; a round takes an equal share of the elements of each
    :raises ValueError: sizes that do not match pairwise
    """
    limit = int(Config.max_collective_size or 0)
    if limit <= 0:
        _session.all_to_all(recv_tensors, send_tensors)
        return
    elements = [sum(t.numel() for t in side) for side in (recv_tensors, send_tensors)]
    largest = torch.tensor(max(elements), dtype=torch.int64)
    all_reduce(largest, "max")
    rounds = max(1, -(-int(largest) // limit))
    received = [t.detach().reshape(-1) for t in recv_tensors]  # the tensor's own memory where it is contiguous
    sent = [t.detach().reshape(-1) for t in send_tensors]
    for r in range(rounds):
        _session.all_to_all(_share(received, r, rounds), _share(sent, r, rounds))
    for tensor, flat in zip(recv_tensors, received):
        if tensor.numel() and flat.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(flat.view(tensor.shape))


def _share(tensors: Sequence[Tensor], part: int, parts: int) -> List[Tensor]:
    return [t[t.numel() * part // parts : t.numel() * (part + 1) // parts] for t in tensors]


def exchange_tensors(tensors: Sequence[Tensor], recv_sizes: Optional[Sequence[int]] = None) -> List[Tensor]:
    """Sends ``tensors[q]`` to worker q and returns what each worker sent here. Collective.

    :param tensors: one per worker, ``[n_q, ...]``; dtype and trailing dimensions are the same everywhere
    :param recv_sizes: rows that come from each worker; without them they are asked for first
    :returns: one tensor per worker, ``[recv_sizes[q], ...]``
    :raises ValueError: not one tensor or size per worker, or tensors that differ in dtype or trailing dimensions
    """
    world = world_size()
    if len(tensors) != world:
        raise ValueError(f"exchange_tensors: {len(tensors)} tensors for {world} workers; give one for each")
    first = tensors[0]
    for q, tensor in enumerate(tensors):
        if tensor.dim() == 0 or tensor.dtype != first.dtype or tensor.shape[1:] != first.shape[1:]:
            raise ValueError(
                f"exchange_tensors: tensors[{q}] is {tensor.dtype} {tuple(tensor.shape)}, tensors[0] is {first.dtype} "
                f"{tuple(first.shape)}; they must have one dtype and the same trailing dimensions"
            )
    if recv_sizes is None:
        sizes = torch.tensor([t.shape[0] for t in tensors], dtype=torch.int64)
        answer = torch.empty(world, dtype=torch.int64)
        _session.all_to_all(answer.split(1), sizes.split(1))
        rows = answer.tolist()
    else:
        rows = [int(n) for n in recv_sizes]
        if len(rows) != world:
            raise ValueError(f"exchange_tensors: {len(rows)} recv_sizes for {world} workers; give one for each")
    received = [first.new_empty((n, *first.shape[1:])) for n in rows]
    _session.all_to_all(received, tensors)
    return received


def exchange_single_tensor(recv_idx: int, send_idx: int, recv_tensor: Tensor, send_tensor: Tensor) -> None:
    """Sends ``send_tensor`` to worker ``send_idx`` while worker ``recv_idx`` fills ``recv_tensor``. Collective.

    :param recv_idx: worker to receive from, or the own rank
    :param send_idx: worker to send to, or the own rank
    :param recv_tensor: as large as what the other worker sends
    :param send_tensor: any dtype
    :raises ValueError: a rank outside the session, or sizes that do not match
    """
    session = _session.current()
    for name, index in (("recv_idx", recv_idx), ("send_idx", send_idx)):
        if not 0 <= index < session.world:
            raise ValueError(f"exchange_single_tensor: {name} {index} is outside 0..{session.world - 1}")
    if recv_idx == session.rank:
        if send_idx != session.rank:
            raise ValueError("exchange_single_tensor: recv_idx is the own rank, so send_idx must be too")
        if recv_tensor.shape != send_tensor.shape:
            raise ValueError(
                f"exchange_single_tensor: recv_tensor {tuple(recv_tensor.shape)} and send_tensor "
                f"{tuple(send_tensor.shape)} differ in shape"
            )
        recv_tensor.detach().copy_(send_tensor.detach())
        _session.exchange_pair(-1, None, -1, None)  # the others may exchange: keep step with them
        return
    _session.exchange_pair(send_idx, send_tensor, recv_idx, recv_tensor)


def stats() -> Dict[str, Any]:
    """What travelled so far, and by which way.

    The engine's statistics (rank, world, peers, window, links, operations) and ``data_plane``: who carries aggregation,
    this package's collectives, and the script's own ``torch.distributed`` calls.

    ``links`` has one entry for each communicator and peer. Of what it sent, ``sent_pulled`` are bytes of rows that the
    peer reads (pull), and ``sent_home`` bytes of sums and gradients computed here for rows that the peer owns (push).
    """
    session = _session.current()
    result = _abi.session_stats(session.handle)
    torch_group = None
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch_group = torch.distributed.get_backend()
    result["data_plane"] = {"aggregation": "native", "collectives": "native", "torch.distributed": torch_group}
    return result


def memory_stats() -> Dict[str, Any]:
    """Bytes by purpose, now and at most: ``{"structure": {"live": n, "peak": n}, "features": .., ...}``.

    Of the engine: ``structure`` (edges, degrees, send lists), ``features`` (rows read from files, until the script has
    them), ``window`` (remote rows, rings, send staging), ``saved`` (kept by the engine for backward), ``scratch``,
    ``runtime`` (of Go), and their ``total``. Beside it ``tensors``: CPU tensors of 256 KiB and more under the
    allocator policy ``"pool"``, features, parameters, gradients and what autograd keeps among them; ``kept``: memory of
    freed ones; ``resident``: the process as a whole, as the kernel counts it.

    At the end of a run rank 0 logs the largest of all workers in one line, at level INFO (:func:`sar.logging_setup`).
    """
    _allocator.prepare_process()
    return _abi.memory_stats()


def _threads_from_environment() -> int:
    """``SAR_NUM_THREADS``, 0 where it is not set."""
    text = os.environ.get("SAR_NUM_THREADS", "")
    if not text:
        return 0
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"SAR_NUM_THREADS={text!r}: give a number of threads, at least 1, or leave it unset")
    return int(text)


def set_num_threads(n: int) -> None:
    """Threads that the engine's kernels use in this process; by default as many as torch uses.

    :raises ValueError: n < 1
    """
    global _threads_chosen
    if int(n) < 1:
        raise ValueError(f"set_num_threads({n}): at least 1 thread is needed")
    _allocator.prepare_process()
    _abi.set_num_threads(int(n))
    _threads_chosen = True


def _op_name(op: Any) -> str:
    if isinstance(op, str):
        name = op.lower()
        if name in _abi.REDUCE_OPS:
            return name
    elif torch.distributed.is_available():
        reduce_op = torch.distributed.ReduceOp
        for name in _abi.REDUCE_OPS:
            if op == getattr(reduce_op, name.upper()):
                return name
    raise ValueError(f"all_reduce: operation {op} is not supported; give one of ReduceOp.SUM, MIN, MAX, PRODUCT, AVG")


# ---- the end of the process ------------------------------------------------


def _install_hooks() -> None:
    global _hooks_installed
    if _hooks_installed:
        return
    _hooks_installed = True
    atexit.register(_shutdown_quietly)
    previous = sys.excepthook

    def hook(kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> None:
        _tell_peers(kind, error, trace)
        previous(kind, error, trace)

    sys.excepthook = hook
    if multiprocessing.parent_process() is not None:
        # a child of multiprocessing (and of torch.multiprocessing.spawn) ends without either of the above
        multiprocessing.util.Finalize(None, _end_of_child, exitpriority=100)


def _end_of_child() -> None:
    """What :mod:`multiprocessing` calls while an exception of the child's function is on its way."""
    error = sys.exc_info()[1]
    if isinstance(error, SystemExit) and error.code:
        error = error.__context__  # torch's spawn catches the exception, and exits
    if error is not None and not isinstance(error, SystemExit):
        _tell_peers(type(error), error, error.__traceback__)
    _shutdown_quietly()


def _tell_peers(kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> None:
    """Ends the waiting of the other workers with this one's exception, unless they know of the cause already."""
    session = _session.peek()
    if session is None or issubclass(kind, (RemoteError, PeerLostError, ScheduleError)):
        return
    try:
        _abi.session_abort(session.handle, "".join(traceback.format_exception(kind, error, trace)))
    except Exception as failure:  # the exception itself must reach the user whatever happens here
        logger.warning("the other workers could not be told of the failure: %s", failure)


def _interrupted() -> None:
    """Ends what the main thread waits for in the engine, and tells the other workers."""
    session = _session.peek()
    if session is not None:
        _abi.session_abort(session.handle, "KeyboardInterrupt: its user pressed Ctrl-C (SIGINT)")


def _shutdown_quietly() -> None:
    try:
        shutdown()
    except Exception as failure:
        logger.warning("closing the session failed: %s", failure)
