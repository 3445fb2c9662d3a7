"""Network interfaces of this host, and the address file through which workers find the master."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import struct
import tempfile
import time
import zlib
from typing import Any, Callable, Dict, List, Optional, Tuple

from sar._engine.log import logger
from sar.data.records import SocketInfo
from sar.errors import RendezvousError

from . import tokens

_SIOCGIFADDR = 0x8915
_LONGEST_PAUSE = 0.02


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


def is_here(host: str) -> bool:
    """Whether this process can listen at an address of ``host``. True for a name that cannot be resolved: whoever
    listens there says so."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return True
    for family, kind, _, _, address in found:
        with contextlib.suppress(OSError), socket.socket(family, kind) as probe:
            probe.bind(address)
            return True
    return False


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
    """Writes the address of this host and a new job token to ``ip_file``, whole or not at all, and returns the address.
    Only this user can read the file.

    :raises OSError: the file cannot be written
    """
    address, token = get_socket().ip_addr, tokens.fresh()
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    origin = f"written at {now} by process {os.getpid()} on {socket.gethostname()}"
    descriptor, partial = tempfile.mkstemp(prefix=".sar-", dir=os.path.dirname(ip_file) or ".")  # for this user alone
    try:
        with open(descriptor, "w", encoding="utf-8") as handle:
            handle.write(f"{address}\n{_TOKEN}{token}\n{origin}\n")
        os.replace(partial, ip_file)
    except BaseException:
        os.unlink(partial)
        raise
    tokens.remember(address, tokens.FromFile(ip_file, token, origin))
    logger.info("wrote address %s to %s", address, ip_file)
    return address


_TOKEN = "job token "
_LONGEST_FILE = 4096


def read_address_file(ip_file: str) -> Tuple[str, tokens.FromFile]:
    """What is in the file: address, "" where it is not there yet, and the rest.

    :raises sar.RendezvousError: the file belongs to another user
    """
    nothing = tokens.FromFile(ip_file, "", "")
    try:
        with open(ip_file, encoding="utf-8", errors="replace") as handle:
            status = os.fstat(handle.fileno())
            lines = handle.read(_LONGEST_FILE).splitlines()
    except FileNotFoundError:
        return "", nothing
    if status.st_uid != os.geteuid():
        raise RendezvousError(
            f"{ip_file!r} belongs to user id {status.st_uid}, and this process runs as {os.geteuid()}: "
            "what another user wrote is not believed; use a file in a directory of your own"
        )
    if len(lines) < 2 or not lines[1].startswith(_TOKEN):
        return (lines[0].strip() if lines else ""), nothing
    if status.st_mode & 0o077:
        logger.warning("%s holds a job token and can be read by other users: chmod 600 it", ip_file)
    origin = lines[2] if len(lines) > 2 else ""
    return lines[0].strip(), tokens.FromFile(ip_file, lines[1][len(_TOKEN) :].strip(), origin)


def get_ip_address(ip_file: str, timeout: Optional[float] = None) -> str:
    """Reads the address in ``ip_file``, waiting until the file is there.

    :param timeout: seconds to wait; by default ``SAR_START_TIMEOUT``, or 300
    :raises sar.RendezvousError: the file is not there in time, or belongs to another user
    """
    limit = seconds("SAR_START_TIMEOUT", 300.0) if timeout is None else timeout
    if not awaited(limit, lambda: read_address_file(ip_file)[0]):
        raise RendezvousError(
            f"no address in {ip_file!r} after {limit:g} s: is the worker of rank 0 running, "
            "and does it see the same file system?"
        )
    address, found = read_address_file(ip_file)
    tokens.remember(address, found)
    return address


def nfs_ip_init(_rank: int, ip_file: str) -> str:
    """Agrees on the master's address through a file that all workers see.

    Rank 0 writes its own address and a job token; the others wait for the file and read it. Nobody else may read it:
    the file has mode 0600, and one that another user wrote is refused. A file that an earlier run left behind is
    replaced by rank 0; a worker that read it before notices that.

    :param _rank: rank of this worker
    :param ip_file: path on a shared file system
    :returns: the master's address, to be passed to :func:`sar.initialize_comms`
    :raises sar.RendezvousError: the file is not there within ``SAR_START_TIMEOUT`` seconds (300)
    """
    return dump_ip_address(ip_file) if _rank == 0 else get_ip_address(ip_file)


