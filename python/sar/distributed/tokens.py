"""Finds the job token.

The workers of a job prove to each other that they know its token, so that nobody else joins and jobs never mix.
In this order:

1. the argument ``job_token`` of :func:`sar.initialize_comms`, or ``SAR_JOB_TOKEN``, which ``sar launch`` sets to a
   random one;
2. the file of :func:`sar.nfs_ip_init`, where the address of the master came from it;
3. the store of the process group, under ``torchrun``, with a backend of torch.distributed, and for further groups of
   backend ``sar``: rank 0 puts a random token there;
4. the number of the job at a scheduler (Slurm, PBS, LSF, Flux, an MPI launcher), which is no secret, mixed with a
   secret in the user's home. Home directories must be shared by the hosts of the job, as they are on clusters;
5. where the job does not leave this host: the secret in the user's home alone (the engine sees to that).

Elsewhere a missing token is an error, unless ``SAR_INSECURE=1``.
"""

from __future__ import annotations

import os
import secrets
from typing import Dict, Mapping, NamedTuple, Optional, Tuple

from sar._engine import abi

VARIABLE = "SAR_JOB_TOKEN"

# What names a job, and a step of it that may run beside others, by scheduler. None of it is secret. MPI comes first:
# in a job of Slurm, only the workers that mpirun starts on other hosts have a SLURM_STEP_ID.
_SCHEDULERS = (
    ("PMIX_NAMESPACE",),
    ("OMPI_MCA_ess_base_jobid",),
    ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ("PBS_JOBID",),
    ("LSB_JOBID",),
    ("FLUX_JOB_ID",),
)


class FromFile(NamedTuple):
    """What a file of :func:`sar.nfs_ip_init` told."""

    path: str
    token: str
    origin: str
    """When it was written, and by whom."""


_files: Dict[str, FromFile] = {}  # by the address of the master


def fresh() -> str:
    """A new random token."""
    return secrets.token_hex(32)


def given(argument: Optional[str] = None) -> str:
    """The token that the script or the environment names, "" if there is none.

    :raises TypeError: the argument is no string
    """
    if argument is not None and not isinstance(argument, str):
        raise TypeError(f"job_token is of type {type(argument).__name__}: give a string, or None")
    return argument or os.environ.get(VARIABLE, "").strip()


def remember(address: str, found: FromFile) -> None:
    """Keeps what a file told, for when the script comes with the address."""
    _files[address] = found


def file_of(address: str) -> Optional[FromFile]:
    """The file that an address came from, if it held a token."""
    found = _files.get(address)
    return found if found and found.token else None


def job_name(variables: Mapping[str, str]) -> Tuple[str, str]:
    """A name for the job, the same in all its workers, and the variables that it is made of; "" outside of a
    scheduler."""
    for names in _SCHEDULERS:
        values = [variables.get(name, "") for name in names]
        if values[0]:
            return "/".join([names[0], *values]), " and ".join(n for n, value in zip(names, values) if value)
    return "", ""


def scheduled(port: int) -> str:
    """The token derived from the scheduler's job number, "" outside of a scheduler. The master's port distinguishes
    several runs in one job.

    :raises sar.RendezvousError: the user's secret cannot be read or made
    """
    job, _ = job_name(os.environ)
    return abi.job_token(f"{job}/{port}") if job else ""


def for_launch(nodes: int) -> Optional[str]:
    """The token that ``sar launch`` gives to its workers; ``None`` if they find one by themselves. On one machine it is
    always new: two runs with the same environment are two jobs.

    :raises ValueError: there are several machines, and no secret that they share
    """
    if nodes == 1:
        return fresh()
    if given():
        return given()
    if job_name(os.environ)[0]:
        return None
    raise ValueError(
        f"with several machines, set {VARIABLE} to one secret on all of them, for example\n"
        f"    export {VARIABLE}={fresh()}"
    )
