"""Takes a record apart into numbers with names, for Prometheus and TensorBoard."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Mapping, NamedTuple, Optional, Tuple


class Family(NamedTuple):
    """Numbers of one name, told apart by one label; "" where there is one number alone."""

    name: str
    text: str
    label: str
    counts: bool
    """Whether they never fall during a run."""


class Sample(NamedTuple):
    family: Family
    key: str
    """The label's value."""
    value: float


EPOCH = Family("epoch", "Number of the last epoch", "", False)
EPOCH_SECONDS = Family("epoch_seconds", "Seconds that the last epoch took", "", False)
VALUE = Family("value", "What the script told of the last epoch, such as its loss", "name", False)
PHASE = Family("phase_seconds", "Seconds of the last epoch's phases", "phase", False)
MEMORY = Family("memory_bytes", "Bytes that the worker holds", "purpose", False)
MEMORY_PEAK = Family("memory_peak_bytes", "The most bytes that the worker has held", "purpose", False)
OPERATIONS = Family("operations", "Operations of the engine", "kind", True)
OPERATION_SECONDS = Family("operation_seconds", "Seconds in operations of the engine", "kind", True)
OPERATION_WAIT = Family("operation_wait_seconds", "Seconds of waiting in operations of the engine", "kind", True)
SENT = Family("sent_bytes", "Bytes sent to a peer", "peer", True)
RECEIVED = Family("received_bytes", "Bytes received from a peer", "peer", True)
WAITED = Family("peer_wait_seconds", "Seconds of waiting for a peer", "peer", True)
WINDOW = Family("window_bytes", "Window of remote rows: its size, what is held, and the most that was", "of", False)
SLOWEST = Family("slowest_peer", "Rank of the peer that the worker has waited for longest", "", False)


def samples(record: Mapping[str, Any]) -> Iterator[Sample]:
    """The numbers of an epoch's record, or of :func:`sar.metrics`."""
    if record["epoch"] is not None:
        yield Sample(EPOCH, "", record["epoch"])
        yield Sample(EPOCH_SECONDS, "", record["took"])
    for name, value in record["values"].items():
        for key, number in flattened(name, value):
            yield Sample(VALUE, key, number)
    for family, field in ((PHASE, "phases"), (SENT, "sent"), (RECEIVED, "received"), (WAITED, "waited")):
        for key, number in record[field].items():
            yield Sample(family, key, number)
    for families, field in (
        ((MEMORY, MEMORY_PEAK), "memory"),
        ((OPERATIONS, OPERATION_SECONDS, OPERATION_WAIT), "operations"),
    ):
        for key, numbers in record[field].items():
            for family, number in zip(families, numbers):
                yield Sample(family, key, number)
    for key, number in zip(("limit", "live", "peak"), record["window"]):
        yield Sample(WINDOW, key, number)
    peer = slowest(record["waited"])
    if peer is not None:
        yield Sample(SLOWEST, "", int(peer))


def slowest(waited: Dict[str, float]) -> Optional[str]:
    """The peer that was waited for longest; None where there is no peer."""
    return max(waited, key=waited.__getitem__, default=None)


def flattened(name: str, value: Any) -> Iterator[Tuple[str, float]]:
    """A value that a script told, or those of it that have names; values that are not finite are left out."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flattened(f"{name}/{key}", inner)
    elif value is not None:
        yield name, value
