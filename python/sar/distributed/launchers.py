"""What each launcher tells a worker, read from its environment variables. Pure functions of these variables, but for
Ray Train and a process group of torch, which tell the process itself."""

from __future__ import annotations

import os
import re
import sys
from typing import Callable, List, Mapping, NamedTuple, Optional, Tuple

from sar.errors import RendezvousError

Variables = Mapping[str, str]


class Place(NamedTuple):
    """One launcher's word."""

    launcher: str
    rank: int
    world_size: int
    sources: Tuple[str, ...] = ()
    """What it was read from."""
    local_rank: Optional[int] = None
    local_world_size: Optional[int] = None
    first_host: str = ""
    """Where rank 0 is, "" if the launcher does not say."""
    first_host_source: str = ""
    one_host: Optional[bool] = None
    """Whether all workers are on this host; ``None`` if the launcher does not say."""


PROCESS_GROUP = "torch.distributed"
TORCHRUN = "torchrun"
SAR_LAUNCH = "sar launch"
RAY = "Ray Train"
OPEN_MPI = "Open MPI"
MPICH = "MPICH"
PMIX = "PMIx"
SLURM = "Slurm"
PYTORCH_JOB = "PyTorchJob"
TRAIN_JOB = "TrainJob"
INDEXED_JOB = "Kubernetes Job"
BY_HAND = "RANK and WORLD_SIZE"

MARK = "SAR_LAUNCHED"
"""``sar launch`` sets it, so that RANK and WORLD_SIZE are known to be its own."""

# Steps of Slurm that srun did not start (batch, interactive, extern, ...) have numbers from here on.
_SPECIAL_STEPS = 0xFFFF_FFF0


def number(variables: Variables, name: str, least: int = 0) -> int:
    """The number that a variable holds.

    :raises sar.RendezvousError: it holds none, or one below ``least``, or is not set
    """
    text = variables.get(name, "").strip()
    if not re.fullmatch(r"\d{1,9}", text) or int(text) < least:
        says = f"{name}={text[:40]!r}" if text else f"{name} is not set"
        raise RendezvousError(f"{says}, but it must be a number from {least} on, since this process has a launcher")
    return int(text)


def _optional(variables: Variables, name: str) -> Optional[int]:
    return number(variables, name) if variables.get(name, "").strip() else None


def _first_host(variables: Variables, name: str) -> Tuple[str, bool]:
    """The first host of a list, and whether it is the only one."""
    try:
        return first_of(variables.get(name, ""))
    except ValueError as error:
        raise RendezvousError(f"{name}: {error}") from error


def _by_variables(
    variables: Variables, launcher: str, rank: str, size: str, local_rank: str, local_size: str
) -> Optional[Place]:
    if not variables.get(rank, "").strip():
        return None
    world = number(variables, size, 1)
    local_world = _optional(variables, local_size)
    return Place(
        launcher,
        number(variables, rank),
        world,
        (rank, size),
        _optional(variables, local_rank),
        local_world,
        one_host=None if local_world is None else local_world >= world,
    )


