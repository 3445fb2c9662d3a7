"""Machines of :mod:`tests.support.machines` as a cluster with Slurm, as far as scripts of ``sbatch`` and their workers
see it: names of hosts, the options in a script and before its name, ``srun``, and the variables that both set.

As a program it is ``srun``.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

from tests.support.machines import Machine, run

NODES = "STAND_IN_NODES"
"""Where ``srun`` finds the machines of its job."""
STEPS = "STAND_IN_STEPS"
"""The file in which ``srun`` counts the steps of its job."""


class Cluster:
    """Machines with the names ``node1``, ``node2`` and so on, which share all files.

    :param scratch: an empty directory, for what the machines need
    """

    def __init__(self, machines: list[Machine], scratch: Path) -> None:
        self.nodes = {f"node{number}": machine for number, machine in enumerate(machines, 1)}
        self._jobs = 4710
        hosts = scratch / "hosts"
        lines = [f"{machine.address} {name}" for name, machine in self.nodes.items()]
        hosts.write_text("\n".join(["127.0.0.1 localhost", *lines]) + "\n")
        for name, machine in self.nodes.items():
            run(machine.inside, "hostname", name)
            run(machine.inside, "mount", "--bind", str(hosts), "/etc/hosts")
        self._programs = scratch / "bin"
        self._programs.mkdir()
        srun = self._programs / "srun"
        root = Path(__file__).parents[2]
        srun.write_text(f'#!/bin/sh\nPYTHONPATH="{root}" exec "{sys.executable}" -m {__name__} "$@"\n')
        srun.chmod(0o755)

    def sbatch(self, words: list[str], log: Path, **environment: str) -> subprocess.Popen[bytes]:
        """Starts a batch script on its first node. ``words`` as for the program ``sbatch``.

        :param log: what its workers print goes there
        :param environment: variables more
        """
        own = [word for word in words if word.startswith("--")]
        script, *arguments = [word for word in words if not word.startswith("--")]
        options = dict(option(line) for line in re.findall(r"^#SBATCH (--\S+)", Path(script).read_text(), re.MULTILINE))
        options.update(map(option, own))
        names = list(self.nodes)[: int(options["nodes"])]
        self._jobs += 1
        variables = {
            "SLURM_JOB_ID": str(self._jobs),
            "SLURM_JOB_NODELIST": f"node[1-{len(names)}]",
            "SLURM_JOB_NUM_NODES": str(len(names)),
            "SLURM_NTASKS_PER_NODE": options["ntasks-per-node"],
            "SLURM_CPUS_PER_TASK": options["cpus-per-task"],
            STEPS: str(self._programs / f"steps-{self._jobs}"),
            NODES: json.dumps([[name, self.nodes[name].inside] for name in names]),
        }
        path = f"{self._programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        with log.open("wb") as file:
            return subprocess.Popen(
                at(self.nodes[names[0]].inside, ["bash", script, *arguments]),
                env={**os.environ, **environment, **variables, "PATH": path},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )


def option(word: str) -> tuple[str, str]:
    name, _, value = word[2:].partition("=")
    return name, value


def at(inside: list[str], command: list[str]) -> list[str]:
    """A command on a machine, in this process's directory."""
    return [*inside, "sh", "-c", 'cd "$0" && exec "$@"', os.getcwd(), *command]


def srun(words: list[str]) -> int:
    """Starts the tasks of a step with ``--kill-on-bad-exit`` and ``--label``: ends all when one fails, and puts a
    task's number before its lines."""
    command = words[next(i for i, word in enumerate(words) if not word.startswith("--")) :]
    nodes = json.loads(os.environ[NODES])
    each = int(os.environ["SLURM_NTASKS_PER_NODE"])
    # Steps of a job are numbered: by lines in a file that their shell, which runs the script, shares.
    steps = Path(os.environ[STEPS])
    step = steps.read_text().count("\n") if steps.exists() else 0
    steps.write_text("\n" * (step + 1))
    common = {
        "SLURM_STEP_ID": str(step),
        "SLURM_STEP_NODELIST": os.environ["SLURM_JOB_NODELIST"],
        "SLURM_STEP_NUM_TASKS": str(each * len(nodes)),
        "SLURM_STEP_TASKS_PER_NODE": f"{each}(x{len(nodes)})",
        "SLURM_NTASKS": str(each * len(nodes)),
    }
    tasks: list[tuple[str, subprocess.Popen[bytes]]] = []
    readers = []
    for number, (name, inside) in enumerate(nodes):
        for local in range(each):
            rank = each * number + local
            place = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(local), "SLURM_NODEID": str(number)}
            task = subprocess.Popen(
                at(inside, command),
                env={**os.environ, **common, **place},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            tasks.append((name, task))
            readers.append(threading.Thread(target=relay, args=(task.stdout, f"{rank}: ".encode())))
            readers[-1].start()
    ended: set[int] = set()
    while len(ended) < len(tasks):
        time.sleep(0.1)
        failed = False
        for rank, (name, task) in enumerate(tasks):
            if task.poll() is not None and rank not in ended:
                ended.add(rank)
                if task.returncode:
                    failed = True
                    how = f"Exited with exit code {task.returncode}"
                    if task.returncode < 0:
                        how = signal.strsignal(-task.returncode) or ""
                    print(f"srun: error: {name}: task {rank}: {how}", file=sys.stderr, flush=True)
        for _, task in tasks if failed else []:
            task.terminate()
    for reader in readers:
        reader.join()
    return max(abs(task.returncode) for _, task in tasks)


def relay(stream: IO[bytes], label: bytes) -> None:
    """Hands lines on as they come."""
    for line in stream:
        sys.stdout.buffer.write(label + line)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(srun(sys.argv[1:]))