def awaited(limit: float, look: Callable[[], Any]) -> bool:
    """Looks again and again, for so many seconds, and tells whether there was something."""
    end, pause = time.monotonic() + limit, 0.001
    while not look():
        if time.monotonic() >= end:
            return False
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    return True


def flag(variable: str) -> bool:
    """Whether a variable of the environment is 1.

    :raises ValueError: the variable holds something else than 0 or 1
    """
    text = os.environ.get(variable, "").strip()
    if text not in ("", "0", "1"):
        raise ValueError(f"{variable}={text!r}: give 1 or 0, or leave it unset")
    return text == "1"


def port_range() -> Optional[range]:
    """The ports of ``SAR_PORT_RANGE=first-last``, both included; ``None`` where any will do.

    :raises ValueError: the variable holds something else
    """
    text = os.environ.get("SAR_PORT_RANGE", "").strip()
    if not text:
        return None
    ends = [end.strip() for end in text.split("-")]
    if len(ends) == 2 and all(end.isdecimal() for end in ends):
        first, last = map(int, ends)
        if 1 <= first <= last <= 65535:
            return range(first, last + 1)
    raise ValueError(
        f"SAR_PORT_RANGE={text!r}: give the first and the last port that workers may listen on, such as 29400-29431"
    )


_PORTS = range(20_000, 30_000)
_claims: Dict[int, socket.socket] = {}  # by port, oldest first
_MOST_CLAIMS = 100


def free_port() -> int:
    """A TCP port that nothing listened on a moment ago, and that no other process of this host has got lately from
    this function: one of ``SAR_PORT_RANGE``, or below those that Linux gives to outgoing connections (from 32768 on),
    one of which might take it before it is used.

    The port stays bound by this process, and whoever sets ``SO_REUSEADDR``, as listeners do, can listen there.

    :raises OSError: there is none
    :raises ValueError: ``SAR_PORT_RANGE`` is no range
    """
    given = port_range()
    fresh = [port for port in given or _PORTS if port not in _claims]
    if given:  # those that this process got before come last
        candidates = fresh + [port for port in _claims if port in given]
    else:
        candidates = [*random.SystemRandom().sample(fresh, 100), 0]
    for alone in (True, False):
        for port in candidates:
            with contextlib.suppress(OSError):
                return _claim(port, alone)
    if given:
        raise OSError(
            f"none of the {len(given)} ports of SAR_PORT_RANGE={given[0]}-{given[-1]} is free on this host: "
            "give it more ports, or end what listens there"
        )
    raise OSError("no TCP port is free")


def _claim(port: int, alone: bool) -> int:
    """Takes a port, and returns it.

    :param alone: not where another process has claimed it, or where connections of a job that has ended are closing
    :raises OSError: somebody listens there, or it is not alone
    """
    if port in _claims or not alone:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
            probe.listen()
    claim = _claims.pop(port, None) or socket.socket()
    try:
        if not claim.getsockname()[1]:
            claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(not alone))
            claim.bind(("", port))
            claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # for who will listen
    except OSError:
        claim.close()
        raise
    found = int(claim.getsockname()[1])
    _claims[found] = claim
    if len(_claims) > _MOST_CLAIMS:
        _claims.pop(next(iter(_claims))).close()
    return found


def give_up(port: int) -> None:
    """Lets go of what :func:`free_port` gave: somebody listens there now, or nobody will."""
    claim = _claims.pop(port, None)
    if claim is not None:
        claim.close()


def port_of(job: str) -> int:
    """A port for the job of that name, among those of :func:`free_port`: the same on every host, usually another one
    for another job."""
    ports = port_range() or _PORTS
    return ports[zlib.crc32(job.encode()) % len(ports)]


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
