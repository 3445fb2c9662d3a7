"""What the example scripts share: arguments, the start, node data, the training loop, the report at the end.

None of it is needed to use SAR: the scripts one folder up show the same calls, each in one file.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any, Callable, Iterable, NamedTuple

import torch
import torch.nn.functional as F

import sar
from sar.cli.resident import reset_peak, resident

BACKENDS = ("sar", "gloo", "mpi", "ccl", "nccl")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
MODES = ("SAR", "SA", "one_shot_aggregation")

OPTIONS: dict[str, dict[str, Any]] = {
    "construct-mfgs": {"action": "store_true", "help": "compute in each layer only what the layers above need"},
    "train-mode": {"default": "SAR", "choices": MODES, "help": "what is kept between forward and backward"},
    "gnn-layer": {"default": "sage", "choices": ("gcn", "sage", "gat")},
    "n-layers": {"type": int, "default": 3},
    "layer-dim": {"type": int, "default": 256, "help": "width of hidden layers"},
    "hidden-layer-dim": {"type": int, "default": 16, "help": "width of hidden layers"},
    "features-dim": {"type": int, "default": 16, "help": "width of learned features, and of hidden layers"},
}
"""Arguments that some scripts take."""


def parser(description: str | None, *options: str) -> argparse.ArgumentParser:
    """The arguments of every script, and those of :data:`OPTIONS` that are named."""
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--partitioning-json-file", required=True, help="made by `sar partition` or by DGL")
    p.add_argument("--rank", type=int, help="default: what the launcher says")
    p.add_argument("--world-size", type=int, help="default: what the launcher says")
    p.add_argument("--ip-file", help="a file on a shared file system, through which workers learn the master's address")
    p.add_argument("--master-port", type=int, help="default: what the launcher says")
    p.add_argument("--backend", default="sar", choices=BACKENDS)
    p.add_argument("--log-level", default="WARNING", choices=LEVELS)
    p.add_argument("--cpu-run", action="store_true", help="stay on the CPU, which is where graphs live in any case")
    p.add_argument("--max-collective-size", type=int, default=0, help="elements of one collective; 0: no limit")
    p.add_argument("--train-iters", type=int, default=100)
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--weight-decay", type=float, default=0.0)
    p.add_argument("--dropout", type=float, default=0.0)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--every", type=int, default=20, help="epochs between two progress lines")
    p.add_argument("--results", help="file for the losses, accuracies and costs, as JSON; written by rank 0")
    for option in options:
        p.add_argument(f"--{option}", **OPTIONS[option])
    return p


def arguments(description: str | None, *options: str, **defaults: Any) -> argparse.Namespace:
    """The command line, with rank and world size filled in."""
    p = parser(description, *options)
    p.set_defaults(**defaults)
    return complete(p.parse_args())


def complete(args: argparse.Namespace) -> argparse.Namespace:
    """Rank, world size and port as the launcher says, where the command line lacks them."""
    found = sar.environment()
    args.rank = found.rank if args.rank is None else args.rank
    args.world_size = args.world_size or found.world_size
    args.master_port = args.master_port or found.master_port
    return args


def start(args: argparse.Namespace) -> None:
    """Joins the other workers. Collective."""
    sar.logging_setup(args.log_level, args.rank, args.world_size)
    sar.Config.max_collective_size = args.max_collective_size
    # through the shared file where one is given, else as the launcher says
    address = sar.nfs_ip_init(args.rank, args.ip_file) if args.ip_file else None
    sar.initialize_comms(args.rank, args.world_size, address, args.backend, master_port_number=args.master_port)


class Nodes(NamedTuple):
    """Of this worker's nodes: features float32 [n, f], classes int64 [n], masks for training, validation and test,
    bool [n]; and over all workers: classes, and nodes to train on."""

    features: torch.Tensor
    labels: torch.Tensor
    masks: list[torch.Tensor]
    n_classes: int
    n_train: float


def node_data(data: sar.common_tuples.PartitionData, ntype: str = "") -> Nodes:
    """Reads them from a partition; of one node type where there are several. Rows of features that are not
    negative add up to 1 (a row of zeros stays). Collective."""

    def find(name: str) -> torch.Tensor:
        return sar.suffix_key_lookup(data.node_features, f"{ntype}/{name}" if ntype else name)

    features = find("features").float()
    if total((features < 0).sum()) == 0:
        features = features / features.sum(1, keepdim=True).clamp_(min=1)
    labels = find("labels").long()
    masks = [find(f"{name}_mask").bool() for name in ("train", "val", "test")]
    largest = labels.max() if len(labels) else torch.tensor(-1)
    sar.comm.all_reduce(largest, torch.distributed.ReduceOp.MAX, move_to_comm_device=True)
    return Nodes(features, labels, masks, int(largest) + 1, total(masks[0].sum()))


def load(args: argparse.Namespace) -> tuple[sar.GraphShardManager, Nodes]:
    """This worker's share of the nodes, and a graph object that stands for the whole graph. Collective."""
    data = sar.load_dgl_partition_data(args.partitioning_json_file, args.rank, torch.device("cpu"))
    return sar.construct_full_graph(data), node_data(data)


