"""``sar launch``: runs a script as several workers on this machine, and ends all of them when one fails."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from sar.distributed.network import free_port, get_socket

from .binding import MODES
from .hosts import HostSpec, parse as parse_hosts, read as read_hosts
from .output import Failure

_DESCRIPTION = """\
Runs SCRIPT as N workers on this machine. Each worker finds its place in the environment: RANK, WORLD_SIZE, LOCAL_RANK,
LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT; its threads in OMP_NUM_THREADS and SAR_NUM_THREADS; and in SAR_JOB_TOKEN a
random token, by which workers of this run know each other. Lines that workers print are prefixed with their rank. When
one worker fails, the others get a grace time to report what they saw, then they are stopped; the command ends with the
exit code of the worker that failed first, or 128 + the signal it died of.

With --max-restarts, all workers are started again after a failure, with a new port and a new token. SAR_RESTART_COUNT
says how often that has happened: 0 in the first life. What they had computed is theirs to save and to load.

With --hosts a:2,b:3 or --hostfile FILE, workers run on other hosts, which ssh must reach without a password, and which
need the same Python, the same working directory and the same files. They get this environment, but what belongs to a
host. The first host is rank 0's; the others must know it by the name given.

Without ssh, run the command on each machine with the same --nodes, --master-addr and --master-port, and its own
--node-rank, with SAR_JOB_TOKEN set to the same secret on all of them.
"""


def add(commands: Any) -> None:
    p = commands.add_parser(
        "launch",
        help="run a script as several workers",
        usage="sar launch (-n N | --hosts A:N,B:N) [options] (SCRIPT | -m MODULE) [argument ...]",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("-n", "--workers", type=int, metavar="N", help="workers on this machine, or on each host")
    # what follows belongs to the script or the module, also where it looks like an option of ours
    p.add_argument("script", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    module = "run a module, as python -m does, in place of a script"
    p.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help=module)
    p.add_argument("--no-prefix", action="store_true", help="do not put the rank before lines")
    p.add_argument(
        "--max-restarts",
        type=int,
        default=0,
        metavar="R",
        help="start all workers again after one failed, up to R times (default: 0)",
    )
    p.add_argument(
        "--log-dir",
        metavar="DIR",
        help="also write what each worker prints to DIR/rank-K.log, after restart R to DIR/rank-K.restart-R.log",
    )
    p.add_argument("--hosts", metavar="A:N,B:N", help="run N workers on each of these hosts, over ssh")
    p.add_argument(
        "--hostfile", metavar="FILE", help="as --hosts, from a file with a host in each line: a, a:2 or a slots=2"
    )
    p.add_argument(
        "--ssh",
        default=os.environ.get("SAR_SSH") or "ssh",
        metavar="COMMAND",
        help="what reaches a host, with its options (default: SAR_SSH, or ssh)",
    )
    p.add_argument(
        "--remote-python",
        default=sys.executable,
        metavar="PATH",
        help="Python on other hosts (default: the path of this)",
    )
    p.add_argument("--directory", metavar="DIR", help="where workers on other hosts work (default: as here)")
    add_worker_options(p)
    p.set_defaults(run=run)


def add_worker_options(p: argparse._ActionsContainer) -> None:
    """What every command that starts workers takes, beside their number."""
    p.add_argument("--threads", type=int, metavar="T", help="threads of each worker (default: cores / N, at least 1)")
    p.add_argument(
        "--bind",
        choices=MODES,
        default="none",
        help="numa: bind each worker to the cores of a NUMA node; cores: to cores of its own (default: none)",
    )
    p.add_argument(
        "--allocator",
        choices=("pool", "compact", "default"),
        help="what workers do with freed memory: pool keeps as much as their busiest moment took and uses it again, "
        "compact gives it back to the system at once, default leaves glibc's rule (default: what the script says)",
    )
    p.add_argument(
        "--transport",
        metavar="NAME",
        help="force what carries data, as SAR_TRANSPORT does (default: shared memory on one machine, else tcp)",
    )
    p.add_argument(
        "--grace",
        type=float,
        default=10.0,
        metavar="S",
        help="seconds in which workers may report after another failed (default: 10)",
    )
    p.add_argument("--master-addr", metavar="A", help="address where rank 0 listens (default: 127.0.0.1)")
    p.add_argument("--master-port", type=int, metavar="P", help="port where rank 0 listens (default: a free one)")
    p.add_argument("--nodes", type=int, default=1, metavar="M", help="machines in all (default: 1)")
    p.add_argument("--node-rank", type=int, default=0, metavar="K", help="number of this machine (default: 0)")


def run(arguments: argparse.Namespace) -> int:
    from .job import Job, start

    script = arguments.script[1:] if arguments.script[:1] == ["--"] else arguments.script
    hosts = _hosts(arguments)
    if arguments.workers is None:
        raise Failure("give the number of workers, -n N, or hosts with theirs, --hosts A:N,B:N", 2)
    check_places(arguments)
    if not arguments.module and not script:
        raise Failure("no script given: sar launch -n N SCRIPT [argument ...]", 2)
    if not arguments.module and not os.path.isfile(script[0]):
        raise Failure(f"there is no script {script[0]}", 2)
    command = ["-m", *arguments.module] if arguments.module else script
    if arguments.max_restarts < 0:
        raise Failure(f"--max-restarts {arguments.max_restarts}: give 0 or more", 2)
    if arguments.max_restarts and arguments.nodes > 1:
        raise Failure(
            "--max-restarts with --nodes: one launcher does not see the workers of another; start all hosts from here "
            "with --hosts, or the job with torchrun, which has --max-restarts for several machines",
            2,
        )
    job = Job(
        command,
        prefix=not arguments.no_prefix,
        restarts=arguments.max_restarts,
        logs=_log_directory(arguments.log_dir),
        hosts=hosts,
        ssh=_words(arguments.ssh),
        python=arguments.remote_python,
        directory=arguments.directory or "",
    )
    return start(job, arguments)


def _hosts(arguments: argparse.Namespace) -> list[HostSpec]:
    """The hosts that the options name, none where workers run here. Then ``arguments.workers`` is set."""
    if arguments.hosts is None and arguments.hostfile is None:
        return []
    if arguments.hosts is not None and arguments.hostfile is not None:
        raise Failure("give --hosts or --hostfile, not both", 2)
    if arguments.nodes > 1 or arguments.node_rank:
        raise Failure("with --hosts this command starts the workers of all hosts: leave out --nodes, --node-rank", 2)
    default = 1 if arguments.workers is None else arguments.workers
    try:
        if arguments.hosts is not None:
            found = parse_hosts(arguments.hosts, default)
        else:
            found = read_hosts(arguments.hostfile, default)
    except ValueError as error:
        raise Failure(str(error), 2) from None
    first = found[0].address
    if len(found) > 1 and arguments.master_addr is None and (first == "localhost" or first.startswith(("127.", "::1"))):
        raise Failure(
            f"{first} is the first host, where rank 0 listens, and other hosts cannot reach it by that name: name it "
            "as they do, or add --master-addr",
            2,
        )
    arguments.workers = default
    return found


def _words(ssh: str) -> list[str]:
    try:
        return shlex.split(ssh) or ["ssh"]
    except ValueError as error:
        raise Failure(f"--ssh {ssh!r}: {error}", 2) from None


def _log_directory(name: str | None) -> Path | None:
    if name is None:
        return None
    try:
        os.makedirs(name, exist_ok=True)
    except OSError as error:
        raise Failure(f"--log-dir {name}: {error.strerror}", 2) from None
    return Path(name)


def check_places(arguments: argparse.Namespace) -> None:
    """Refuses numbers of workers, threads and machines that make no sense.

    :raises Failure: which
    """
    n = arguments.workers
    if n < 1:
        raise Failure(f"-n {n}: at least one worker is needed", 2)
    if arguments.threads is not None and arguments.threads < 1:
        raise Failure(f"--threads {arguments.threads}: at least one thread is needed", 2)
    if not 0 <= arguments.node_rank < arguments.nodes:
        raise Failure(
            f"--node-rank {arguments.node_rank} must be at least 0 and less than --nodes {arguments.nodes}", 2
        )
    if arguments.nodes > 1 and (arguments.master_addr is None or arguments.master_port is None):
        raise Failure(
            f"--nodes {arguments.nodes} needs --master-addr and --master-port, the same on all machines: an address of "
            "the machine with --node-rank 0, and a port that is free there, such as "
            f"--master-addr {get_socket().ip_addr} --master-port {free_port()} if this is it",
            2,
        )
