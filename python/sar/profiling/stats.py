"""Statistics of the running job: traffic, how layers run, and memory."""

from __future__ import annotations

from typing import Dict, List, Optional, TypedDict

import torch

from sar._engine import abi, allocator, session as _session
from sar.autograd.fused.eligibility import layer_choices
from sar.config import Config


class Peer(TypedDict):
    """A worker, as :func:`stats` knows it."""

    rank: int
    host: str
    pid: int
    transport: str


class Window(TypedDict):
    """Bytes that may be held at once, are held, and were at most."""

    limit: int
    live: int
    peak: int


class Link(TypedDict):
    """What one communicator sent to a peer and received from it."""

    peer: int
    communicator: str
    transport: str
    sent_payload: int
    sent_bytes: int
    sent_frames: int
    recv_payload: int
    recv_bytes: int
    recv_frames: int
    sent_pulled: int
    sent_home: int
    sent_pushed: int
    wait_seconds: float


class Operations(TypedDict):
    """All operations of a kind."""

    count: int
    seconds: float
    wait_seconds: float
    sent_bytes: int
    recv_bytes: int


class Stats(TypedDict):
    """What :func:`stats` says."""

    rank: int
    world: int
    peers: List[Peer]
    window: Window
    links: List[Link]
    operations: Dict[str, Operations]
    layers: Dict[str, Dict[str, int]]
    data_plane: Dict[str, Optional[str]]
    wire_dtype: Optional[str]


def stats() -> Stats:
    """What travelled so far, and by which way.

    The engine's statistics (rank, world, peers, window, links, operations) and ``data_plane``: who carries aggregation,
    this package's collectives, and the script's own ``torch.distributed`` calls.

    ``wire_dtype`` is :attr:`sar.Config.wire_dtype`.

    ``layers`` says how many SAGEConv and GATConv modules ran fused and step by step when they last ran, by class:
    ``{"SAGEConv": {"fused": 3, "separate": 0}}`` (:attr:`sar.Config.fuse`).

    ``links`` has one entry for each communicator and peer. Of what it sent, ``sent_pulled`` are bytes of source rows
    that the peer computes with, ``sent_pushed`` bytes of rows of own destinations that the peer computes with, since it
    owns the sources (:attr:`sar.Config.exchange`), and ``sent_home`` bytes of sums and gradients computed here for rows
    that the peer owns. ``wait_seconds`` is how long the worker was blocked on the link, for rows of the peer or for
    room.
    """
    session = _session.current()
    torch_group = None
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch_group = torch.distributed.get_backend()
    plane = {"aggregation": "native", "collectives": "native", "torch.distributed": torch_group}
    own = {"layers": layer_choices(), "data_plane": plane, "wire_dtype": Config.wire_dtype}
    found: Stats = {**abi.session_stats(session.handle), **own}  # type: ignore[typeddict-item]
    return found


def memory_stats() -> Dict[str, Dict[str, int]]:
    """Bytes by purpose, now and at most: ``{"structure": {"live": n, "peak": n}, "features": .., ...}``.

    Of the engine: ``structure`` (edges, degrees, send lists), ``features`` (rows read from files, until the script has
    them), ``window`` (remote rows, rings, send staging), ``scratch``, ``runtime`` (of Go), and their ``total``. Beside
    it ``mapped``: features that are mapped (:attr:`sar.Config.features`), whether they are in memory or not;
    ``tensors``: CPU tensors of 256 KiB and more under the allocator policy ``"pool"``, features, parameters,
    gradients and what autograd keeps among them; ``kept``: memory of freed ones; ``resident``: the process as a whole,
    as the kernel counts it.

    At the end of a run rank 0 logs the largest of all workers in one line, at level INFO (:func:`sar.logging_setup`).
    """
    allocator.prepare_process()
    return abi.memory_stats()
