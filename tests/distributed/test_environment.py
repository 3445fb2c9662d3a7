"""What sar.initialize_comms() finds in the environment of each launcher."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import sar
from sar.distributed import launchers, tokens
from sar.distributed.environment import Environment, find

BY_HAND = {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "head", "MASTER_PORT": "29400"}
TORCHRUN = {**BY_HAND, "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "3", "TORCHELASTIC_RUN_ID": "none"}
SAR_LAUNCH = {**BY_HAND, "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "3", "SAR_LAUNCHED": "1"}
# As Open MPI 4.1.4 and 5.0.11, MPICH 4.0.2 and 5.0.2 set them.
OPEN_MPI = {
    **{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
    **{"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
    **{"OMPI_MCA_ess_base_jobid": "695992321", "PMIX_NAMESPACE": "695992321", "PMIX_RANK": "1"},
    "OMPI_MCA_orte_hnp_uri": "695992320.0;tcp://192.0.2.2,172.17.0.1:38353;tcp6://[fd00::2]:34613",
}
PRTERUN = {"PMIX_RANK": "1", "PMIX_NAMESPACE": "prterun-my-host-17892@1", "PMIX_HOSTNAME": "other"}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "PMI_FD": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
SLURM = {
    **{"SLURM_JOB_ID": "71", "SLURM_STEP_ID": "0", "SLURM_PROCID": "2", "SLURM_NTASKS": "3", "SLURM_LOCALID": "0"},
    **{"SLURM_STEP_NODELIST": "node[01-02]", "SLURM_STEP_TASKS_PER_NODE": "2,1", "SLURM_NODEID": "1"},
    **{"SLURM_JOB_NODELIST": "node[01-02]", "SLURM_STEP_NUM_TASKS": "3"},
}
SBATCH = {
    **{"SLURM_JOB_ID": "71", "SLURM_PROCID": "0", "SLURM_NTASKS": "3", "SLURM_LOCALID": "0"},
    "SLURM_JOB_NODELIST": "node[01-02]",
}
PYTORCH_JOB = {
    **{"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456"},
    **{"PET_NNODES": "3", "PET_NODE_RANK": "1", "PET_NPROC_PER_NODE": "auto"},
}
TRAIN_JOB = {
    **{"PET_NNODES": "3", "PET_NODE_RANK": "1", "PET_NPROC_PER_NODE": "1"},
    **{"PET_MASTER_ADDR": "job-node-0-0.job", "PET_MASTER_PORT": "29400"},
}
INDEXED_JOB = {"JOB_COMPLETION_INDEX": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "w-0.s", "MASTER_PORT": "29400"}


def without(variables: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name not in names}


def short(found: Environment) -> tuple[Any, ...]:
    return found.launcher, found.rank, found.world_size, found.local_rank, found.local_world_size, found.master_address


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, ("none", 0, 1, None, None, "127.0.0.1")),
        (BY_HAND, ("RANK and WORLD_SIZE", 1, 3, None, None, "head")),
        (TORCHRUN, ("torchrun", 1, 3, 1, 3, "head")),
        (SAR_LAUNCH, ("sar launch", 1, 3, 1, 3, "head")),
        (OPEN_MPI, ("Open MPI", 1, 2, 1, 2, "127.0.0.1")),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, ("Open MPI", 1, 2, 1, 1, "192.0.2.2")),
        ({**PRTERUN, "WORLD_SIZE": "2"}, ("PMIx", 1, 2, None, None, "my-host")),
        (MPICH, ("MPICH", 1, 2, 1, 2, "127.0.0.1")),
        ({**MPICH, "MPI_LOCALNRANKS": "1", "LSB_MCPU_HOSTS": "h7 1 h8 1"}, ("MPICH", 1, 2, 1, 1, "h7")),
        (SLURM, ("Slurm", 2, 3, 0, 1, "node01")),
        (without(SLURM, "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"), ("Slurm", 2, 3, 0, None, "node01")),
        ({**SLURM, "SLURM_STEP_NODELIST": "node7"}, ("Slurm", 2, 3, 0, 1, "127.0.0.1")),
        ({**SLURM, "MASTER_ADDR": "mine"}, ("Slurm", 2, 3, 0, 1, "mine")),
        (PYTORCH_JOB, ("PyTorchJob", 1, 3, None, None, "job-master-0")),
        (TRAIN_JOB, ("TrainJob", 1, 3, None, None, "job-node-0-0.job")),
        (INDEXED_JOB, ("Kubernetes Job", 1, 3, None, None, "w-0.s")),
    ],
)
def test_each_launcher(variables: dict[str, str], expected: tuple[Any, ...]) -> None:
    found = find(variables)
    assert short(found) == expected and not found.problem
    assert f"rank {found.rank} of {found.world_size}" in str(found) and found.reasons


@pytest.mark.parametrize(
    ("variables", "launcher", "rank"),
    [
        # inside sbatch, srun starts a daemon on each host, whose workers inherit its place
        ({**SLURM, **OPEN_MPI}, "Open MPI", 1),
        ({**SLURM, **MPICH}, "MPICH", 1),
        ({**SLURM, **PRTERUN, "WORLD_SIZE": "2"}, "PMIx", 1),
        ({**SLURM, **TORCHRUN}, "torchrun", 1),
        ({**SLURM, **SAR_LAUNCH}, "sar launch", 1),
        ({**OPEN_MPI, **SAR_LAUNCH}, "sar launch", 1),
        ({**SBATCH, **OPEN_MPI}, "Open MPI", 1),
        # srun --mpi=pmi2 and --mpi=pmix
        ({**SLURM, "PMI_RANK": "2", "PMI_SIZE": "3"}, "Slurm", 2),
        ({**SLURM, "PMIX_RANK": "2", "PMIX_NAMESPACE": "slurm.pmix.71.0"}, "Slurm", 2),
        # agreeing with RANK and WORLD_SIZE
        ({**SLURM, "RANK": "2", "WORLD_SIZE": "3"}, "Slurm", 2),
        # by hand in the shell of srun --pty
        ({**SLURM, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", **BY_HAND}, "RANK and WORLD_SIZE", 1),
        # torchrun in a pod overwrites RANK
        ({**PYTORCH_JOB, **TORCHRUN}, "torchrun", 1),
    ],
)
def test_one_launcher_inside_another(variables: dict[str, str], launcher: str, rank: int) -> None:
    found = find(variables)
    assert (found.launcher, found.rank) == (launcher, rank)


def test_what_is_not_used_is_named() -> None:
    assert "not used: Slurm's rank 2 of 3, since Open MPI" in str(find({**SLURM, **OPEN_MPI}))


@pytest.mark.parametrize("step", ["4294967290", "4294967291", None])
def test_a_shell_of_salloc_and_a_script_of_sbatch_are_no_step(step: str | None) -> None:
    variables = {**SBATCH} if step is None else {**SLURM, "SLURM_STEP_ID": step}
    found = find(variables)
    assert short(found) == ("none", 0, 1, None, None, "127.0.0.1")
    assert "Slurm starts workers with srun" in found.wrong_number(2) and "sar launch -n 2" in found.wrong_number(2)


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({**OPEN_MPI, "RANK": "0", "WORLD_SIZE": "1"}, "Open MPI says rank 1 of 2.*WORLD_SIZE say rank 0 of 1"),
        ({**SLURM, "RANK": "0", "WORLD_SIZE": "3"}, "Slurm says rank 2 of 3.*rank 0 of 3.*env -u RANK"),
        ({"RANK": "1"}, "WORLD_SIZE is not set"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE=2 is set, but RANK is not"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "RANK='one'"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "WORLD_SIZE='0'.*from 1 on"),
        ({**BY_HAND, "MASTER_PORT": "70000"}, "MASTER_PORT=70000"),
        (PRTERUN, "PMIX_RANK='1' is set.*how many.*mpirun.*WORLD_SIZE"),
        ({**SLURM, "SLURM_STEP_NODELIST": "node[1-"}, "SLURM_STEP_NODELIST: 'node"),
        ({**TRAIN_JOB, "PET_NPROC_PER_NODE": "4"}, "PET_NPROC_PER_NODE=4.*torchrun"),
        ({"JOB_COMPLETION_INDEX": "1"}, "WORLD_SIZE is not set"),
    ],
)
def test_refused(variables: dict[str, str], says: str) -> None:
    with pytest.raises(sar.RendezvousError, match=says):
        find(variables)


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        (without(BY_HAND, "MASTER_ADDR"), "set MASTER_ADDR.*127.0.0.1 if all"),
        ({**MPICH, "MPI_LOCALNRANKS": "1"}, r"mpiexec -genv MASTER_ADDR"),
        (without({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, "OMPI_MCA_orte_hnp_uri"), "mpirun -x MASTER_ADDR"),
        ({**SLURM, "MASTER_ADDR": "localhost"}, "MASTER_ADDR=localhost is another host on each host"),
    ],
)
def test_nobody_says_where_to_meet(variables: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find(variables)
    assert found.master_address == "" and f"problem: {found.problem}" in str(found)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(sar.RendezvousError, match=says):
        sar.initialize_comms()
    assert find(variables, address="there").problem == ""


def test_rank_0_is_not_where_it_was_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    """203.0.113.0/24 belongs to nobody."""
    for name, value in {**SLURM, "SLURM_PROCID": "0", "SLURM_STEP_NODELIST": "203.0.113.[7-8]"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(sar.RendezvousError, match=r"expected at 203\.0\.113\.7.*first host of SLURM.*set MASTER_ADDR"):
        sar.initialize_comms()
    assert find(SLURM).assumed and not find({**SLURM, "MASTER_ADDR": "node01"}).assumed
    assert not find(TRAIN_JOB).assumed and not find(MPICH).assumed


def test_arguments_come_first() -> None:
    assert short(find(SLURM, 0, 1, "a")) == ("arguments", 0, 1, None, None, "a")
    assert find(SLURM, 0, 1, "a").master_port == 12345
    assert short(find(SLURM, 0, 2)) == ("arguments", 0, 2, None, None, "")
    assert short(find(SLURM, address="a")) == ("Slurm", 2, 3, 0, 1, "a")
    assert find(SLURM, address="a").master_port == find(SLURM).master_port
    assert find(SLURM, port=7).master_port == 7
    assert find({"RANK": "bad"}, 1, 2, "a").rank == 1  # nothing is read that is not needed


def test_ports() -> None:
    """One for each job, the same for all of its workers."""
    job = {**SLURM, "SLURM_PROCID": "0", "SLURM_NODEID": "0"}
    ports = [find({**job, **more}).master_port for more in ({}, {"SLURM_STEP_ID": "1"}, {"SLURM_JOB_ID": "72"})]
    assert len(set(ports)) == 3 and all(20_000 <= port < 30_000 for port in ports)
    assert find(SLURM).master_port == ports[0]
    assert find({**SLURM, "MASTER_PORT": "1234"}).master_port == 1234
    # mpirun's own workers lack the step that srun gave to those on other hosts
    inside = {**SBATCH, **OPEN_MPI}
    assert find(inside).master_port == find({**inside, "SLURM_STEP_ID": "0"}).master_port
    assert tokens.job_name(inside) == tokens.job_name({**inside, "SLURM_STEP_ID": "0"})
    assert find(TRAIN_JOB).master_port == 29400


def test_ray_train(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the process group that TorchTrainer makes. The real Ray is in test_launchers.py."""
    context = SimpleNamespace(
        get_world_rank=lambda: 1, get_world_size=lambda: 2, get_local_rank=lambda: 0, get_local_world_size=lambda: 1
    )
    train = ModuleType("ray.train")
    train.get_context = lambda: context  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray.train", train)
    found = find(SLURM)  # of the step in which Ray runs
    assert short(found) == ("Ray Train", 1, 2, 0, 1, "") and "TorchTrainer" in found.problem
    train.get_context = lambda: 1 // 0  # type: ignore[attr-defined]
    assert find(SLURM).launcher == "Slurm"


