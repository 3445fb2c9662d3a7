"""What to change where memory is short."""

from __future__ import annotations

from typing import Callable, List, NamedTuple, Optional, Sequence

from .estimate import Estimate

MOST_PARTS = 1 << 16
_FUSED = ("relu", "dropout")
_ELEMENTWISE = ("relu", "elu")


class Change(NamedTuple):
    """One thing to change, and the peak of the heaviest worker after it, in bytes."""

    text: str
    peak: int


Estimates = Callable[..., List[Estimate]]
"""Gives estimates with some arguments changed: ``layers``, ``optimizer``, ``window_bytes``, ``features``, ``parts``."""


def changes(again: Estimates, layers: Sequence[str], optimizer: str, limit: int) -> List[Change]:
    """Changes that make the heaviest worker smaller, those first that make it fit, then the most effective.

    :param again: the same estimate with other arguments; with ``parts`` it is that of an even cut
    :param limit: bytes that a worker may take
    """
    now = heaviest(again())
    found = []
    parts = _parts(again, limit)
    if parts is not None:
        found.append(Change(f"--parts {parts}", heaviest(again(parts=parts))))
    lean = _lean(layers)
    if lean != list(layers):
        text = "sar.nn.BatchNormAct in place of batch norm, ReLU and dropout (--layers with bnact)"
        found.append(Change(text, heaviest(again(layers=lean))))
    narrow = _by_columns(layers)
    if narrow != list(layers):
        text = "sar.nn.GATConv with memory_efficient=True and merge (--layers with gat-flatten and gat-mean)"
        found.append(Change(text, heaviest(again(layers=narrow))))
    if optimizer == "adam":
        found.append(Change("an optimizer without moments (--optimizer sgd)", heaviest(again(optimizer="sgd"))))
    mapped = heaviest(again(features="mapped"))
    if now - mapped > now // 100:
        found.append(Change('features that stay on disk (Config.features = "mapped")', mapped))
    smaller = max(e.window for e in again()) // 4
    if smaller:
        text = f"a smaller window (Config.window_bytes = {smaller >> 10} << 10)"
        found.append(Change(text, heaviest(again(window_bytes=smaller))))
    return sorted((c for c in found if c.peak < now), key=lambda c: (c.peak > limit, c.peak))


def heaviest(estimates: Sequence[Estimate]) -> int:
    return max(e.peak for e in estimates)


def _parts(again: Estimates, limit: int) -> Optional[int]:
    """The fewest parts with which a worker fits; None where no number helps."""
    low = len(again())
    high = low * 2
    while heaviest(again(parts=high)) > limit:
        low, high = high, high * 2
        if high > MOST_PARTS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if heaviest(again(parts=middle)) <= limit else (middle, high)
    return high


def _lean(layers: Sequence[str]) -> List[str]:
    """Batch norm, and what follows it elementwise, as one layer."""
    found: List[str] = []
    for layer in layers:
        if layer in _FUSED and found and found[-1] == "bnact":
            continue
        found.append("bnact" if layer == "bn" else layer)
    return found


def _by_columns(layers: Sequence[str]) -> List[str]:
    """GAT, with what follows it elementwise, and the mean of heads, as one layer by blocks of columns."""
    found: List[str] = []
    for layer in layers:
        before = found[-1] if found else ""
        if layer in _ELEMENTWISE and before.startswith("gat-flatten:"):
            continue
        if layer.startswith("mean:") and before.startswith(f"gat-flatten:{layer[5:]}x"):
            found[-1] = before.replace("flatten", "mean")
        else:
            found.append("gat-flatten:" + layer[4:] if layer.startswith("gat:") else layer)
    return found
