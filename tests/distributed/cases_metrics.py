"""What runs on the workers to collect metrics."""

from __future__ import annotations

import os
import sys
import urllib.request
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F

import sar
import sar.nn
from sar._engine import session as _session
from sar.profiling import metrics
from tests.support.worker import build


def collecting(setting: str | None) -> Any:
    """Starts metrics anew, as :func:`sar.initialize_comms` does, and returns who reads them."""
    metrics.stop()
    with mock.patch.dict(os.environ, {} if setting is None else {"SAR_METRICS": setting}):
        metrics.start(_session.current())
    return metrics._told.reader  # type: ignore[union-attr]


def train(part: dict[str, Any], epochs: int) -> list[float]:
    graph = build(part)
    torch.manual_seed(0)
    x = torch.randn(graph.num_nodes(), 8)
    layer = sar.nn.SAGEConv(8, 3, "mean")
    sar.sync_params(layer)
    losses = []
    for epoch in range(1, epochs + 1):
        loss = F.mse_loss(layer(graph, x), torch.zeros(len(x), 3), reduction="sum")
        layer.zero_grad()
        loss.backward()
        sar.gather_grads(layer)
        losses.append(float(loss))
        sar.log_epoch(epoch, loss=loss, accuracy={"train": epoch / 10, "test": float("nan")})
    return losses


def told(part: dict[str, Any]) -> dict[str, Any]:
    """Metrics before the first epoch, and after three."""
    collecting(None)
    before = sar.metrics()
    losses = train(part, 3)
    return {"before": before, "after": sar.metrics(), "losses": losses, "stats": sar.stats()}


def sent(part: dict[str, Any], setting: str | None) -> dict[str, Any]:
    """Losses, and what each link carried for them."""

    def carried() -> dict[tuple[str, int], list[int]]:
        kinds = ("sent_frames", "sent_payload", "recv_frames", "recv_payload")
        return {(of["communicator"], of["peer"]): [of[kind] for kind in kinds] for of in sar.stats()["links"]}

    collecting(setting)
    before = carried()
    losses = train(part, 3)
    links = {link: [b - a for a, b in zip(before[link], now)] for link, now in carried().items()}
    collecting(None)
    return {"losses": losses, "links": links}


def scraped(part: dict[str, Any]) -> dict[str, Any]:
    """What Prometheus would read, and what the worker says itself."""
    server = collecting("prometheus:0")
    losses = train(part, 2)
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = sar.metrics()
    address = server._server.server_address[0]
    collecting(None)
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30)
        closed = False
    except OSError:
        closed = True
    return {"text": text, "metrics": found, "losses": losses, "address": address, "closed": closed}


def written(part: dict[str, Any], setting: str) -> list[float]:
    collecting(setting)
    losses = train(part, 2)
    collecting(None)
    return losses


def refused(setting: str, without: str | None = None) -> tuple[str, str]:
    """Kind and text of the error. ``without``: a library that cannot be imported."""
    hidden = {name: None for name in list(sys.modules) if without and name.partition(".")[0] == without}
    if without:
        hidden[without] = None
    try:
        with mock.patch.dict(sys.modules, hidden):
            collecting(setting)
    except Exception as error:
        return type(error).__name__, str(error)
    finally:
        collecting(None)
    return "", ""


def disk_full(part: dict[str, Any], setting: str) -> tuple[list[float], bool]:
    """A reader that fails is left out, and the run goes on."""
    reader = collecting(setting)
    reader.close()
    reader.write = mock.Mock(side_effect=OSError(28, "No space left on device"))
    losses = train(part, 2)
    gone = metrics._told.reader is None  # type: ignore[union-attr]
    collecting(None)
    return losses, gone and reader.write.call_count == 1
