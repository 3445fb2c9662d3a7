"""How long an epoch takes, from the rates of a worker's machine."""

from __future__ import annotations

from typing import NamedTuple, Optional

from .estimate import Estimate


class Rates(NamedTuple):
    """What one worker does in a second: numbers of rows added along edges, and multiplications of dense products."""

    aggregated: float
    multiplied: float


def epoch_seconds(estimate: Estimate, rates: Rates, bandwidth: Optional[float]) -> float:
    """Seconds of a training epoch. Transfers run while rows are aggregated, so the longer of both counts.

    :param bandwidth: bytes that a worker sends in a second; None: transfers cost nothing
    """
    transfer = estimate.sent_per_epoch / bandwidth if bandwidth else 0.0
    return max(estimate.aggregated / rates.aggregated, transfer) + estimate.multiplied / rates.multiplied
