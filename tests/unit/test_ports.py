"""The ports that this package chooses: ``SAR_PORT_RANGE``."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from sar.distributed import environment, network, rendezvous


@pytest.fixture
def two_ports(monkeypatch: pytest.MonkeyPatch) -> range:
    """A range of two ports that are free."""
    monkeypatch.setattr(network, "_claims", {})
    while True:
        first = network.free_port()
        try:
            listening(first + 1).close()
        except OSError:
            continue
        break
    for claim in network._claims.values():
        claim.close()
    network._claims.clear()
    monkeypatch.setenv("SAR_PORT_RANGE", f" {first} - {first + 1}")
    return range(first, first + 2)


def listening(port: int) -> socket.socket:
    server = socket.create_server(("", port))
    server.listen()
    return server


@pytest.mark.parametrize("text", ["29400", "29400-", "-29400", "b-c", "9-8", "0-5", "1-65536", "1-2-3", "1.5-2"])
def test_ranges_that_are_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAR_PORT_RANGE", text)
    for ask in (network.port_range, network.free_port):
        with pytest.raises(ValueError, match=f"SAR_PORT_RANGE='{text}': give the first and the last port"):
            ask()


def test_ports_of_the_range(two_ports: range) -> None:
    assert network.port_range() == two_ports
    assert {network.free_port() for _ in two_ports} == set(two_ports)
    # those that this process has got may be given again, the oldest first: a job starts again
    assert [network.free_port() for _ in range(3)] == [*two_ports, two_ports[0]]
    with listening(two_ports[0]):
        assert {network.free_port() for _ in range(3)} == {two_ports[1]}
        with listening(two_ports[1]), pytest.raises(OSError, match="none of the 2 ports of SAR_PORT_RANGE=.* is free"):
            network.free_port()


def test_ports_of_other_processes(two_ports: range) -> None:
    """What another process has got comes last; who listens takes it."""
    ask = "from sar.distributed.network import free_port; print(free_port(), flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", ask], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdin is not None and other.stdout is not None
        first = int(other.stdout.readline())
        assert [network.free_port() for _ in range(3)] == [p for p in two_ports if p != first] * 3
        with listening(first):
            assert network.free_port() != first
            last = listening(sum(two_ports) - first)
            with last, pytest.raises(OSError, match="none of the 2 ports"):
                network.free_port()
        other.stdin.write("\n")


def test_names_that_anybody_can_take(two_ports: range) -> None:
    """No user of this host keeps another from a port by less than taking the port."""
    held = [socket.socket(socket.AF_UNIX, kind) for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM) for _ in two_ports]
    for name, port in zip(held, [*two_ports] * 2):
        name.bind(f"\0sar-port-{port}")
    assert network.free_port() in two_ports
    for name in held:
        name.close()


def test_the_announced_port_is_of_the_range(two_ports: range) -> None:
    """Under torchrun rank 0 tells the others of a port through torch's store."""
    store: dict[str, bytes] = {}

    class Store:
        def set(self, key: str, value: str) -> None:
            store[key] = value.encode()

        def add(self, key: str, amount: int) -> int:
            return amount

    _, port, token = rendezvous.announce(Store(), "key", 0, 1.0, ("host", 0, ""), "rank 0 is missing")
    assert port in two_ports and list(store.values()) == [f"{port} {token} host".encode()]


def test_the_derived_port_is_of_the_range(two_ports: range) -> None:
    """Where a scheduler starts the workers, all of them find the same port."""
    assert {network.port_of(f"job {number}") for number in range(100)} == set(two_ports)
    found = environment.find({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}, None, None, None, None)
    assert found.master_port == two_ports[0]