def test_the_job_of_mpich(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert launchers.job_of_mpich() == "" and find(MPICH).master_port == 12345
    monkeypatch.setattr(launchers, "job_of_mpich", lambda: "hydra_pmi_proxy 7")
    assert find(MPICH).master_port != 12345


def test_how_the_script_was_started_is_told() -> None:
    alone = find({}).wrong_number(4)
    assert "No launcher has started this process" in alone and "OMPI_COMM_WORLD_RANK" in alone
    assert "torchrun --nproc-per-node 4 SCRIPT" in alone
    assert "torchrun says that this is rank 1 of 3" in find(TORCHRUN).wrong_number(4)
    given = find({}, 0, 1, "127.0.0.1").wrong_number(2)
    assert "called sar.initialize_comms as rank 0 of 1" in given and "without arguments" in given


@pytest.mark.parametrize(
    ("text", "host", "alone"),
    [
        ("", "", False),
        ("node7", "node7", True),
        ("node[07]", "node07", True),
        ("node[01-03,7],gpu2", "node01", False),
        ("n[9-11]", "n9", False),
        ("gpu-2,n[9-11]", "gpu-2", False),
        ("rack[1-2]n[08,10]-ib", "rack1n08-ib", False),
        ("rack[1]n[08]-ib", "rack1n08-ib", True),
    ],
)
def test_hostlists(text: str, host: str, alone: bool) -> None:
    assert launchers.first_of(text) == (host, alone)


@pytest.mark.parametrize("text", ["a,", ",a", "a b", "n[1-3", "n]", "n[]", "n[1-2-3]", "n[a]", "n[1-9999999999]"])
def test_what_is_no_hostlist(text: str) -> None:
    with pytest.raises(ValueError, match="hosts"):
        launchers.first_of(text)


def test_repeated_numbers() -> None:
    assert launchers.repeated("2(x3),1") == [2, 2, 2, 1]
    for text in ("", "2(x", "a", "1(x99999999)"):
        with pytest.raises(ValueError, match="no list of numbers"):
            launchers.repeated(text)
