"""Allocator policy of this process: what happens to freed memory."""

from __future__ import annotations

import os

from . import abi
from .log import logger

POLICIES = {"default": 0, "compact": 1, "pool": 2}
_NAMES = "'pool', 'compact' or 'default'"
_chosen = ""
pool_stats = abi.pool_stats
"""Bytes of CPU tensors in the pool, and of what the engine computes with: ``live``, ``kept``, ``peak`` (of live) and
``fresh``."""


def set_allocator(policy: str) -> None:
    """Sets what happens to freed blocks of 256 KiB and more in this process.

    ``"pool"`` (the default, unless the environment variable ``SAR_ALLOCATOR`` names another policy): memory of freed
    CPU tensors is kept and reused, up to the peak of the process so far. The process is as small as with ``"compact"``,
    without its page faults. Other blocks are treated as with ``"compact"``.

    ``"compact"``: glibc returns freed blocks to the system at once. ``"default"``: glibc's own behaviour, restored as
    far as possible; ``SAR_ALLOCATOR=default`` does not change the allocator at all.

    Each call returns kept memory to the system, even if the policy stays the same.

    :raises ValueError: another policy
    :raises RuntimeError: ``"pool"``, where torch's allocator cannot be reached or addresses are limited
    """
    global _chosen
    if policy not in POLICIES:
        raise ValueError(f"allocator policy {policy!r} is unknown: give {_NAMES}")
    abi.set_allocator(POLICIES[policy])
    _chosen = policy


def policy() -> str:
    """The policy in use; ``"default"`` before one was chosen."""
    return _chosen or "default"


def give_back() -> None:
    """Returns the memory that the pool keeps to the system, and restarts its peak at what is in use now."""
    if _chosen == "pool":
        abi.pool_trim()


def prepare_process() -> None:
    """Selects the default allocator policy at the first use of the engine, unless the user chose one. Idempotent."""
    global _chosen
    if _chosen:
        return
    given = os.environ.get("SAR_ALLOCATOR", "").strip().lower()
    if given and given not in POLICIES:
        raise ValueError(f"SAR_ALLOCATOR={given!r} is unknown: set it to {_NAMES}, or unset it")
    if given == "default":
        _chosen = given
    elif given:
        set_allocator(given)
    else:
        try:
            set_allocator("pool")
        except RuntimeError as error:
            logger.info("allocator policy compact in place of pool: %s", error)
            set_allocator("compact")