def _torch_variables(variables: Variables, launcher: str) -> Optional[Place]:
    return _by_variables(variables, launcher, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


def process_group(variables: Variables) -> Optional[Place]:
    """The default group of torch.distributed, where the script or Ray has made it."""
    if "torch.distributed" not in sys.modules:
        return None
    group = sys.modules["torch.distributed"]
    if not group.is_available() or not group.is_initialized():
        return None
    local = _optional(variables, "LOCAL_RANK"), _optional(variables, "LOCAL_WORLD_SIZE")
    return Place(PROCESS_GROUP, group.get_rank(), group.get_world_size(), ("its default process group",), *local)


def torchrun(variables: Variables) -> Optional[Place]:
    return _torch_variables(variables, TORCHRUN) if variables.get("TORCHELASTIC_RUN_ID") else None


def sar_launch(variables: Variables) -> Optional[Place]:
    return _torch_variables(variables, SAR_LAUNCH) if variables.get(MARK) else None


def ray_train(variables: Variables) -> Optional[Place]:
    """A worker of Ray Train. Those of TorchTrainer have a process group."""
    train = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        context = train.get_context()
        rank, world = context.get_world_rank(), context.get_world_size()
        local_rank, local_world = context.get_local_rank(), context.get_local_world_size()
    except Exception:  # outside of a worker; which exception depends on the version
        return None
    if rank is None or world is None:
        return None
    one_host = None if local_world is None else local_world >= world
    return Place(RAY, rank, world, ("ray.train.get_context()",), local_rank, local_world, one_host=one_host)


def open_mpi(variables: Variables) -> Optional[Place]:
    prefix = "OMPI_COMM_WORLD_"
    names = [prefix + name for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")]
    found = _by_variables(variables, OPEN_MPI, *names)
    return found and _with_host(variables, found, True)


def mpich(variables: Variables) -> Optional[Place]:
    """MPICH, Intel MPI and whatever else speaks PMI. ``srun --mpi=pmi2`` sets PMI_RANK too: that is Slurm's."""
    found = _by_variables(variables, MPICH, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
    if found is not None and found.local_world_size is None:
        step = slurm(variables)
        if step is not None and (step.rank, step.world_size) == (found.rank, found.world_size):
            return None
    return found and _with_host(variables, found, False)


def pmix(variables: Variables) -> Optional[Place]:
    """A PMIx launcher that sets nothing else, such as prterun. ``srun --mpi=pmix`` is Slurm's."""
    if not variables.get("PMIX_RANK") or variables.get("PMIX_NAMESPACE", "").startswith("slurm."):
        return None
    if not variables.get("WORLD_SIZE", "").strip():
        raise RendezvousError(
            f"PMIX_RANK={variables['PMIX_RANK'][:40]!r} is set, but nothing in the environment says how many workers "
            "there are: start them with mpirun, which does, or set WORLD_SIZE"
        )
    world = number(variables, "WORLD_SIZE", 1)
    found = Place(PMIX, number(variables, "PMIX_RANK"), world, ("PMIX_RANK", "WORLD_SIZE"))
    return _with_host(variables, found, True)


def slurm(variables: Variables) -> Optional[Place]:
    """A task of srun. The script of sbatch and the shell of salloc have Slurm's variables too, but are no step."""
    host, alone = _first_host(variables, "SLURM_STEP_NODELIST")
    if not variables.get("SLURM_PROCID") or not host:
        return None
    step = variables.get("SLURM_STEP_ID") or variables.get("SLURM_STEPID") or "0"
    if step.isdigit() and int(step) >= _SPECIAL_STEPS:
        return None
    size = "SLURM_STEP_NUM_TASKS" if variables.get("SLURM_STEP_NUM_TASKS") else "SLURM_NTASKS"
    try:
        tasks = repeated(variables.get("SLURM_STEP_TASKS_PER_NODE") or "0")
    except ValueError as error:
        raise RendezvousError(f"SLURM_STEP_TASKS_PER_NODE: {error}") from error
    node = _optional(variables, "SLURM_NODEID")
    return Place(
        SLURM,
        number(variables, "SLURM_PROCID"),
        number(variables, size, 1),
        ("SLURM_PROCID", size),
        _optional(variables, "SLURM_LOCALID"),
        tasks[node] if node is not None and node < len(tasks) and tasks[node] else None,
        first_host=host,
        first_host_source="the first host of SLURM_STEP_NODELIST",
        one_host=alone,
    )


def kubernetes(variables: Variables) -> Optional[Place]:
    """A pod of a PyTorchJob, of a TrainJob, or of an indexed Job, such as those of a JobSet."""
    per_pod = variables.get("PET_NPROC_PER_NODE", "")
    if variables.get("PET_NNODES") and per_pod.isdigit() and int(per_pod) > 1:
        raise RendezvousError(
            f"PET_NPROC_PER_NODE={per_pod}: this pod is to run several workers, so the script must be started by "
            "torchrun, which reads that (command: torchrun SCRIPT); or set nprocPerNode to 1"
        )
    if variables.get("PET_NODE_RANK") and variables.get("RANK"):
        return _torch_variables(variables, PYTORCH_JOB)
    if variables.get("PET_NODE_RANK"):
        found = _by_variables(variables, TRAIN_JOB, "PET_NODE_RANK", "PET_NNODES", "", "")
        address = variables.get("PET_MASTER_ADDR", "")
        return found and found._replace(first_host=address, first_host_source="PET_MASTER_ADDR")
    if variables.get("JOB_COMPLETION_INDEX") and not variables.get("RANK"):
        return _by_variables(variables, INDEXED_JOB, "JOB_COMPLETION_INDEX", "WORLD_SIZE", "", "")
    return None


def by_hand(variables: Variables) -> Optional[Place]:
    if variables.get("WORLD_SIZE", "").strip() not in ("", "1") and not variables.get("RANK", "").strip():
        raise RendezvousError(f"WORLD_SIZE={variables['WORLD_SIZE'][:40]} is set, but RANK is not: set both, or none")
    return _torch_variables(variables, BY_HAND)


# The order. A launcher may be started by another: mpirun by a batch script of Slurm, torchrun by srun. The inner one
# has started this process, and its variables count, so it comes first. srun also starts the daemons of mpirun and of
# Ray, whose workers inherit the daemons' SLURM_PROCID: Slurm comes after both. RANK and WORLD_SIZE come last, since
# anybody may have exported them; where they contradict another launcher, environment.py refuses.
ORDER: List[Callable[[Variables], Optional[Place]]] = [
    process_group,
    torchrun,
    sar_launch,
    ray_train,
    open_mpi,
    mpich,
    pmix,
    slurm,
    kubernetes,
    by_hand,
]

LOOKED_FOR = (
    *("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "PET_NODE_RANK"),
    "JOB_COMPLETION_INDEX",
)
"""The variables by which the launchers are known."""


def _with_host(variables: Variables, found: Place, of_mpirun: bool) -> Place:
    """MPI starts rank 0 on the first host that the scheduler has given. Without a scheduler it is the host of
    mpirun, which is the first one of most host files. Rank 0 finds out if not."""
    uri = re.search(r";tcp(?:://([0-9.]+)|6://\[([0-9A-Fa-f:]+))", variables.get("OMPI_MCA_orte_hnp_uri", ""))
    name = re.match(r"(?:prterun|prte)-(.+)-\d+@\d+$", variables.get("PMIX_NAMESPACE", ""))
    hosts = [
        (_first_host(variables, "SLURM_JOB_NODELIST")[0], "the first host of SLURM_JOB_NODELIST"),
        (next(iter(variables.get("LSB_MCPU_HOSTS", "").split()), ""), "the first host of LSB_MCPU_HOSTS"),
    ]
    if of_mpirun:
        hosts += [(one, "the host of mpirun (OMPI_MCA_orte_hnp_uri)") for one in (uri.groups() if uri else ()) if one]
        hosts += [(name.group(1), "the host of mpirun (PMIX_NAMESPACE)")] if name else []
    host, source = next((one for one in hosts if one[0]), ("", ""))
    return found._replace(first_host=host, first_host_source=source)


def job_of_mpich() -> str:
    """A name for the job that the workers of one host share: the process of MPICH that started them. "" if there is
    none among the parents of this process."""
    process = os.getppid()
    for _ in range(32):
        try:
            with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
                text = file.read(4096)
        except OSError:
            break
        name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 1 :].split()
        if name == "hydra_pmi_proxy":
            return f"{name} {process}"
        process = int(rest[1])
        if process <= 1:
            break
    return ""


# ---- lists as Slurm writes them: ``node[01-03,7],gpu2`` ------------------------

_MOST_HOSTS = 1 << 16
_LONGEST_LIST = 1 << 20
_RANGE = r"\d{1,9}(?:-\d{1,9})?"
_ITEM = rf"(?:[^\[\],\s]|\[{_RANGE}(?:,{_RANGE})*\])+"
_LIST = re.compile(rf"({_ITEM})(?:,{_ITEM})*")


def first_of(text: str) -> Tuple[str, bool]:
    """The first host of a list, "" of an empty one, and whether it is the only one.

    :raises ValueError: the list is malformed
    """
    text = text.strip()
    if not text:
        return "", False
    found = _LIST.fullmatch(text) if len(text) <= _LONGEST_LIST else None
    if found is None:
        raise ValueError(f"{_shown(text)} is no list of hosts such as node[01-03,7],gpu2")
    item = found.group(1)
    return re.sub(r"\[(\d+)[^\]]*\]", r"\1", item), item == text and not re.search(r"\[\d+[-,]", item)


def repeated(text: str) -> List[int]:
    """The numbers of ``2(x3),1``, as Slurm writes tasks per host: 2, 2, 2, 1.

    :raises ValueError: the list is malformed, or longer than 65,536 numbers
    """
    found: List[int] = []
    for part in text.strip().split(","):
        matched = re.fullmatch(r"(\d{1,9})(?:\(x(\d{1,9})\))?", part)
        times = int(matched.group(2) or 1) if matched else 0
        if matched is None or len(found) + times > _MOST_HOSTS:
            raise ValueError(f"{_shown(text)} is no list of numbers such as 2(x3),1")
        found += [int(matched.group(1))] * times
    return found


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
