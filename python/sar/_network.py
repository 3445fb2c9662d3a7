"""Network interfaces of this host, and the address file through which workers find the master."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import time
from typing import List, Optional

from ._log import logger
from .common_tuples import SocketInfo
from .errors import RendezvousError

_SIOCGIFADDR = 0x8915


def interfaces() -> List[SocketInfo]:
    """The IPv4 interfaces of this host that are up, the loopback last."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue  # an interface without an IPv4 address
            found.append(SocketInfo(name, socket.inet_ntoa(answer[20:24])))
    return sorted(found, key=lambda s: s.ip_addr.startswith("127."))


def get_socket() -> SocketInfo:
    """The interface that peers should use to reach this host: name and IPv4 address.

    ``SAR_SOCKET_NAME`` picks one by name; without it InfiniBand comes before Ethernet, and the loopback comes last.

    :raises ValueError: ``SAR_SOCKET_NAME`` names no interface with an IPv4 address
    """
    found = interfaces()
    wanted = os.environ.get("SAR_SOCKET_NAME")
    if wanted:
        for info in found:
            if info.name == wanted:
                return info
        raise ValueError(
            f"SAR_SOCKET_NAME={wanted!r} is not an interface with an IPv4 address here; "
            f"there are: {', '.join(s.name for s in found) or 'none'}"
        )
    if not found:
        return SocketInfo("lo", "127.0.0.1")

    def preference(info: SocketInfo) -> int:
        if info.name.startswith(("ib", "eib")):
            return 0
        if info.name.startswith(("eth", "en")):
            return 1
        return 3 if info.ip_addr.startswith("127.") else 2

    return min(found, key=preference)


def get_socket_name() -> str:
    """The name of the interface of :func:`get_socket`. Raises ValueError as that does."""
    return get_socket().name


def dump_ip_address(ip_file: str) -> str:
    """Writes the address of this host to ``ip_file``, whole or not at all, and returns it.

    :raises OSError: the file cannot be written
    """
    address = get_socket().ip_addr
    partial = f"{ip_file}.{os.getpid()}.tmp"
    with open(partial, "w", encoding="utf-8") as handle:
        handle.write(address + "\n")
    os.replace(partial, ip_file)
    logger.info("wrote address %s to %s", address, ip_file)
    return address


def get_ip_address(ip_file: str, timeout: Optional[float] = None) -> str:
    """Reads the address in ``ip_file``, waiting until the file is there.

    :param timeout: seconds to wait; by default ``SAR_START_TIMEOUT``, or 300
    :raises sar.RendezvousError: the file is not there in time
    """
    limit = seconds("SAR_START_TIMEOUT", 300.0) if timeout is None else timeout
    end = time.monotonic() + limit
    while True:
        try:
            with open(ip_file, encoding="utf-8") as handle:
                address = handle.readline().strip()
            if address:
                return address
        except FileNotFoundError:
            pass
        if time.monotonic() >= end:
            raise RendezvousError(
                f"no address in {ip_file!r} after {limit:g} s: is the worker of rank 0 running, "
                "and does it see the same file system?"
            )
        time.sleep(0.05)


def nfs_ip_init(_rank: int, ip_file: str) -> str:
    """Agrees on the master's address through a file that all workers see.

    Rank 0 writes its own address; the others wait for the file and read it.

    :param _rank: rank of this worker
    :param ip_file: path on a shared file system
    :returns: the master's address, to be passed to :func:`sar.initialize_comms`
    :raises sar.RendezvousError: the file is not there within ``SAR_START_TIMEOUT`` seconds (300)
    """
    return dump_ip_address(ip_file) if _rank == 0 else get_ip_address(ip_file)


def free_port() -> int:
    """A TCP port that nothing listened on a moment ago."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def seconds(variable: str, default: float) -> float:
    """A positive number of seconds from the environment.

    :raises ValueError: the variable holds something else
    """
    text = os.environ.get(variable, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value > 0:
        raise ValueError(f"{variable}={text!r} is no positive number of seconds")
    return value
