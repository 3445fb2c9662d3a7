"""Attackers of a job's ports, and a job to be attacked.

An attacker is a process of its own, ``python attacks.py KIND COUNT UID PORT ...``. It opens COUNT connections again
and again until its input ends, and then prints how many it opened and how many of them were let in. It speaks the
protocol of ``core/trust`` by itself, as its description there has it. The token comes in ``SAR_ATTACK_TOKEN``:
strangers only use it to record a genuine worker's messages.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import resource
import secrets
import select
import socket
import struct
import sys
import time
import zlib
from contextlib import suppress
from typing import Callable, Iterator, NamedTuple

HOST = "127.0.0.1"
HELLO, PROOF, VERDICT = 96, 32, 40
TCP_LINK, SHM_LINK, CONTROL, CALLS = 1, 2, 3, 4

# ---- the protocol, as a worker speaks it -------------------------------------------


def _mac(key: bytes, label: str, *parts: bytes) -> bytes:
    return hmac.new(key, b"\0".join([label.encode(), b"".join(parts)]), hashlib.sha256).digest()


def hello(token: str, rank: int, world: int, peer: int, purpose: int, version: int = 1) -> bytes:
    job = _mac(token.encode(), "sar job fingerprint 1", b"token")[:8]
    head = struct.pack("<4sBBBB8s32s", b"SARP", version, purpose, 0, 0, job, secrets.token_bytes(32))
    return head + struct.pack("<IIII32x", rank, world, peer, 0)


def proof(token: str, sent: bytes, challenge: bytes) -> bytes:
    return _mac(_mac(token.encode(), "sar job key 1", b"token"), "sar proof of the dialer", sent, challenge)


def read(connection: socket.socket, n: int) -> bytes:
    data = b""
    while len(data) < n:
        more = connection.recv(n - len(data))
        if not more:
            break
        data += more
    return data


def genuine(token: str, port: int, purpose: int = CALLS, rank: int = 1, world: int = 3) -> tuple[socket.socket, bytes]:
    """A proven connection, and all that was sent to make it one. Tries again as workers do: others are at the port.

    :raises PermissionError: the listener knows the token, and does not want this worker
    """
    end = time.monotonic() + 30
    while True:
        try:
            return _try(token, port, purpose, rank, world)
        except (ConnectionError, TimeoutError):
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def _try(token: str, port: int, purpose: int, rank: int, world: int) -> tuple[socket.socket, bytes]:
    connection = socket.create_connection((HOST, port), timeout=5)
    sent = hello(token, rank, world, 0, purpose)
    connection.sendall(sent)
    challenge = read(connection, HELLO)
    answer = proof(token, sent, challenge)
    connection.sendall(answer)
    verdict = read(connection, VERDICT)
    if len(verdict) != VERDICT:
        raise ConnectionError("a genuine worker was dropped")
    if verdict[:4] != bytes(4):
        raise PermissionError(f"status {verdict[0]}")
    return connection, sent + answer


# ---- what strangers send: no token is used for it --------------------------------------


class Kit(NamedTuple):
    token: str
    ports: list[int]
    recorded: bytes
    """What a genuine worker had sent to rank 0."""


def _random(kit: Kit) -> bytes:
    return secrets.token_bytes(1 + secrets.randbelow(4096))


def _bomb(kit: Kit) -> bytes:
    """What made rank 0 inflate gigabytes: compression switched on, and zeros."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    return b"SARrpc01\x01" + squeeze.compress(bytes(32 << 20)) + squeeze.flush()


STRANGERS: dict[str, Callable[[Kit], bytes]] = {
    "silent": lambda kit: b"",
    "random": _random,
    "web": lambda kit: b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(512),
    "version": lambda kit: hello(kit.token, 1, 3, 0, CALLS, version=77),
    "other job": lambda kit: hello("the token of another job", 1, 3, 0, CALLS) + bytes(PROOF),
    "no proof": lambda kit: hello(kit.token, 1, 3, 0, CALLS) + bytes(PROOF),
    "replayed": lambda kit: kit.recorded,
    "half": lambda kit: kit.recorded[: 1 + secrets.randbelow(HELLO - 1)],
    "bomb": _bomb,
    "oversize": lambda kit: b"SARrpc01\x00\xf8" + b"\xff" * 8 + bytes(4096),
}


# ---- what a worker of the job may do wrong: it has the token ----------------------------


def _insider_bomb(kit: Kit) -> bytes:
    return b"\x01" + _bomb(kit)[9:]


INSIDERS: dict[str, Callable[[Kit], bytes]] = {
    "insider bomb": _insider_bomb,
    "insider oversize": lambda kit: b"\x00\xf8" + b"\xff" * 8 + bytes(4096),
    "insider random": lambda kit: b"\x00" + _random(kit),
}
KINDS = [*STRANGERS, *INSIDERS]


# ---- the attacker ----------------------------------------------------------------------

WAVE = 100


def attack(kind: str, count: int, kit: Kit, ended: Callable[[], bool]) -> dict[str, int]:
    """Opens ``count`` connections at each port, and goes on until told to end."""
    told = {"opened": 0, "admitted": 0}
    held: list[socket.socket] = []
    while not ended():
        for port in kit.ports:
            for _ in range(0, count, WAVE):
                wave = list(_wave(kind, port, min(WAVE, count), kit))
                told["opened"] += len(wave)
                if kind == "silent":
                    held += wave
                    continue
                for connection in wave:
                    told["admitted"] += kind not in INSIDERS and _heard(connection) > HELLO
                    connection.close()
                if ended():
                    return told
        time.sleep(0.05)
        for connection in held[:-count]:
            connection.close()
        held = held[-count:]
    return told


def _wave(kind: str, port: int, count: int, kit: Kit) -> Iterator[socket.socket]:
    for _ in range(count):
        with suppress(OSError):
            if kind in INSIDERS:
                connection, _ = _try(kit.token, port, CALLS, 1, 3)
                say = INSIDERS[kind](kit)
            else:
                connection = socket.create_connection((HOST, port), timeout=5)
                say = STRANGERS[kind](kit)
            with suppress(OSError):  # it may be closed in the middle
                connection.sendall(say)
            yield connection


def _heard(connection: socket.socket) -> int:
    """Bytes that were answered at once."""
    connection.settimeout(0.05)
    heard = 0
    with suppress(OSError):
        while heard <= HELLO:
            more = connection.recv(4096)
            if not more:
                break
            heard += len(more)
    return heard


def main() -> None:
    kind, count, uid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    ports = [int(word) for word in sys.argv[4:]]
    token = os.environ["SAR_ATTACK_TOKEN"]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    connection, recorded = genuine(token, ports[0])
    connection.close()
    if uid:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    print("ready", flush=True)
    told = attack(kind, count, Kit(token, ports, recorded), lambda: bool(select.select([sys.stdin], [], [], 0)[0]))
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
