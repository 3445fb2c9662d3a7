"""Several machines on one: network namespaces with an address and a /dev/shm each, joined by a bridge.

For software that takes the processes of one host as one machine, by its addresses or by names in shared memory, and
for tests in which a host or a link fails.
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
    """Of its network interface ``veth``."""
    inside: list[str]
    """What to put in front of a command that runs there. Its working directory is ``/``."""
    pid: int
    """A process whose network, mount and UTS namespaces are the machine's."""
    port: str
    """The other end of ``veth``, at the switch."""
    switch: list[str]
    """What to put in front of a command that runs at the switch."""


@contextlib.contextmanager
def machines(count: int = 2) -> Iterator[list[Machine]]:
    """So many machines. Their addresses sort the other way round than their numbers, as may happen with real ones."""
    keepers: list[subprocess.Popen[str]] = []
    try:
        for _ in range(count + 1):
            keepers.append(_keeper())
        switch = _inside(keepers[-1].pid)
        run(switch, "ip", "link", "add", "bridge", "type", "bridge")
        run(switch, "ip", "link", "set", "bridge", "up")
        made = []
        for number, keeper in enumerate(keepers[:-1]):
            inside, port = _inside(keeper.pid), f"port{number}"
            made.append(Machine(f"10.79.{count + 5 - number}.1", inside, keeper.pid, port, switch))
            veth = ["type", "veth", "peer", "name", port, "netns", str(keepers[-1].pid)]
            run(inside, "ip", "link", "add", "veth", *veth)
            run(switch, "ip", "link", "set", port, "master", "bridge", "up")
            run(inside, "ip", "addr", "add", f"{made[-1].address}/16", "dev", "veth")
            run(inside, "ip", "link", "set", "veth", "up")
        yield made
    finally:
        for keeper in keepers:
            keeper.communicate()  # closes its input


def open_ports(places: list[Machine], first: int, last: int) -> None:
    """Has a firewall on each machine let others reach these ports alone, the last included.

    :raises NoMachines: there is no nftables
    """
    for machine in places:
        run(machine.inside, "nft", _FIREWALL.format(first=first, last=last))


_FIREWALL = """
table inet firewall {{
  chain input {{
    type filter hook input priority 0; policy drop;
    iif lo accept
    ct state established,related accept
    meta l4proto {{ icmp, icmpv6 }} accept
    tcp dport {first}-{last} accept
  }}
}}
"""


def _inside(pid: int) -> list[str]:
    return ["nsenter", "--target", str(pid), "--net", "--mount", "--uts", "--"]


def _keeper() -> subprocess.Popen[str]:
    words = ["unshare", "--net", "--mount", "--uts", "--", "sh", "-c", KEEPER]
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


def run(inside: list[str], *words: str) -> str:
    """What a command prints there.

    :raises NoMachines: it failed, or there is no such command
    """
    try:
        return subprocess.run([*inside, *words], check=True, capture_output=True, text=True).stdout
    except OSError as error:
        raise NoMachines(str(error)) from None
    except subprocess.CalledProcessError as error:
        raise NoMachines(f"{' '.join(words)}: {error.stderr.strip()}") from None
