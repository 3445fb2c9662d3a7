"""Finds this worker's place: its rank, how many workers there are, and where rank 0 waits for them."""

from __future__ import annotations

import contextlib
import os
from typing import List, Mapping, NamedTuple, Optional, Tuple

from sar.errors import RendezvousError

from . import launchers, network, tokens
from .launchers import Place, Variables

ARGUMENTS = "arguments"
ALONE = "none"
DEFAULT_PORT = 12345

_LOOPBACK = "127.0.0.1"
_HOW_TO_START = (
    "sar launch -n {n} SCRIPT, torchrun --nproc-per-node {n} SCRIPT, mpirun -n {n} python SCRIPT, or "
    "srun -n {n} python SCRIPT"
)


class Environment(NamedTuple):
    """A worker's place among the others, as :func:`sar.environment` found it. ``str()`` gives the whole story."""

    launcher: str
    """``"torchrun"``, ``"sar launch"``, ``"Open MPI"``, ``"MPICH"``, ``"PMIx"``, ``"Slurm"``, ``"PyTorchJob"``,
    ``"TrainJob"``, ``"Kubernetes Job"``, ``"Ray Train"``, ``"torch.distributed"`` (its process group exists), ``"RANK
    and WORLD_SIZE"``, ``"arguments"``, or ``"none"``."""
    rank: int
    world_size: int
    local_rank: Optional[int]
    """Number of this worker on its host; ``None`` if the launcher does not say."""
    local_world_size: Optional[int]
    """Workers on this host; ``None`` if the launcher does not say."""
    master_address: str
    """Where rank 0 listens. "" where rank 0 will tell through the process group, and where nobody knows: see
    ``problem``."""
    master_port: int
    reasons: Tuple[str, ...]
    """What each of these was taken from, and what was seen and not used."""
    problem: str
    """Why the workers cannot meet, and what to do; "" if they can."""
    assumed: bool = False
    """Whether ``master_address`` is where launchers of this kind start rank 0, which rank 0 checks."""

    def __str__(self) -> str:
        head = f"launcher: {self.launcher}, rank {self.rank} of {self.world_size}"
        if self.local_rank is not None:
            of = "" if self.local_world_size is None else f" of {self.local_world_size}"
            head += f", {self.local_rank}{of} on this host"
        if self.world_size > 1 and self.master_address:
            head += f"; rank 0 listens at {self.master_address}, port {self.master_port}"
        problem = [f"  problem: {self.problem}"] if self.problem else []
        return "\n".join([head, *(f"  {reason}" for reason in self.reasons), *problem])

    def wrong_number(self, needed: int) -> str:
        """How this worker was started, and how it should have been, for errors about the number of workers."""
        how = f"{self.launcher} says that this is rank {self.rank} of {self.world_size}"
        if self.launcher == ALONE:
            how = "No launcher has started this process"
        elif self.launcher == ARGUMENTS:
            how = f"The script called sar.initialize_comms as rank {self.rank} of {self.world_size}"
        reasons = list(self.reasons)
        if self.launcher == ARGUMENTS:
            with contextlib.suppress(RendezvousError):
                other = environment()
                reasons.append(f"without arguments it would be rank {other.rank} of {other.world_size}")
                reasons += other.reasons
        return f"{how} ({'; '.join(reasons)}). Start it with {_HOW_TO_START.format(n=needed)}"


def environment() -> Environment:
    """What this process is told about its place among the workers, and by whom. Needs no session, and contacts nobody.

    :returns: launcher, rank, number of workers, where rank 0 listens, and the reasons; ``print`` it
    :raises sar.RendezvousError: two launchers contradict each other, or one tells only a half
    """
    return find(os.environ)


def find(
    variables: Mapping[str, str],
    rank: Optional[int] = None,
    world_size: Optional[int] = None,
    address: Optional[str] = None,
    port: Optional[int] = None,
) -> Environment:
    """What the arguments say, and for those that are ``None`` the first launcher of :data:`launchers.ORDER` that has
    something to say.

    :raises sar.RendezvousError: as :func:`environment`
    """
    given = [n for n, a in (("rank", rank), ("world size", world_size), ("address", address)) if a is not None]
    told: Optional[Place] = None
    reasons: List[str] = []
    if len(given) < 3:
        told, reasons = _told_by_launchers(variables)
    place = _place(told, rank, world_size)
    if given:
        reasons.insert(0, f"{', '.join(given)}: given to sar.initialize_comms")
    where, meet, problem = _meeting(place, variables, address)
    if port is None:
        port, from_where = _port(place, variables) if len(given) < 3 else (DEFAULT_PORT, "the default")
        meet += f", port: {from_where}" if where else ""
    if place.world_size > 1 and address is None:
        reasons.append(meet)
    local = place.local_rank, place.local_world_size
    assumed = address is None and where == place.first_host != "" and place.launcher != launchers.TRAIN_JOB
    assumed = assumed and not variables.get("MASTER_ADDR", "").strip()
    return Environment(
        place.launcher, place.rank, place.world_size, *local, where, port, tuple(reasons), problem, assumed
    )


