"""``sar launch``: runs a script as several workers on this machine, and ends all of them when one fails."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from sar.distributed import launchers, tokens
from sar.distributed.network import free_port

from .output import Failure

_DESCRIPTION = """\
Runs SCRIPT as N workers on this machine. Each worker finds its place in the environment: RANK, WORLD_SIZE, LOCAL_RANK,
LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT; its threads in OMP_NUM_THREADS and SAR_NUM_THREADS; and in SAR_JOB_TOKEN a
random token, by which workers of this run know each other. Lines that workers print are prefixed with their rank. When
one worker fails, the others get a grace time to report what they saw, then they are stopped; the command ends with the
exit code of the worker that failed first, or 128 + the signal it died of.

With --max-restarts, all workers are started again after a failure, with a new port and a new token. SAR_RESTART_COUNT
says how often that has happened: 0 in the first life. What they had computed is theirs to save and to load.

To span machines, run the command on each with the same --nodes, --master-addr and --master-port, and its own
--node-rank, with SAR_JOB_TOKEN set to the same secret on all of them.
"""


def add(commands: Any) -> None:
    p = commands.add_parser(
        "launch",
        help="run a script as several workers",
        usage="sar launch -n N [options] (SCRIPT | -m MODULE) [argument ...]",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _options(p)
    p.set_defaults(run=run)


def _options(p: argparse.ArgumentParser) -> None:
    p.add_argument("-n", "--workers", type=int, required=True, metavar="N", help="workers on this machine")
    p.add_argument("-m", dest="module", metavar="MODULE", help="run a module, as python -m does, in place of a script")
    p.add_argument("--no-prefix", action="store_true", help="do not put the rank before lines")
    p.add_argument(
        "--max-restarts",
        type=int,
        default=0,
        metavar="R",
        help="start all workers again after one failed, up to R times (default: 0)",
    )
    add_worker_options(p)


def add_worker_options(p: argparse._ActionsContainer) -> None:
    """What every command that starts workers takes, beside their number."""
    p.add_argument("--threads", type=int, metavar="T", help="threads of each worker (default: cores / N, at least 1)")
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
    p.add_argument(
        "--master-addr", default="127.0.0.1", metavar="A", help="address where rank 0 listens (default: 127.0.0.1)"
    )
    p.add_argument("--master-port", type=int, metavar="P", help="port where rank 0 listens (default: a free one)")
    p.add_argument("--nodes", type=int, default=1, metavar="M", help="machines in all (default: 1)")
    p.add_argument("--node-rank", type=int, default=0, metavar="K", help="number of this machine (default: 0)")


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits the words after ``launch`` into the launcher's own options and the script with its arguments. The script
    is the first word that is neither an option nor an option's value. With ``-m MODULE``, everything after it belongs
    to the module."""
    table = argparse.ArgumentParser(add_help=False)
    _options(table)
    flags = table._option_string_actions
    i = 0
    while i < len(words):
        word = words[i]
        if word == "--":
            return list(words[:i]), list(words[i + 1 :])
        if not word.startswith("-") or word == "-":
            break
        name, has_value = (word, False) if word in flags else (word.split("=", 1)[0], "=" in word)
        action = flags.get(name)
        if action is None and not word.startswith("--") and word[:2] in flags:  # -n4
            action, has_value = flags[word[:2]], True
        i += 1
        if action is not None and action.nargs != 0 and not has_value:
            i += 1
        if action is not None and action.dest == "module":
            break
    return list(words[:i]), list(words[i:])


def run(arguments: argparse.Namespace) -> int:
    rest = list(arguments.rest)
    check_places(arguments)
    if arguments.module is not None:
        command = ["-m", arguments.module, *rest]
    elif not rest:
        raise Failure("no script given: sar launch -n N SCRIPT [argument ...]", 2)
    elif not os.path.isfile(rest[0]):
        raise Failure(f"there is no script {rest[0]}", 2)
    else:
        command = rest
    if arguments.max_restarts < 0:
        raise Failure(f"--max-restarts {arguments.max_restarts}: give 0 or more", 2)
    if arguments.max_restarts and arguments.nodes > 1:
        raise Failure(
            "--max-restarts with --nodes: one launcher does not see the workers of another; leave out --max-restarts, "
            "or start the job with torchrun, which has --max-restarts for several machines",
            2,
        )
    return start(command, arguments, prefix=not arguments.no_prefix, restarts=arguments.max_restarts)


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
    if arguments.nodes > 1 and arguments.master_port is None:
        raise Failure("with several machines, give all of them the same --master-addr and --master-port", 2)


def start(words: Sequence[str], arguments: argparse.Namespace, *, prefix: bool, restarts: int = 0) -> int:
    """Runs Python with ``words`` as the workers that :func:`check_places` has accepted, all of them again up to
    ``restarts`` times where one fails, and returns the exit code of the last life."""
    from .group import run_workers
    from .lines import say

    command = [sys.executable, "-u", *words]
    for count in range(restarts + 1):
        ended = run_workers(command, _life(arguments, count), grace=arguments.grace, prefix=prefix)
        if ended.code == 0 or ended.interrupted:
            break
        if count < restarts:
            say(f"restart {count + 1} of {restarts}: all workers start again")
    return ended.code


def _life(arguments: argparse.Namespace, count: int) -> list[dict[str, str]]:
    """The environments of all workers after ``count`` restarts. A life has a token of its own, and a port unless one
    was given: what is left of an earlier life cannot join it."""
    try:
        token = tokens.for_launch(arguments.nodes)
    except ValueError as error:
        raise Failure(str(error), 2) from None
    common = {"SAR_RESTART_COUNT": str(count)}
    if token is not None:
        common[tokens.VARIABLE] = token
    for chosen, variable in ((arguments.allocator, "SAR_ALLOCATOR"), (arguments.transport, "SAR_TRANSPORT")):
        if chosen is not None:
            common[variable] = chosen
    n, port = arguments.workers, arguments.master_port or free_port()
    place = (n, arguments.threads, arguments.master_addr, port, arguments.nodes, arguments.node_rank)
    return [{**environment(rank, *place), **common} for rank in range(n)]


def environment(
    local_rank: int, workers: int, threads: int | None, master: str, port: int, nodes: int = 1, node: int = 0
) -> dict[str, str]:
    """The environment of one worker: this process's, and its place among the others."""
    per_worker = str(threads or max(1, len(os.sched_getaffinity(0)) // workers))
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC_")},
        "RANK": str(node * workers + local_rank),
        "WORLD_SIZE": str(nodes * workers),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(workers),
        "MASTER_ADDR": master,
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": per_worker,
        "SAR_NUM_THREADS": per_worker,
        "PYTHONUNBUFFERED": "1",
        launchers.MARK: "1",
    }
