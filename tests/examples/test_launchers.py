"""The basic example under every launcher: it runs with the same losses, or refuses at once and says why."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sar.distributed.network import free_port
from tests.examples.conftest import DEADLINE, EXAMPLES, Parts
from tests.support import warm
from tests.support.command import run_sar

BASIC = EXAMPLES / "more" / "homogeneous_basic.py"
FILES = EXAMPLES / "launch"


def losses(text: str) -> list[str]:
    return re.findall(r"loss ([\d.]+)", text)


@pytest.fixture(scope="module")
def words(parts: Parts) -> list[str]:
    """The script and its arguments, for two workers."""
    pytest.importorskip("dgl")
    options = ["--train-iters", "3", "--hidden-layer-dim", "16"]
    return [str(BASIC), "--partitioning-json-file", str(parts("cora", 2)), *options]


@pytest.fixture(scope="module")
def expected(words: list[str]) -> list[str]:
    done = run_sar("launch", "-n", 2, *words, deadline=DEADLINE)
    assert done.returncode == 0 and len(losses(done.stdout)) == 3, done.stderr
    return losses(done.stdout)


def start(words: list[str], **variables: str) -> subprocess.Popen[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "SAR_START_TIMEOUT": "100", **variables}
    return warm.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def slurm(rank: int, port: str) -> dict[str, str]:
    place = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_NTASKS": "2"}
    return {**place, "SLURM_JOB_ID": port, "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "localhost"}


def pytorch_job(rank: int, port: str) -> dict[str, str]:
    place = {"RANK": str(rank), "PET_NODE_RANK": str(rank), "WORLD_SIZE": "2", "PET_NNODES": "2"}
    return {**place, "PET_NPROC_PER_NODE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": port}


def job_set(rank: int, port: str) -> dict[str, str]:
    """What jobset.yaml sets, and what Kubernetes adds; the first pod is this host."""
    (jobs,) = resource("jobset.yaml", "jobset.x-k8s.io/v1alpha2")["replicatedJobs"]
    (container,) = jobs["template"]["spec"]["template"]["spec"]["containers"]
    own = {e["name"]: e["value"] for e in container["env"] if "value" in e}
    return {**own, "JOB_COMPLETION_INDEX": str(rank), "MASTER_ADDR": "localhost", "MASTER_PORT": port}


def pmix(rank: int, port: str) -> dict[str, str]:
    place = {"PMIX_RANK": str(rank), "PMIX_NAMESPACE": f"prterun-localhost-{port}@1", "WORLD_SIZE": "2"}
    return {**place, "SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_STEP_NODELIST": "localhost"}  # of its daemon


@pytest.mark.parametrize("variables", [slurm, pytorch_job, job_set, pmix])
def test_variables_of(variables, words: list[str], expected: list[str]) -> None:
    port = str(free_port())
    processes = [start(words, **variables(rank, port)) for rank in range(2)]
    texts = [process.communicate(timeout=DEADLINE)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], texts
    assert losses(texts[0]) == expected and losses(texts[1]) == []


def found_mpirun(name: str, version: str) -> str:
    command = shutil.which(name)
    if command is None:
        pytest.skip(f"{name} is not installed")
    if not re.search(version, subprocess.run([command, "--version"], capture_output=True, text=True).stdout):
        pytest.skip(f"{name} is not that of {version}")
    return command


@pytest.mark.parametrize(
    ("name", "version", "options"),
    [
        ("mpirun.openmpi", "OpenRTE|Open MPI", ["--oversubscribe", "--allow-run-as-root"]),
        ("mpiexec.mpich", "HYDRA", []),
    ],
)
def test_mpirun(name: str, version: str, options: list[str], words: list[str], expected: list[str]) -> None:
    command = [found_mpirun(name, version), *options, "-n", "2", sys.executable, *words]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert losses(done.stdout) == expected


@pytest.mark.parametrize("restarts", ["", "1", "2"])
def test_sbatch_script(restarts: str, tmp_path: Path) -> None:
    """The file to copy, with an srun that shows what it would start and fails twice, and Slurm's variables of a batch
    script."""
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/bash\necho "$OMP_NUM_THREADS $@" >> log\ntest "$(wc -l < log)" = 3\n')
    srun.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_CPUS_PER_TASK": "4", "RESTARTS": restarts}
    script = ["bash", str(FILES / "train.sbatch"), "train.py", "parts/graph.json"]
    done = subprocess.run(script, env=env, cwd=tmp_path, capture_output=True, text=True)
    line = "4 --cpus-per-task=4 --kill-on-bad-exit=1 --label python train.py parts/graph.json\n"
    assert (tmp_path / "log").read_text() == line * (1 + int(restarts or 0))
    assert done.returncode == (0 if restarts == "2" else 1)


def resource(name: str, version: str) -> dict[str, Any]:
    """The specification in a file to copy, whose kind is that of its name."""
    yaml = pytest.importorskip("yaml")
    (found,) = yaml.safe_load_all((FILES / name).read_text())
    assert (found["apiVersion"], found["kind"].lower()) == (version, name.partition(".")[0])
    assert found["metadata"]["name"] == "sar-gcn"
    return found["spec"]


def token_of(environment: list[dict[str, Any]]) -> object:
    (variable,) = (e for e in environment if e["name"] == "SAR_JOB_TOKEN")
    return variable["valueFrom"]["secretKeyRef"]


SECRET = {"name": "sar", "key": "token"}  # as the comments in the files make it


def test_pytorch_job_file() -> None:
    """As many pods as partitions; every pod the same."""
    spec = resource("pytorchjob.yaml", "kubeflow.org/v1")
    master, worker = (spec["pytorchReplicaSpecs"][name] for name in ("Master", "Worker"))
    assert spec["nprocPerNode"] == "1" and (master["replicas"], worker["replicas"]) == (1, 1)
    assert master["template"] == worker["template"]
    (container,) = master["template"]["spec"]["containers"]
    assert container["name"] == "pytorch"  # the operator looks for that name
    assert container["command"][0] == "python" and token_of(container["env"]) == SECRET


def test_train_job_file() -> None:
    spec = resource("trainjob.yaml", "trainer.kubeflow.org/v1alpha1")
    trainer = spec["trainer"]
    assert spec["runtimeRef"] == {"name": "torch-distributed"}
    assert trainer["numNodes"] * trainer["numProcPerNode"] == 2 and trainer["command"][0] == "torchrun"
    assert token_of(trainer["env"]) == SECRET


def test_job_set_file() -> None:
    """One job of two pods, whose first one has the name that the others look for."""
    (jobs,) = resource("jobset.yaml", "jobset.x-k8s.io/v1alpha2")["replicatedJobs"]
    job = jobs["template"]["spec"]
    assert jobs["replicas"] == 1 and job["parallelism"] == job["completions"] == 2 and job["backoffLimit"] == 0
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    own = {e["name"]: e.get("value") for e in container["env"]}
    assert own["MASTER_ADDR"] == f"sar-gcn-{jobs['name']}-0-0.sar-gcn" and own["WORLD_SIZE"] == "2"
    assert token_of(container["env"]) == SECRET and pod["restartPolicy"] == "Never"
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({}, "holds 2 partitions, but 1 workers take part.*No launcher has started this process.*sar launch -n 2"),
        ({"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, "2 partitions, but 1 workers.*with srun"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "nothing says where rank 0 of these 2 workers is: set MASTER_ADDR"),
        ({"PMIX_RANK": "0"}, "nothing in the environment says how many workers"),
        (
            {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"},
            "2 partitions, but 1 workers.*Open MPI says that this is rank 0 of 1",
        ),
    ],
)
def test_refused_at_once(variables: dict[str, str], says: str, words: list[str]) -> None:
    process = start(words, **variables)
    text = process.communicate(timeout=60)[0]
    assert process.returncode != 0 and re.search(says, text), text


@pytest.mark.full
def test_ray_train(words: list[str], expected: list[str]) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed")
    script = FILES / "ray_train.py"
    env = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled", "RAY_DEDUP_LOGS": "0"}
    command = [sys.executable, str(script), "2", *words]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900)
    shown = list(dict.fromkeys(losses(done.stdout)))  # Ray shows lines of workers twice
    assert done.returncode == 0 and shown == expected, done.stdout
