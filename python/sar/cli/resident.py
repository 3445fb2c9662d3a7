"""Resident memory of this process, as the kernel counts it: anonymous, file and shared pages together."""

from __future__ import annotations


def resident() -> dict[str, int]:
    """Bytes: ``now`` and ``peak`` resident, shared memory included; of now, ``shared`` memory and mapped ``files``."""
    names = {"VmRSS": "now", "VmHWM": "peak", "RssShmem": "shared", "RssFile": "files"}
    found = {}
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            key, _, rest = line.partition(":")
            if key in names:
                found[names[key]] = int(rest.split()[0]) * 1024
    return found


def reset_peak() -> None:
    """Lowers ``peak`` to what is resident now (Linux: clear_refs 5)."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
