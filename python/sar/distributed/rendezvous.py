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
from typing import Any, Optional, Tuple

import torch

from sar._engine.log import log_once
from sar.errors import RendezvousError

from . import network, tokens

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


def native_address(
    backend: str, rank: int, world: int, address: str, port: int, timeout: float, token: str
) -> Tuple[str, int, str]:
    """Where rank 0's engine listens, and the job token, "" where there is none yet. Collective where torch's store
    tells of them.

    :param address: that of rank 0's host; "" if the store of the process group is to tell it
    """
    if world == 1:
        return address, port, token
    if backend != NATIVE or not address:
        import torch.distributed.distributed_c10d as c10d

        return announce(c10d._get_default_store(), rank, timeout, address, None, token)
    if under_torchrun():
        store_port = int(os.environ["MASTER_PORT"])
        store = torch.distributed.TCPStore(
            os.environ.get("MASTER_ADDR", address),
            store_port,
            is_master=False,
            timeout=datetime.timedelta(seconds=timeout),
        )
        return announce(store, rank, timeout, address, None if port == store_port else port, token)
    return address, port, token


def announce(
    store: Any, rank: int, timeout: float, address: str, port: Optional[int], token: str
) -> Tuple[str, int, str]:
    """Rank 0 tells the others through torch's store: its address, the port, a free one where none is given, and a
    random job token where the script and the environment have none. An address or a token that a worker was given
    stays its own."""
    base = f"sar/native/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    key = f"{base}/{store.add(f'{base}/announcements/{rank}', 1)}"  # a process group may serve several sessions
    if rank == 0:
        address = address or os.environ.get("MASTER_ADDR", "") or network.get_socket().ip_addr
        port = port or network.free_port()
        made = "" if token else tokens.fresh()
        store.set(key, f"{port} {made} {address}")
        return address, port, token or made
    try:
        store.wait([key], datetime.timedelta(seconds=timeout))
        told_port, made, told_address = store.get(key).decode().split(" ")
        return address or told_address, int(told_port), token or made
    except (RuntimeError, ValueError) as error:
        raise RendezvousError(
            f"rank 0 announced no port for the engine within {timeout:g} s: {error}. Did every rank call "
            "sar.initialize_comms as often as the others?"
        ) from error


def default_device(backend: str, device: Optional[torch.device]) -> torch.device:
    if device is not None:
        return torch.device(device)
    return torch.device("cuda" if backend == "nccl" else "cpu")
