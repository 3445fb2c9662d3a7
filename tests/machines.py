"""Two machines on one: network namespaces with an address and a /dev/shm each, joined by a veth pair.

For software that takes the processes of one host as one machine, by its addresses or by names in shared memory.
"""

from __future__ import annotations

import contextlib
import subprocess
from typing import Iterator, NamedTuple

# The namespaces last as long as this waits for the end of its input, and no longer: nothing is left behind however
# the test ends.
KEEPER = "mount -t tmpfs none /dev/shm && ip link set lo up && echo ready && exec cat"


class NoMachines(Exception):
    """Why there are none: no permission, no such program, or a kernel without them."""


class Machine(NamedTuple):
    address: str
    inside: list[str]
    """What to put in front of a command that runs there. Its working directory is ``/``."""


@contextlib.contextmanager
def machines() -> Iterator[list[Machine]]:
    """Two machines. The address of the first sorts behind that of the second, as happens with real ones."""
    keepers: list[subprocess.Popen[str]] = []
    try:
        for _ in range(2):
            keepers.append(_keeper())
        pids = [str(keeper.pid) for keeper in keepers]
        made = [
            Machine(f"10.79.{7 - rank}.1", ["nsenter", "--target", pid, "--net", "--mount", "--"])
            for rank, pid in enumerate(pids)
        ]
        _run(made[0], "ip", "link", "add", "veth", "type", "veth", "peer", "name", "veth", "netns", pids[1])
        for machine in made:
            _run(machine, "ip", "addr", "add", f"{machine.address}/16", "dev", "veth")
            _run(machine, "ip", "link", "set", "veth", "up")
        yield made
    finally:
        for keeper in keepers:
            keeper.communicate()  # closes its input


def _keeper() -> subprocess.Popen[str]:
    words = ["unshare", "--net", "--mount", "--", "sh", "-c", KEEPER]
    try:
        keeper = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except OSError as error:
        raise NoMachines(str(error)) from None
    assert keeper.stdout is not None
    line = keeper.stdout.readline()
    if line != "ready\n":
        keeper.communicate()
        raise NoMachines(line.strip())
    return keeper


def _run(machine: Machine, *words: str) -> None:
    try:
        subprocess.run([*machine.inside, *words], check=True, capture_output=True, text=True)
    except OSError as error:
        raise NoMachines(str(error)) from None
    except subprocess.CalledProcessError as error:
        raise NoMachines(f"{' '.join(words)}: {error.stderr.strip()}") from None
