"""What the example scripts share: arguments, progress, accuracy over all workers, and the report at the end.

None of it is needed to use SAR; the calls that are stand in the scripts themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import time

import torch

import sar
from sar.cli.resident import reset_peak, resident


def arguments(description: str, **defaults) -> argparse.Namespace:
    """The command line. Under ``sar launch`` rank, world size and master come from the environment."""
    p = argparse.ArgumentParser(description=description)
    p.add_argument("--partitioning-json-file", required=True, help="made by `sar partition` or by DGL")
    p.add_argument("--rank", type=int, default=int(os.environ.get("RANK", "0")))
    p.add_argument("--world-size", type=int, default=int(os.environ.get("WORLD_SIZE", "1")))
    p.add_argument("--ip-file", help="a file on a shared file system, through which workers learn the master's address")
    p.add_argument("--backend", default="sar", choices=("sar", "gloo", "mpi", "ccl", "nccl"))
    p.add_argument("--train-iters", type=int, default=200)
    p.add_argument("--hidden-layer-dim", type=int, default=16)
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--weight-decay", type=float, default=0.0)
    p.add_argument("--dropout", type=float, default=0.0)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--every", type=int, default=20, help="epochs between two progress lines")
    p.add_argument("--results", help="file for the losses, accuracies and costs, as JSON; written by rank 0")
    p.set_defaults(**defaults)
    return p.parse_args()


def master_address(args: argparse.Namespace) -> str:
    """Where rank 0 is: through the shared file where one is given, else as the launcher says."""
    if args.ip_file:
        return sar.nfs_ip_init(args.rank, args.ip_file)
    return os.environ.get("MASTER_ADDR", "127.0.0.1")


def row_normalized(features: torch.Tensor) -> torch.Tensor:
    """float32 features [n, f] whose rows add up to 1; a row of zeros stays."""
    features = features.float()
    return features.div_(features.sum(1, keepdim=True).clamp_(min=1))


def total(*numbers: float) -> list[float]:
    """Each number added up over all workers."""
    added = torch.tensor(numbers, dtype=torch.float64)
    sar.comm.all_reduce(added, torch.distributed.ReduceOp.SUM, move_to_comm_device=True)
    return added.tolist()


def accuracies(logits: torch.Tensor, labels: torch.Tensor, masks: list[torch.Tensor]) -> list[float]:
    """The share of right predictions under each mask, over all workers."""
    right = logits.argmax(1) == labels
    counts = total(*(float(right[mask].sum()) for mask in masks), *(float(mask.sum()) for mask in masks))
    return [hit / max(1.0, of) for hit, of in zip(counts, counts[len(masks) :])]


class Progress:
    """Times epochs, prints a line now and then on rank 0, and gathers what the run cost."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.losses: list[float] = []
        self.seconds: list[float] = []
        self.accuracy: list[float] = []
        torch.optim.Adam([torch.zeros(1, requires_grad=True)])  # loads the modules that torch loads late
        self.base = resident()["now"]
        reset_peak()
        self.begin = time.perf_counter()

    def epoch_begins(self) -> None:
        self.begin = time.perf_counter()

    def epoch_ends(self, loss: float) -> bool:
        """Notes an epoch and its loss, which is already that of all workers. True where accuracy is due."""
        self.seconds.append(time.perf_counter() - self.begin)
        self.losses.append(loss)
        return len(self.losses) % self.args.every == 0 or len(self.losses) == self.args.train_iters

    def show(self, accuracy: list[float]) -> None:
        """The progress line. ``accuracy``: train, validation, test."""
        self.accuracy = accuracy
        if self.args.rank == 0:
            train, val, test = (100 * a for a in accuracy)
            print(
                f"epoch {len(self.losses):4d}/{self.args.train_iters}  loss {self.losses[-1]:.4f}  "
                f"accuracy: train {train:.1f} %, val {val:.1f} %, test {test:.1f} %  {1000 * self.seconds[-1]:.0f} ms",
                flush=True,
            )

    def finish(self) -> None:
        """Writes the results. Collective."""
        sent = sum(link["sent_bytes"] for link in sar.stats()["links"])
        (sent,) = total(sent)
        memory = torch.tensor([float(resident()["peak"] - self.base)], dtype=torch.float64)
        sar.comm.all_reduce(memory, torch.distributed.ReduceOp.MAX, move_to_comm_device=True)
        if self.args.rank == 0 and self.args.results:
            with open(self.args.results, "w", encoding="utf-8") as file:
                json.dump(
                    {
                        "workers": self.args.world_size,
                        "losses": self.losses,
                        "epoch_seconds": sorted(self.seconds)[len(self.seconds) // 2],
                        "accuracy": dict(zip(("train", "val", "test"), self.accuracy)),
                        "memory_per_worker": memory.item(),
                        "sent_bytes": sent,
                    },
                    file,
                )
