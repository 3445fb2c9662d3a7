"""The faults. Each is a generator: it strikes, yields how many seconds it lasts, and undoes what it did."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
from pathlib import Path
from typing import Callable, Iterator, NamedTuple

from tests.support.machines import Machine, run

from .case import LAYOUTS, LIVENESS, OPERATION, Case
from .job import PORT

WIRED = ("tcp", "mixed", "tls")  # layouts in which hosts are joined by a network


class Target(NamedTuple):
    """What a fault strikes."""

    case: Case
    rng: random.Random
    pids: list[int]  # of the workers, by rank
    machines: list[Machine]
    scratch: Path

    @property
    def pid(self) -> int:
        return self.pids[self.case.victim]

    @property
    def machine(self) -> Machine:
        return self.machines[self.case.host(self.case.victim)]

    def on_host(self, *words: str) -> str:
        return run(self.machine.inside, *words)


Fault = Callable[[Target], Iterator[float]]


class Kind(NamedTuple):
    fault: Fault
    layouts: tuple[str, ...]
    deadline: float
    """How long after it the workers may wait before they raise an error."""
    survivable: bool
    """Whether the job is meant to go on."""


KINDS: dict[str, Kind] = {}


def _kind(name: str, layouts: tuple[str, ...], deadline: float, survivable: bool = False) -> Callable[[Fault], Fault]:
    def add(fault: Fault) -> Fault:
        KINDS[name] = Kind(fault, layouts, deadline, survivable)
        return fault

    return add


# ---- processes ---------------------------------------------------------------


@_kind("kill", LAYOUTS, LIVENESS)
def kill(at: Target) -> Iterator[float]:
    os.kill(at.pid, signal.SIGKILL)
    yield 0


@_kind("term", LAYOUTS, LIVENESS)
def term(at: Target) -> Iterator[float]:
    os.kill(at.pid, signal.SIGTERM)
    yield 0


@_kind("stop, short", LAYOUTS, OPERATION, survivable=True)
def stop_short(at: Target) -> Iterator[float]:
    yield from _stopped(at, LIVENESS * at.rng.uniform(0.1, 0.5))


@_kind("stop, long", LAYOUTS, LIVENESS)
def stop_long(at: Target) -> Iterator[float]:
    yield from _stopped(at, LIVENESS * at.rng.uniform(1.5, 2.5))


def _stopped(at: Target, seconds: float) -> Iterator[float]:
    os.kill(at.pid, signal.SIGSTOP)
    yield seconds
    with contextlib.suppress(ProcessLookupError):
        os.kill(at.pid, signal.SIGCONT)


# ---- the network -------------------------------------------------------------


def _drop(inside: list[str], device: str, *matches: str) -> None:
    """Drops what comes in at a device there and matches; without matches everything."""
    rules = [f"add rule netdev faults {device} {match} drop" for match in matches or ("",)]
    hook = f'type filter hook ingress device "{device}" priority 0;'
    run(inside, "nft", "; ".join(["add table netdev faults", f"add chain netdev faults {device} {{ {hook} }}", *rules]))


def _into(at: Target, *matches: str) -> None:
    """Drops what comes to the host. What its workers send to each other comes by ``lo``."""
    _drop(at.machine.inside, "lo" if at.case.layout == "shm" else "veth", *matches)


def _out_of(at: Target, *matches: str) -> None:
    """Drops what leaves the host, where it cannot tell."""
    if at.case.layout != "shm":
        _drop(at.machine.switch, at.machine.port, *matches)


def _heal(at: Target) -> None:
    run(at.machine.inside, "nft", "flush ruleset")
    run(at.machine.switch, "nft", "flush ruleset")


@_kind("cut, towards", WIRED, LIVENESS)
def cut_towards(at: Target) -> Iterator[float]:
    _into(at)
    yield 0


@_kind("cut, from", WIRED, LIVENESS)
def cut_from(at: Target) -> Iterator[float]:
    _out_of(at)
    yield 0


@_kind("cut, both ways", LAYOUTS, LIVENESS)
def cut_both(at: Target) -> Iterator[float]:
    _into(at)
    _out_of(at)
    yield 0


@_kind("cut, between two", ("tcp", "tls"), LIVENESS)
def cut_between(at: Target) -> Iterator[float]:
    peer = at.machines[at.case.peer]
    _into(at, f"ip saddr {peer.address}")
    _out_of(at, f"ip daddr {peer.address}")
    yield 0


@_kind("link down", LAYOUTS, LIVENESS)
def link_down(at: Target) -> Iterator[float]:
    at.on_host("ip", "link", "set", "lo" if at.case.layout == "shm" else "veth", "down")
    yield 0


@_kind("cable out", WIRED, LIVENESS)
def cable_out(at: Target) -> Iterator[float]:
    run(at.machine.switch, "ip", "link", "set", at.machine.port, "down")
    yield 0


@_kind("flap", WIRED, OPERATION, survivable=True)
def flap(at: Target) -> Iterator[float]:
    for _ in range(at.rng.randint(2, 4)):
        run(at.machine.switch, "ip", "link", "set", at.machine.port, "down")
        yield at.rng.uniform(0.05, 0.2)
        run(at.machine.switch, "ip", "link", "set", at.machine.port, "up")
        yield at.rng.uniform(0.1, 0.3)


def _lossy(at: Target, percent: int) -> Iterator[float]:
    match = f"numgen random mod 100 < {percent}"
    _into(at, match)
    _out_of(at, match)
    yield at.rng.uniform(2, 4)
    _heal(at)


@_kind("loss of 10 %", LAYOUTS, OPERATION, survivable=True)
def loss_10(at: Target) -> Iterator[float]:
    yield from _lossy(at, 10)


@_kind("loss of 50 %", LAYOUTS, OPERATION)
def loss_50(at: Target) -> Iterator[float]:
    yield from _lossy(at, 50)


@_kind("1 Mbit/s", WIRED, OPERATION)
def slow(at: Target) -> Iterator[float]:
    device = ["tc", "qdisc", "add", "dev", "veth", "root"]
    at.on_host(*device, "tbf", "rate", "1mbit", "burst", "16kb", "latency", "200ms")
    yield at.rng.uniform(2, 4)
    at.on_host("tc", "qdisc", "del", "dev", "veth", "root")


@_kind("reset, one", LAYOUTS, LIVENESS)
def reset_one(at: Target) -> Iterator[float]:
    lines = at.on_host("ss", "-tnH", "state", "established").splitlines()
    if lines:
        own, peer = at.rng.choice(lines).split()[2:4]
        at.on_host("ss", "-K", "-tnH", "src", own, "dst", peer)
    yield 0


@_kind("reset, all", LAYOUTS, LIVENESS)
def reset_all(at: Target) -> Iterator[float]:
    at.on_host("ss", "-K", "-tnH", "state", "established")
    yield 0


@_kind("address change", WIRED, LIVENESS)
def address(at: Target) -> Iterator[float]:
    number = at.machine.address.split(".")[2]
    at.on_host("ip", "addr", "del", f"{at.machine.address}/16", "dev", "veth")
    at.on_host("ip", "addr", "add", f"10.79.{number}.2/16", "dev", "veth")
    yield 0


def _port(at: Target) -> str:
    """Matches packets from and to a port that the victim's host listens on."""
    ports = {line.split()[3].rpartition(":")[2] for line in at.on_host("ss", "-tlnH").splitlines()} or {str(PORT)}
    return at.rng.choice(sorted(ports))


