"""Starts and describes the session: ``initialize_comms``, rank, world size, backend."""

from __future__ import annotations

import datetime
import os
from typing import Any, Dict, Optional, Tuple

import torch

from sar._engine import abi, allocator, session as _session
from sar._engine.log import logger
from sar.errors import RendezvousError
from sar.profiling import metrics

from . import environment, network, rendezvous, shutdown, tokens, torch_transport
from .failure import tell_peers

_threads_chosen = False


def initialize_comms(
    _rank: Optional[int] = None,
    _world_size: Optional[int] = None,
    master_ip_address: Optional[str] = None,
    backend: str = rendezvous.NATIVE,
    _comm_device: Optional[torch.device] = None,
    master_port_number: Optional[int] = None,
    *,
    job_token: Optional[str] = None,
) -> None:
    """Joins the other workers. Collective; returns when all have met.

    Without arguments, rank, number of workers and the place to meet come from the launcher, as
    :func:`sar.environment` says; without a launcher there is one worker. An argument that is given overrides it.

    :param _rank: number of this worker, from 0
    :param _world_size: how many workers there are
    :param master_ip_address: address of rank 0's host
    :param backend: that of the default process group of torch.distributed, which is made unless there is one, for
        libraries and for the script's own calls. ``"sar"``: the native engine. ``"gloo"``, ``"mpi"``, ``"ccl"``,
        ``"nccl"``: torch's; graphs and the collectives of this package travel natively all the same. ``SAR_BACKEND``
        overrides the script.
    :param _comm_device: device that scripts should use for tensors they communicate; by default CUDA for nccl
    :param master_port_number: port of rank 0 for the rendezvous; 12345 if rank, number and address are all given
    :param job_token: secret of the job, at least 16 characters, the same on every worker. Usually not needed: ``sar
        launch``, ``torchrun``, :func:`sar.nfs_ip_init`, schedulers and jobs on one host have one (docs/security.md)
    :raises ValueError: rank, size, backend, or an environment variable makes no sense
    :raises sar.RendezvousError: the workers cannot meet: master unreachable, port in use, two workers of one rank,
        another job at the port, no job token; or the launcher does not say where they meet, or two contradict
    :raises RuntimeError: already initialized
    :raises OSError: ``SAR_METRICS`` names a port in use, or a file that cannot be written

    Environment: ``SAR_TRANSPORT`` (shm, tcp, ucx, mpi, torch, auto), ``SAR_SOCKET_NAME`` (interface whose address
    peers use), ``SAR_ADVERTISE`` (host:port that peers connect to in place of it), ``SAR_PORT_RANGE`` (first-last:
    ports to listen on), ``SAR_START_TIMEOUT`` (300 s), ``SAR_LIVENESS_TIMEOUT`` (20 s), ``SAR_TIMEOUT`` (1800 s for
    any one operation), ``SAR_JOB_TOKEN``, ``SAR_TLS`` (1: connections between hosts are encrypted), ``SAR_INSECURE``
    (1: without a token anybody may join).
    """
    if _session.peek() is not None:
        raise RuntimeError("SAR is initialized already; call sar.comm.shutdown() before initializing it again")
    numbers = [None if n is None else int(n) for n in (_rank, _world_size, master_port_number)]
    found = environment.find(os.environ, numbers[0], numbers[1], master_ip_address, numbers[2])
    me, world, address, port = found.rank, found.world_size, found.master_address, found.master_port
    if world < 1:
        raise ValueError(f"world size {world}: there must be at least one worker")
    if not 0 <= me < world:
        raise ValueError(f"rank {me} is outside 0..{world - 1}: world_size is {world}")
    if found.problem:
        raise RendezvousError(f"{found.problem} ({'; '.join(found.reasons)})")
    if me == 0 and found.assumed and not network.is_here(address):
        raise RendezvousError(
            f"rank 0 was expected at {address}, which is not an address of this host ({'; '.join(found.reasons)}): set "
            "MASTER_ADDR to the address of this host, for all workers"
        )
    name = rendezvous.choose_backend(backend)
    start = network.seconds("SAR_START_TIMEOUT", 300.0)
    operation = network.seconds("SAR_TIMEOUT", 1800.0)
    if os.environ.get("SAR_SOCKET_NAME") and world > 1:
        network.get_socket()  # refuses an interface that is not here, by name
    allocator.prepare_process()
    if not _threads_chosen:
        abi.set_num_threads(_threads_from_environment() or max(1, torch.get_num_threads()))
    transport = os.environ.get("SAR_TRANSPORT")
    meeting = name  # what the workers meet by: torch too, where it carries links
    if name == rendezvous.NATIVE and transport == torch_transport.NAME and world > 1:
        meeting = rendezvous.choose_backend(torch_transport.DEFAULT_BACKEND, overriding=False)
    owns = False
    if meeting != rendezvous.NATIVE:
        owns = rendezvous.set_up_torch(meeting, me, world, address, port, start)
    try:
        if meeting != rendezvous.NATIVE and world > 1:
            torch_transport.prepare(meeting, transport, me, world, start)
        token = tokens.given(job_token)
        handle, address = _meet(meeting, found, token, rendezvous.settings(start, operation))
    except BaseException:
        torch_transport.release()
        if owns:
            torch.distributed.destroy_process_group()
        raise
    device = rendezvous.default_device(name, _comm_device)
    session = _session.Session(handle, me, world, name, device, address, port)
    session.wrong_number = found.wrong_number
    _session.install(session)
    shutdown.install_hooks()
    try:
        if torch.distributed.is_available() and not torch.distributed.is_initialized():
            from . import process_group

            process_group.make_default(session, datetime.timedelta(seconds=operation))
            owns = True
        session.process_group = torch.distributed.group.WORLD if owns else None
        metrics.start(session)
    except Exception as error:
        tell_peers(error)
        shutdown.shutdown()
        raise
    logger.info("rank %d of %d initialized, backend %s", me, world, name)


def _meet(name: str, found: environment.Environment, token: str, given: Dict[str, Any]) -> Tuple[int, str]:
    """Finds the job token where none is given, opens the engine's session, and says where rank 0 listens."""
    me, world, address = found.rank, found.world_size, found.master_address
    file = None if token else tokens.file_of(address)
    known = file.token if file else token
    where, port, known = rendezvous.native_place(
        name, me, world, address, found.master_port, given["start_seconds"], known
    )
    if world > 1 and not known:
        known = tokens.scheduled(port)
    try:
        return rendezvous.open_session(me, world, (where, port, known), given), where
    except RendezvousError as error:
        if file is None or me == 0:
            if found.launcher == environment.ARGUMENTS:
                raise
            raise RendezvousError(f"{error} ({'; '.join(found.reasons)})") from None  # repeats it
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
        return rendezvous.open_session(me, world, (where, port, now.token), given), where


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
