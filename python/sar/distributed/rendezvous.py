"""Rendezvous: torch.distributed where the script asks for it, and the port of the native engine.

Who holds which port: under ``torchrun`` the launcher's store sits on MASTER_PORT; with ``"gloo"`` and the like
torch.distributed takes the port that the script gives. In both cases the engine needs another port: rank 0 picks a
free one and announces it through the store that exists, with a job token. With ``"sar"`` alone the engine takes the
port itself.
"""

from __future__ import annotations

import datetime
import importlib.util
import os
from typing import Any, Dict, Optional, Tuple

import torch

from sar._engine import abi
from sar._engine.log import log_once
from sar.config import Config
from sar.errors import RendezvousError

from . import libraries, network, tokens

NATIVE = "sar"
TORCH_BACKENDS = ("gloo", "mpi", "ccl", "nccl")


def choose_backend(asked: str, overriding: bool = True) -> str:
    """The backend to use: ``SAR_BACKEND`` before what the script says, ``"ccl"`` replaced where it is absent.

    :param overriding: whether ``SAR_BACKEND`` counts
    :raises ValueError: the name is unknown, or this torch lacks the backend
    """
    override = os.environ.get("SAR_BACKEND", "").strip().lower() if overriding else ""
    name = override or str(asked).lower()
    source = f"SAR_BACKEND={name!r}" if override else f"backend {name!r}"
    if name == NATIVE:
        return name
    if name not in TORCH_BACKENDS:
        raise ValueError(f"{source} is unknown: give one of 'sar', {', '.join(map(repr, TORCH_BACKENDS))}")
    if not torch.distributed.is_available():
        raise ValueError(f"{source} needs torch.distributed, which this torch lacks: use 'sar'")
    if name == "ccl":
        return name
    available = getattr(torch.distributed, f"is_{name}_available")()
    if not available:
        raise ValueError(
            f"{source}: this torch was built without {name}; use 'gloo' or 'sar' (or set SAR_BACKEND=sar, "
            "which overrides the script)"
        )
    if name == "nccl" and not torch.cuda.is_available():
        raise ValueError(
            f"{source} needs a CUDA device and there is none here; use 'gloo' or 'sar' (or set SAR_BACKEND=sar)"
        )
    return name


def _torch_name(backend: str) -> str:
    """The name torch.distributed knows: gloo stands in for oneCCL where its bindings are not installed."""
    if backend != "ccl":
        return backend
    for module in ("oneccl_bindings_for_pytorch", "torch_ccl"):
        if importlib.util.find_spec(module) is not None:
            importlib.import_module(module)  # registers the backend
            return backend
    log_once("ccl", "the oneCCL bindings are not installed: torch.distributed uses gloo; aggregation is native anyway")
    return "gloo"


def under_torchrun() -> bool:
    """Whether the launcher's own store listens on MASTER_PORT."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE", "").lower() == "true" and bool(os.environ.get("MASTER_PORT"))


def set_up_torch(backend: str, rank: int, world: int, address: str, port: int, timeout: float) -> bool:
    """Makes the default process group, or takes the one that exists. Says whether it was made here.

    :raises ValueError: the existing group has another rank or size
    """
    import torch.distributed as dist

    if dist.is_initialized():
        if (dist.get_rank(), dist.get_world_size()) != (rank, world):
            raise ValueError(
                f"torch.distributed is initialized with rank {dist.get_rank()} of {dist.get_world_size()}, "
                f"but initialize_comms was called with rank {rank} of {world}"
            )
        return False
    name = _torch_name(backend)
    host = f"[{address}]" if ":" in address else address
    method = "env://" if under_torchrun() else f"tcp://{host}:{port}"
    try:
        dist.init_process_group(
            name,
            init_method=method,
            rank=rank,
            world_size=world,
            timeout=datetime.timedelta(seconds=timeout),
        )
    except (RuntimeError, ValueError, OSError) as error:
        where = f"{address}:{port}" if method != "env://" else "the address in MASTER_ADDR and MASTER_PORT"
        raise RendezvousError(
            f"torch.distributed ({name}) could not set up its group at {where} as rank {rank} of {world}: {error}. "
            "Is the address that of rank 0, the port free there, and does every rank start?"
        ) from error
    return True


Place = Tuple[str, int, str]
"""Where rank 0's engine listens, address and port, and the job token, "" where there is none yet."""