@_kind("port cut", LAYOUTS, LIVENESS)
def port_cut(at: Target) -> Iterator[float]:
    port = _port(at)
    _into(at, f"tcp dport {port}", f"tcp sport {port}")
    yield 0


@_kind("port refused", LAYOUTS, LIVENESS)
def port_refused(at: Target) -> Iterator[float]:
    hook = "type filter hook input priority 0;"
    rule = f"tcp dport {_port(at)} reject with tcp reset"
    table = ["add table inet faults", f"add chain inet faults input {{ {hook} }}"]
    at.on_host("nft", "; ".join([*table, f"add rule inet faults input {rule}"]))
    yield 0


# ---- what a process has ------------------------------------------------------


@_kind("disk full", LAYOUTS, LIVENESS)
def disk_full(at: Target) -> Iterator[float]:
    folder = at.rng.choice((at.scratch, Path("/dev/shm")))
    # dd fails when the disk is full, as it should
    at.on_host("sh", "-c", f"dd if=/dev/zero of={folder}/filler bs=64k status=none 2>/dev/null; rm -f {folder}/*.pt")
    yield 0


@_kind("memory limit", LAYOUTS, OPERATION)
def memory_limit(at: Target) -> Iterator[float]:
    pages = int(Path(f"/proc/{at.pid}/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + (at.rng.randrange(16) << 20)
    resource.prlimit(at.pid, resource.RLIMIT_AS, (limit, limit))
    yield 0


@_kind("descriptors", LAYOUTS, OPERATION)
def descriptors(at: Target) -> Iterator[float]:
    limit = len(os.listdir(f"/proc/{at.pid}/fd")) + at.rng.randrange(4)
    resource.prlimit(at.pid, resource.RLIMIT_NOFILE, (limit, limit))
    yield 0
