"""Network namespaces, one for each worker, joined by links that a token bucket (tbf) shapes. Needs root, ip and tc."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import Iterator

NET = "10.77.0."
MASTER = f"{NET}1"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Link:
    """The namespaces and what joins them: a veth pair for two, a bridge in a namespace of its own for more."""

    def __init__(self, workers: int) -> None:
        self.names = [f"sar-{os.getpid()}-{rank}" for rank in range(workers)]
        self.bridge = f"sar-{os.getpid()}-bridge"

    def inside(self, rank: int) -> list[str]:
        """Words that run a command in a worker's namespace."""
        return ["ip", "netns", "exec", self.names[rank]]

    def shape(self, rate: float | None) -> None:
        """Bytes a second that each worker can send; None: as fast as it goes."""
        for rank in range(len(self.names)):
            tc = [*self.inside(rank), "tc", "qdisc"]
            if rate is None:
                subprocess.run([*tc, "del", "dev", "veth", "root"], check=False, capture_output=True)
            else:
                bucket = ["tbf", "rate", f"{int(8 * rate)}bit", "burst", "256kb", "limit", "4mb"]
                subprocess.run([*tc, "replace", "dev", "veth", "root", *bucket], check=True)

    def join(self) -> None:
        if len(self.names) == 2:
            ends = [["name", "veth", "netns", name] for name in self.names]
            ip("link", "add", *ends[0], "type", "veth", "peer", *ends[1])
            return
        ip("netns", "add", self.bridge)
        ip("-n", self.bridge, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.bridge, "link", "set", "bridge", "up")
        for rank, name in enumerate(self.names):
            port = f"port{rank}"
            ip("link", "add", "name", "veth", "netns", name, "type", "veth", "peer", "name", port, "netns", self.bridge)
            ip("-n", self.bridge, "link", "set", port, "master", "bridge", "up")

    def up(self) -> None:
        for name in self.names:
            ip("netns", "add", name)
        self.join()
        for rank, name in enumerate(self.names):
            ip("-n", name, "addr", "add", f"{NET}{rank + 1}/24", "dev", "veth")
            for device in ("lo", "veth"):
                ip("-n", name, "link", "set", device, "up")

    def down(self) -> None:
        for name in (*self.names, self.bridge):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def come_first() -> None:
    """Has this process computed before other work on the machine, where the kernel groups processes by session."""
    os.setsid()
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w", encoding="ascii") as file:
        file.write("-20")


@contextlib.contextmanager
def link(workers: int = 2) -> Iterator[Link]:
    """Makes the namespaces, and takes them down afterwards."""
    if os.geteuid() != 0:
        sys.exit("network namespaces are made: run this as root")
    made = Link(workers)
    try:
        made.up()
        yield made
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(error.cmd)}: {(error.stderr or '').strip()}")
    finally:
        made.down()