def total(number: float | torch.Tensor) -> float:
    """The sum over all workers. Collective."""
    added = torch.tensor(float(number), dtype=torch.float64)
    sar.comm.all_reduce(added, torch.distributed.ReduceOp.SUM, move_to_comm_device=True)
    return added.item()


def accuracies(logits: torch.Tensor, labels: torch.Tensor, masks: list[torch.Tensor]) -> list[float]:
    """The share of right predictions under each mask, over all workers. Collective."""
    right = logits.argmax(1) == labels
    return [total(right[mask].sum()) / max(1.0, total(mask.sum())) for mask in masks]


Rows = tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]
"""Logits of some of this worker's nodes, and their labels and masks."""


def train(
    args: argparse.Namespace,
    model: torch.nn.Module,
    nodes: Nodes,
    forward: Callable[[], torch.Tensor],
    progress: Progress,
    own: Iterable[torch.nn.Parameter] = (),
) -> torch.Tensor:
    """Full-batch training; returns the logits of the last evaluation, [n, classes]. Collective.

    :param forward: gives the logits of this worker's nodes
    :param own: parameters that belong to this worker alone, such as learned features of its nodes
    """

    def rows() -> Rows:
        return forward(), nodes.labels, nodes.masks

    return fit(args, model, nodes.n_train, rows, rows, progress, own)


def fit(
    args: argparse.Namespace,
    model: torch.nn.Module,
    n_train: float,
    training: Callable[[], Rows],
    evaluation: Callable[[], Rows],
    progress: Progress,
    own: Iterable[torch.nn.Parameter] = (),
) -> torch.Tensor:
    """The loop of :func:`train`, for logits of some nodes.

    :param n_train: nodes to train on, of all workers
    :param training: gives them for every step
    :param evaluation: gives them every now and then, without a gradient
    """
    sar.sync_params(model)
    # From here on a stream of random numbers per worker: no two draw the same dropout masks.
    torch.manual_seed(args.seed * args.world_size + args.rank)
    optimizer = torch.optim.Adam([*model.parameters(), *own], lr=args.lr, weight_decay=args.weight_decay)
    logits = torch.empty(0)
    for _ in range(args.train_iters):
        progress.epoch_begins()
        model.train()
        logits, labels, (mask, *_) = training()
        # Normalized by the nodes of all workers: gradients add up to those of the mean, also where a mask is empty.
        loss = F.cross_entropy(logits[mask], labels[mask], reduction="sum") / n_train
        optimizer.zero_grad()
        loss.backward()
        sar.gather_grads(model)
        optimizer.step()
        if progress.epoch_ends(loss):
            model.eval()
            with torch.no_grad():
                logits, labels, masks = evaluation()
                progress.show(accuracies(logits, labels, masks))
    return logits.detach()


class Progress:
    """Times epochs, prints a line now and then on rank 0, and gathers what the run cost. Made after :func:`start`."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.losses: list[float] = []
        self.seconds: list[float] = []
        self.accuracy: list[float] = []
        self.memory: list[int] = []
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
        self.memory.append(resident()["now"] - self.base)
        return len(self.losses) % self.args.every == 0 or len(self.losses) == self.args.train_iters

    def show(self, accuracy: list[float], what: str = "") -> None:
        """The progress line. ``accuracy``: train, validation, test."""
        self.accuracy = accuracy
        if self.args.rank == 0:
            train_, val, test = (100 * a for a in accuracy)
            where = what or f"epoch {len(self.losses):4d}/{self.args.train_iters}  loss {self.losses[-1]:.4f}"
            took = "" if what else f"  {1000 * self.seconds[-1]:.0f} ms an epoch"
            print(f"{where}  accuracy: train {train_:.1f} %, val {val:.1f} %, test {test:.1f} %{took}", flush=True)

    def finish(self, **more: Any) -> None:
        """Writes the results, and whatever else is given. Collective."""
        sent = total(sum(link["sent_bytes"] for link in sar.stats()["links"]))
        memory = torch.tensor(resident()["peak"] - self.base)
        sar.comm.all_reduce(memory, torch.distributed.ReduceOp.MAX, move_to_comm_device=True)
        if self.args.rank == 0 and self.args.results:
            results = {
                "workers": self.args.world_size,
                "losses": self.losses,
                "epoch_seconds": sorted(self.seconds)[len(self.seconds) // 2] if self.seconds else 0.0,
                "accuracy": dict(zip(("train", "val", "test"), self.accuracy)),
                "memory_per_worker": memory.item(),
                "memory": self.memory,  # of rank 0, at the end of each epoch
                "sent_bytes": sent,
                **more,
            }
            with open(self.args.results, "w", encoding="utf-8") as file:
                json.dump(results, file)
