"""What runs on the workers to save and load checkpoints."""

from __future__ import annotations

import random
import resource
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import sar
import sar.nn
from sar.checkpoints import save
from sar.results import files
from sar.results.rows import own_rows

WIDTH, CLASSES = 6, 3


class Model(torch.nn.Module):
    """Attention with dropout of edges; ``dropout`` of nodes differs between numbers of workers."""

    def __init__(self, dropout: float, heads: int = 2) -> None:
        super().__init__()
        self.first = sar.nn.GATConv(WIDTH, 4, heads, attn_drop=0.4, allow_zero_in_degree=True)
        self.norm = torch.nn.BatchNorm1d(4 * heads)  # whose running statistics are each rank's own
        self.second = torch.nn.Linear(4 * heads, CLASSES)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, graph: Any, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.first(graph, x).flatten(1))
        if self.dropout.p:
            h = self.norm(self.dropout(h))
        return self.second(h)


class Job:
    """A training job: each node's features are learned, from a beginning that follows from its original id."""

    def __init__(self, json: str, dropout: float, heads: int = 2) -> None:
        data = sar.load_dgl_partition_data(json, sar.rank(), torch.device("cpu"))
        self.graph = sar.construct_full_graph(data)
        self.numbers = own_rows(self.graph).numbers
        torch.manual_seed(1)
        self.model = Model(dropout, heads).double()
        sar.sync_params(self.model)
        begin = torch.sin(torch.arange(30 * WIDTH, dtype=torch.float64).view(30, WIDTH))
        self.learned = torch.nn.ParameterDict({"node": torch.nn.Parameter(begin[self.numbers])})
        self.labels = self.numbers % CLASSES
        self.optimizer = torch.optim.Adam([*self.model.parameters(), *self.learned.parameters()], lr=0.05)
        torch.manual_seed(2 + sar.rank())
        np.random.seed(3 + sar.rank())
        random.seed(4 + sar.rank())

    @property
    def saved(self) -> dict[str, Any]:
        models = {"model": self.model, "learned": self.learned}
        return {"model": models, "optimizer": self.optimizer, "graph": self.graph}

    def epoch(self) -> str:
        """The loss, to the bit."""
        logits = self.model(self.graph, self.learned["node"])
        loss = F.cross_entropy(logits, self.labels, reduction="sum") / 30
        self.optimizer.zero_grad()
        loss.backward()
        sar.gather_grads(self.model)
        self.optimizer.step()
        total = loss.detach().clone()
        sar.comm.all_reduce(total, "sum")
        return float(total).hex()


def train(
    json: str, folder: str, until: int, dropout: float = 0.3, step: int | None = None, background: bool = True
) -> dict[str, Any]:
    """Trains from the last checkpoint to an epoch, and saves one after every epoch."""
    job = Job(json, dropout)
    losses: dict[int, str] = {}
    with sar.Checkpointer(folder, **job.saved, every=1, keep=100, background=background) as checkpoints:
        found = checkpoints.load_checkpoint(step)
        begin = 0 if found is None else found.step
        for epoch in range(begin, until):
            losses[epoch + 1] = job.epoch()
            assert checkpoints.step(epoch + 1, {"losses": list(losses.values()), "rank": sar.rank(), "pair": (1, None)})
    drawn = [float(torch.rand(())), float(np.random.rand()), random.random()]
    return {
        "begin": begin,
        "extra": None if found is None else found.extra,
        "losses": losses,
        "drawn": drawn,
        "numbers": job.numbers.numpy(),
        "learned": job.learned["node"].detach().numpy(),
        "moments": job.optimizer.state[job.learned["node"]].get("exp_avg", torch.empty(0)).numpy(),
        "latest": Path(folder, "latest").read_text(),
    }


def refused(json: str, folder: str, heads: int = 2, **arguments: Any) -> str:
    """What loading says, after which nothing has changed."""
    job = Job(json, 0.3, heads)
    before = [p.detach().clone() for p in job.model.parameters()]
    try:
        sar.load_checkpoint(folder, **{**job.saved, **arguments})
    except Exception as error:
        assert all(torch.equal(a, b) for a, b in zip(before, job.model.parameters()))
        return f"{type(error).__name__}: {error}"
    return "loaded"


def other_optimizer(json: str, folder: str) -> str:
    job = Job(json, 0.3)
    groups = [{"params": job.model.parameters()}, {"params": job.learned.parameters()}]
    job.optimizer = torch.optim.Adam(groups)
    try:
        sar.load_checkpoint(folder, **job.saved)
    except ValueError as error:
        return str(error)
    return "loaded"


def cannot_save(json: str, folder: str, wrong: str) -> str:
    """What saving says to an argument that makes no sense, on one rank or on all."""
    job = Job(json, 0.3)
    arguments: dict[str, Any] = {**job.saved, "step": 1}
    if wrong == "extra" and sar.rank() == 0:
        arguments["extra"] = {"graph": [job.graph]}
    elif wrong == "left out":
        arguments["model"] = job.model
    elif wrong == "step":
        arguments["step"] = "1"
    elif wrong == "tensors" and sar.rank() == 0:
        arguments["extra"] = torch.ones(2)
    elif wrong == "per_node":
        arguments["per_node"] = {"model.second.weight": "_N"}
    elif wrong == "elsewhere" and sar.rank():
        files.SHARED_SECONDS = 0.1
        folder += "-other"
    try:
        sar.save_checkpoint(folder, **arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "saved"


def fails_on_one(json: str, folder: str, background: bool, when: str) -> list[str]:
    """Rank 1 (of one worker, rank 0) cannot write the second checkpoint; what every rank is told, and when."""
    job = Job(json, 0.3)
    said = []
    checkpoints = sar.Checkpointer(folder, **job.saved, every=1, background=background)
    checkpoints.step(1)
    writing = save.write_tensors

    def full(path: str, tensors: Any) -> Any:
        if sar.rank() == min(1, sar.world_size() - 1):
            raise OSError(28, "No space left on device", path)
        return writing(path, tensors)

    for number, call in enumerate(("step", when)):
        save.write_tensors = writing if number else full
        try:
            if call == "close":
                checkpoints.close()
            else:
                checkpoints.step(2 + number)
        except (OSError, sar.RemoteError) as error:
            said.append(f"{call}: {type(error).__name__}: {error}")
        if checkpoints._pending is not None:
            checkpoints._pending._written.wait(30)
    save.write_tensors = writing
    said.append(f"latest: {Path(folder, 'latest').read_text()}")
    checkpoints.step(4)
    checkpoints.close()
    return said


def fills_disk(json: str, folder: str, numbers: int, limit: int) -> str:
    """What saving so many numbers says, where the files of rank 1 may have ``limit`` bytes."""
    job = Job(json, 0.3)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit and sar.rank():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        sar.save_checkpoint(folder, **job.saved, step=1, extra=torch.zeros(numbers))
    except (OSError, sar.RemoteError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    return "saved"


def at_intervals(json: str, folder: str) -> list[int]:
    """The steps that are saved: every third, and one that comes late by rank 0's clock alone."""
    job = Job(json, 0.3)
    with sar.Checkpointer(folder, **job.saved, every=3, minutes=60, keep=2) as checkpoints:
        assert checkpoints.load() == 0
        saved = []
        for step in range(1, 9):
            if step == 7:
                checkpoints._saved_at -= 3601 if sar.rank() == 0 else 0
            if step == 8:
                checkpoints._saved_at -= 3601 if sar.rank() == 1 else 0
            if checkpoints.step(step):
                saved.append(step)
    return saved
