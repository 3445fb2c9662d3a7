"""Rendezvous and tensor collectives.

Collectives are collective: every worker calls the same ones in the same order, also workers without nodes.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Optional

import torch

from ._engine import abi, allocator
from ._engine import session as _session
from ._engine.allocator import set_allocator
from .config import Config
from .distributed import network, rendezvous, tokens
from .distributed import shutdown as _shutdown
from .distributed.collectives import (
    all_reduce,
    all_to_all,
    all_to_all_rounds,
    barrier,
    broadcast,
    exchange_single_tensor,
    exchange_tensors,
)
from .distributed.comm_thread import CommThread, comm_thread
from .distributed.gradients import gather_grads, sync_params
from .distributed.logging_setup import logger
from .distributed.network import dump_ip_address, get_ip_address, get_socket, get_socket_name, nfs_ip_init, seconds
from .distributed.shutdown import shutdown
from .errors import RendezvousError

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

_threads_chosen = False


def initialize_comms(
    _rank: int,
    _world_size: int,
    master_ip_address: str,
    backend: str,
    _comm_device: Optional[torch.device] = None,
    master_port_number: int = 12345,
    *,
    job_token: Optional[str] = None,
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
    :param job_token: secret of the job, at least 16 characters, the same on every worker. Usually not needed: ``sar
        launch``, ``torchrun``, :func:`sar.nfs_ip_init`, schedulers and jobs on one host have one (docs/security.md)
    :raises ValueError: rank, size, backend, or an environment variable makes no sense
    :raises sar.RendezvousError: the workers cannot meet: master unreachable, port in use, two workers of one rank,
        another job at the port, no job token
    :raises RuntimeError: already initialized

    Environment: ``SAR_TRANSPORT`` (shm, tcp, auto), ``SAR_SOCKET_NAME`` (interface whose address peers use),
    ``SAR_ADVERTISE`` (host:port that peers connect to in place of it), ``SAR_START_TIMEOUT`` (300 s),
    ``SAR_LIVENESS_TIMEOUT`` (20 s), ``SAR_TIMEOUT`` (1800 s for any one operation), ``SAR_JOB_TOKEN``, ``SAR_TLS`` (1:
    connections between hosts are encrypted), ``SAR_INSECURE`` (1: without a token anybody may join).
    """
    if _session.peek() is not None:
        raise RuntimeError("SAR is initialized already; call sar.comm.shutdown() before initializing it again")
    me, world, port = int(_rank), int(_world_size), int(master_port_number)
    if world < 1:
        raise ValueError(f"world size {world}: there must be at least one worker")
    if not 0 <= me < world:
        raise ValueError(f"rank {me} is outside 0..{world - 1}: world_size is {world}")
    name = rendezvous.choose_backend(backend)
    start = seconds("SAR_START_TIMEOUT", 300.0)
    operation = seconds("SAR_TIMEOUT", 1800.0)
    liveness = seconds("SAR_LIVENESS_TIMEOUT", 20.0)
    interface = os.environ.get("SAR_SOCKET_NAME")
    if interface and world > 1:
        get_socket()  # refuses an interface that is not here, by name
    allocator.prepare_process()
    if not _threads_chosen:
        abi.set_num_threads(_threads_from_environment() or max(1, torch.get_num_threads()))
    owns = False
    if name != rendezvous.NATIVE:
        owns = rendezvous.set_up_torch(name, me, world, master_ip_address, port, start)
    try:
        token = tokens.given(job_token)
        settings = {
            "interface": interface,
            "transport": os.environ.get("SAR_TRANSPORT"),
            "advertise": os.environ.get("SAR_ADVERTISE"),
            "start_seconds": start,
            "liveness_seconds": liveness,
            "operation_seconds": operation,
            "window_bytes": int(Config.window_bytes or 0),
            "insecure": network.flag("SAR_INSECURE"),
            "tls": network.flag("SAR_TLS"),
        }
        handle = _meet(name, me, world, master_ip_address, port, token, settings)
    except BaseException:
        if owns:
            torch.distributed.destroy_process_group()
        raise
    device = rendezvous.default_device(name, _comm_device)
    session = _session.Session(handle, me, world, name, device, master_ip_address, port)
    session.owns_process_group = owns
    _session.install(session)
    _shutdown.install_hooks()
    logger.info("rank %d of %d initialized, backend %s", me, world, name)


def _meet(name: str, me: int, world: int, address: str, port: int, token: str, settings: Dict[str, Any]) -> int:
    """Finds the job token where none is given, and opens the engine's session."""
    file = None if token else tokens.file_of(address)
    known = file.token if file else token
    where, native_port, known = rendezvous.native_address(
        name, me, world, address, port, settings["start_seconds"], known
    )
    if world > 1 and not known:
        known = tokens.scheduled(native_port)
    try:
        return abi.session_open(me, world, where, native_port, **settings, job_token=known)
    except RendezvousError as error:
        if file is None or me == 0:
            raise
        now_address, now = network.read_address_file(file.path)
        if now.token == file.token:
            raise RendezvousError(
                f"{error} Address and job token came from {file.path!r} ({file.origin}): if an earlier run left that "
                "file, remove it and start again."
            ) from error
        if now_address != address:
            raise RendezvousError(
                f"{file.path!r} was left by an earlier run ({file.origin}) and has been replaced since this worker "
                f"read it ({now.origin}): remove the file before a run"
            ) from error
        logger.warning("%s was left by an earlier run (%s): rank 0 has replaced it since", file.path, file.origin)
        return abi.session_open(me, world, where, native_port, **settings, job_token=now.token)


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


def stats() -> Dict[str, Any]:
    """What travelled so far, and by which way.

    The engine's statistics (rank, world, peers, window, links, operations) and ``data_plane``: who carries aggregation,
    this package's collectives, and the script's own ``torch.distributed`` calls.

    ``links`` has one entry for each communicator and peer. Of what it sent, ``sent_pulled`` are bytes of source rows
    that the peer computes with, ``sent_pushed`` bytes of rows of own destinations that the peer computes with, since it
    owns the sources (:attr:`sar.Config.exchange`), and ``sent_home`` bytes of sums and gradients computed here for rows
    that the peer owns.
    """
    session = _session.current()
    result = abi.session_stats(session.handle)
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
    allocator.prepare_process()
    return abi.memory_stats()


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
    allocator.prepare_process()
    abi.set_num_threads(int(n))
    _threads_chosen = True