def native_place(backend: str, rank: int, world: int, address: str, port: int, timeout: float, token: str) -> Place:
    """What a worker opens its session with. Collective where torch's store tells of it.

    :param address: that of rank 0's host; "" if the store of the process group is to tell it
    """
    given = 0
    if world > 1 and (backend != NATIVE or not address):
        import torch.distributed.distributed_c10d as c10d

        store = c10d._get_default_store()
    elif world > 1 and under_torchrun():
        store_port = int(os.environ["MASTER_PORT"])
        store = torch.distributed.TCPStore(
            os.environ.get("MASTER_ADDR", address),
            store_port,
            is_master=False,
            timeout=datetime.timedelta(seconds=timeout),
        )
        given = 0 if port == store_port else port
    else:
        return address, port, token
    key = new_key(store, "sar/native", rank)  # a process group may serve several sessions
    missing = "rank 0 announced no port for the engine"
    return announce(store, key, rank, timeout, (address, given, token), missing)


def new_key(store: Any, name: str, rank: int) -> str:
    """A key of torch's store that every rank finds, another one at each call."""
    base = f"{name}/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    return f"{base}/{store.add(f'{base}/calls/{rank}', 1)}"


def announce(store: Any, key: str, rank: int, timeout: float, own: Place, missing: str) -> Place:
    """Rank 0 tells the others through torch's store: its address, the port, a free one where none is given (0), and a
    random job token where the script and the environment have none. An address or a token that a worker was given
    stays its own.

    :param missing: what an error says where rank 0 does not come
    """
    address, port, token = own
    if rank == 0:
        address = address or os.environ.get("MASTER_ADDR", "") or network.get_socket().ip_addr
        port = port or network.free_port()
        made = "" if token else tokens.fresh()
        store.set(key, f"{port} {made} {address}")
        store.add(f"{key}/told", 1)
        return address, port, token or made
    try:
        # to wait in the store would keep it from this process's others
        if not network.awaited(timeout, lambda: store.add(f"{key}/told", 0)):
            raise TimeoutError("the time is over")
        told_port, made, told_address = store.get(key).decode().split(" ")
        return address or told_address, int(told_port), token or made
    except (RuntimeError, ValueError, TimeoutError) as error:
        raise RendezvousError(
            f"{missing} within {timeout:g} s: {error}. Did every rank make the call as often as the others?"
        ) from error


def open_session(rank: int, world: int, place: Place, given: Dict[str, Any]) -> int:
    """Opens a session of the engine.

    :param given: of :func:`settings`
    """
    address, port, token = place
    try:
        return abi.session_open(rank, world, address, port, **given, job_token=token)
    finally:
        network.give_up(port)  # rank 0's: the engine listens there now, or nobody will


def settings(start: float, operation: float) -> Dict[str, Any]:
    """What a session of the engine is opened with, besides who meets where.

    :param start: seconds for the rendezvous
    :param operation: seconds for any one operation
    :raises ValueError: a variable of the environment makes no sense
    """
    transport, ports = os.environ.get("SAR_TRANSPORT"), network.port_range()
    libraries.announce(transport)
    return {
        "interface_name": os.environ.get("SAR_SOCKET_NAME"),
        "transport": transport,
        "advertise": os.environ.get("SAR_ADVERTISE"),
        "start_seconds": start,
        "liveness_seconds": network.seconds("SAR_LIVENESS_TIMEOUT", 20.0),
        "operation_seconds": operation,
        "window_bytes": int(Config.window_bytes or 0),
        "insecure": network.flag("SAR_INSECURE"),
        "tls": network.flag("SAR_TLS"),
        "first_port": ports[0] if ports else 0,
        "last_port": ports[-1] if ports else 0,
    }


def default_device(backend: str, device: Optional[torch.device]) -> torch.device:
    if device is not None:
        return torch.device(device)
    return torch.device("cuda" if backend == "nccl" else "cpu")
