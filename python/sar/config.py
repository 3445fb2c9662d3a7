"""Settings that a script may change, before or after :func:`sar.initialize_comms`.

Every worker must set the same values, because they decide what is sent when.
"""

from __future__ import annotations

from typing import Optional


class Config:
    """Process-wide settings; set them on the class, as in ``sar.Config.window_bytes = 64 << 20``."""

    disable_sr: bool = False
    """Keep what forward fetched in place of fetching it again in backward (SA mode). The numbers are the same.
    Sums and means of ``copy_u`` never fetch twice, so for them it changes nothing."""

    max_collective_size: int = 0
    """Largest number of elements of one collective call; longer tensors travel in several calls. 0: no limit."""

    pipeline_depth: int = 1
    """Kept for scripts that set it, without effect. The old package had one tensor of a peer's rows in flight, and this
    many with a pipeline. The engine sends to all peers at once, in chunks of 1 MiB at most, as many as
    :attr:`window_bytes` has room for: a number could only make that less."""

    window_bytes: Optional[int] = None
    """Bytes of remote rows, rings and send staging that a worker may hold at once, from the next graph operation
    on. ``None``: the engine's default of 16 MiB. A window too small raises :class:`sar.BudgetError`, which names
    the smallest that works."""

    block_bytes: int = 8 << 20
    """Bytes that one run of a Python message or reduce function may take, about: its rows, what it makes of them, and
    their gradients. Functions run on so many edges at a time, at least on 64, or on the messages of one node. The
    same from forward to backward."""
