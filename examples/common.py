"""What the example scripts share: arguments, node data, progress, accuracy over all workers, the report at the end.

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
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--partitioning-json-file", required=True, help="made by `sar partition` or by DGL")
    p.add_argument("--rank", type=int, default=int(os.environ.get("RANK", "0")))
    p.add_argument("--world-size", type=int, default=int(os.environ.get("WORLD_SIZE", "1")))
    p.add_argument("--ip-file", help="a file on a shared file system, through which workers learn the master's address")
    p.add_argument("--master-port", type=int, default=int(os.environ.get("MASTER_PORT", "12345")))
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


def node_data(data) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """Of this worker's nodes: features float32 [n, f] whose rows add up to 1 (a row of zeros stays), classes int64 [n],
    and the masks for training, validation and test, bool [n]."""
    features = sar.suffix_key_lookup(data.node_features, "features").float()
    features.div_(features.sum(1, keepdim=True).clamp_(min=1))
    labels = sar.suffix_key_lookup(data.node_features, "labels")
    masks = [sar.suffix_key_lookup(data.node_features, f"{name}_mask").bool() for name in ("train", "val", "test")]
    return features, labels, masks


def number_of_classes(labels: torch.Tensor) -> int:
    """One more than the largest class of any worker. Collective."""
    largest = labels.max() if len(labels) else torch.tensor(-1)
    sar.comm.all_reduce(largest, torch.distributed.ReduceOp.MAX, move_to_comm_device=True)
    return int(largest) + 1


def total(number: float) -> float:
    """The sum over all workers. Collective."""
    added = torch.tensor(float(number), dtype=torch.float64)
    sar.comm.all_reduce(added, torch.distributed.ReduceOp.SUM, move_to_comm_device=True)
    return added.item()


def accuracies(logits: torch.Tensor, labels: torch.Tensor, masks: list[torch.Tensor]) -> list[float]:
    """The share of right predictions under each mask, over all workers. Collective."""
    right = logits.argmax(1) == labels
    return [total(right[mask].sum()) / max(1.0, total(mask.sum())) for mask in masks]


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

    def epoch_ends(self, loss: torch.Tensor) -> bool:
        """Notes an epoch and its loss, of which each worker has its part. True where accuracy is due. Collective."""
        self.seconds.append(time.perf_counter() - self.begin)
        self.losses.append(total(loss.item()))
        return len(self.losses) % self.args.every == 0 or len(self.losses) == self.args.train_iters

    def show(self, accuracy: list[float]) -> None:
        """The progress line. ``accuracy``: train, validation, test."""
        self.accuracy = accuracy
        if self.args.rank == 0:
            train, val, test = (100 * a for a in accuracy)
            print(
                f"epoch {len(self.losses):4d}/{self.args.train_iters}  loss {self.losses[-1]:.4f}  "
                f"accuracy: train {train:.1f} %, val {val:.1f} %, test {test:.1f} %  "
                f"{1000 * self.seconds[-1]:.0f} ms an epoch",
                flush=True,
            )

    def finish(self) -> None:
        """Writes the results. Collective."""
        sent = total(sum(link["sent_bytes"] for link in sar.stats()["links"]))
        memory = torch.tensor(resident()["peak"] - self.base)
        sar.comm.all_reduce(memory, torch.distributed.ReduceOp.MAX, move_to_comm_device=True)
        if self.args.rank == 0 and self.args.results:
            results = {
                "workers": self.args.world_size,
                "losses": self.losses,
                "epoch_seconds": sorted(self.seconds)[len(self.seconds) // 2],
                "accuracy": dict(zip(("train", "val", "test"), self.accuracy)),
                "memory_per_worker": memory.item(),
                "sent_bytes": sent,
            }
            with open(self.args.results, "w", encoding="utf-8") as file:
                json.dump(results, file)