def _place(told: Optional[Place], rank: Optional[int], world_size: Optional[int]) -> Place:
    """What the launcher told, but for the ranks that the script gave. What it says about hosts holds if they agree."""
    if rank is None and world_size is None:
        return told or Place(ALONE, 0, 1, one_host=True)
    me = rank if rank is not None else told.rank if told else 0
    world = world_size if world_size is not None else told.world_size if told else 1
    if told is not None and (me, world) == (told.rank, told.world_size):
        return told
    return Place(ARGUMENTS, me, world, one_host=True if world == 1 else None)


def _told_by_launchers(variables: Variables) -> Tuple[Optional[Place], List[str]]:
    """The launcher that counts, and the reasons.

    :raises sar.RendezvousError: RANK and WORLD_SIZE contradict another launcher
    """
    for ask in launchers.ORDER:
        place = ask(variables)
        if place is not None:
            break
    else:
        return None, [_nobody(variables)]
    other: Optional[Place] = None
    if place.launcher in (launchers.OPEN_MPI, launchers.MPICH, launchers.PMIX, launchers.SLURM):
        other = launchers.by_hand(variables) if variables.get("RANK") and variables.get("WORLD_SIZE") else None
    if other is not None and (other.rank, other.world_size) != (place.rank, place.world_size):
        if place.world_size > 1:
            raise RendezvousError(
                f"{place.launcher} says rank {place.rank} of {place.world_size} ({' and '.join(place.sources)}), but "
                f"RANK and WORLD_SIZE say rank {other.rank} of {other.world_size}: if they are left over, unset them "
                "(env -u RANK -u WORLD_SIZE before the command)"
            )
        place = other  # started by hand in a shell that is the only task of a step
    reasons = [f"rank and number of workers: {' and '.join(place.sources)}"]
    step = launchers.slurm(variables) if place.launcher != launchers.SLURM else None
    if step is not None and (step.rank, step.world_size) != (place.rank, place.world_size):
        reasons.append(
            f"not used: Slurm's rank {step.rank} of {step.world_size}, since {place.launcher} was started inside it"
        )
    return place, reasons


def _nobody(variables: Variables) -> str:
    """What was looked for, and what is there all the same."""
    says = f"none of {', '.join(launchers.LOOKED_FOR)} is set"
    seen = [name for name in launchers.LOOKED_FOR if variables.get(name)]
    if seen:
        says = f"{', '.join(seen)} alone does not make a worker"
    if variables.get("SLURM_JOB_ID"):
        says += "; SLURM_JOB_ID is set, but this process is no task of a step: Slurm starts workers with srun"
    return says


def _meeting(place: Place, variables: Variables, address: Optional[str]) -> Tuple[str, str, str]:
    """Where rank 0 listens, why there, and why nobody knows."""
    if address is not None:
        return address, "address: argument", ""
    if place.world_size == 1:
        return _LOOPBACK, "", ""
    if place.launcher == launchers.PROCESS_GROUP:
        return "", "address and port: rank 0 tells them through the store of the process group", ""
    named = variables.get("MASTER_ADDR", "").strip()
    if named:
        if place.one_host is False and (named.startswith("127.") or named in ("localhost", "::1")):
            problem = f"MASTER_ADDR={named} is another host on each host: set it to the address of rank 0's host"
            return "", "address: MASTER_ADDR", problem
        return named, "address: MASTER_ADDR", ""
    if place.one_host:
        return _LOOPBACK, "address: all workers are on this host", ""
    if place.first_host:
        return place.first_host, f"address: {place.first_host_source}", ""
    problem = (
        f"nothing says where rank 0 of these {place.world_size} workers is: set MASTER_ADDR to the address of its "
        f"host, {_LOOPBACK} if all workers are on one{_HOW_TO_EXPORT.get(place.launcher, '')}"
    )
    return "", "address: not known", problem


_HOW_TO_EXPORT = {
    launchers.OPEN_MPI: " (mpirun -x MASTER_ADDR=...)",
    launchers.MPICH: " (mpiexec -genv MASTER_ADDR ...)",
    launchers.RAY: ", or use TorchTrainer, whose process group tells it",
}


def _port(place: Place, variables: Variables) -> Tuple[int, str]:
    """The port of rank 0, which all workers must find by themselves, and where it comes from."""
    for name in ("MASTER_PORT", "PET_MASTER_PORT"):
        if variables.get(name, "").strip():
            port = launchers.number(variables, name, 1)
            if port > 65535:
                raise RendezvousError(f"{name}={port}: ports end at 65535")
            return port, name
    job, source = tokens.job_name(variables)
    if not job and place.launcher == launchers.MPICH and place.one_host:
        job, source = launchers.job_of_mpich(), "the process of MPICH that started this one"
    if not job:
        ports = network.port_range()
        return (ports[0], "the first of SAR_PORT_RANGE") if ports else (DEFAULT_PORT, "the default")
    return network.port_of(job), f"derived from {source}"
