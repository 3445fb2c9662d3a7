"""Peak memory of each worker, and bytes on the wire per epoch, from a partition and a list of layers."""

from __future__ import annotations

import math
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from sar._engine import abi
from sar.autograd.fused.costs import Cover

from .layers import costs_of
from .step import Step, training_step

RUNTIME = 10 << 20
"""What the engine takes for itself, as ``sar.memory_stats()`` counts it: 9 to 12 MiB on the bench graph, for any P."""


class Estimate(NamedTuple):
    """What one worker will take.

    Bytes by purpose; ``peak`` is their sum: what the resident size grows by over that of a process which has imported
    torch, DGL and SAR and has taken one training step on something small.
    """

    rank: int
    structure: int
    features: int
    window: int
    runtime: int
    """The engine's own: the Go runtime, its heap, buffers of collectives."""
    parameters: int
    """Weights, gradients, optimizer's state, buffers of the all-reduce."""
    activations: int
    """Kept between the passes."""
    scratch: int
    """What the heaviest moment of a step takes beside them."""
    peak: int
    sent_per_epoch: int
    """Bytes that this worker sends, without frame headers: rows or partial results, whichever are fewer. Over a link
    that costs nearly nothing attention has more travel in backward (:attr:`sar.Config.exchange`)."""
    aggregated: int = 0
    """Numbers that it adds along edges in an epoch, in both passes."""
    multiplied: int = 0
    """Multiplications of an epoch's dense products."""


class Part(NamedTuple):
    nodes: int
    edges: int
    boundary: int
    """Rows of other workers that it reads."""
    features: int
    cover: Optional[Cover] = None
    """What can travel in place of those rows, where that is known."""


def estimate_memory(
    partition_json: Optional[str] = None,
    layers: Sequence[str] = (),
    *,
    in_features: Optional[int] = None,
    num_nodes: int = 0,
    num_edges: int = 0,
    parts: Optional[int] = None,
    edge_cut: float = 0.0,
    itemsize: int = 4,
    window_bytes: Optional[int] = None,
    optimizer: str = "adam",
    features: str = "memory",
    autocast: bool = False,
) -> List[Estimate]:
    """Predicts each worker's peak and what it sends per epoch, without starting anything.

    Either from a partition's description, or from the number of nodes, edges and parts and the share of edges that are
    cut. Figures hold under the allocator policies pool and compact.

    :param partition_json: description that ``sar partition`` or DGL wrote
    :param layers: the model, for instance ``["sage:256", "bn", "relu", "sage:47"]``
    :param in_features: width of the input; by default that of the widest node feature of the partition
    :param parts: workers; by default as many as the partition has, and 1 without one. Another number than that of a
        partition: as if the graph were cut evenly into so many, of which as large a share of edges is cut
    :param edge_cut: share of edges between parts, where there is no partition
    :param itemsize: bytes of a number
    :param window_bytes: ``Config.window_bytes``; by default what the engine would take
    :param optimizer: ``"adam"``, ``"sgd"`` or ``"none"``
    :param autocast: under ``torch.autocast`` in bfloat16, on features in bfloat16: parameters have ``itemsize`` bytes,
        rows 2, results of layers that promote 4
    :param features: :attr:`sar.Config.features`. ``"mapped"``: features that stay in their files are not counted
    :raises ValueError: an unknown layer or optimizer, or numbers that make no graph
    :raises FormatError, OSError: the partition cannot be read
    """
    held = {"adam": 2, "sgd": 0, "none": 0}
    if optimizer not in held:
        raise ValueError(f"optimizer {optimizer!r} is unknown: give one of {', '.join(held)}")
    if not layers:
        raise ValueError("no layers: give the model, for instance ['sage:256', 'bn', 'relu', 'sage:47']")
    if features not in ("memory", "mapped"):
        raise ValueError(f"features {features!r} is unknown: give 'memory' or 'mapped'")
    mapped, item = features == "mapped", 2 if autocast else itemsize
    if partition_json is not None:
        workers, width = _from_files(partition_json, item, mapped)
        width = in_features or width
        if parts is not None and parts != len(workers):
            workers = _cut_again(workers, parts, width * item)
    else:
        parts = 1 if parts is None else parts
        width = in_features or 0
        workers = _from_numbers(num_nodes, num_edges, parts, edge_cut, 0 if mapped else width * item)
    if width < 1:
        raise ValueError("the width of the input is unknown: give in_features")
    sends = sum(part.boundary for part in workers) / len(workers)
    window = window_bytes or abi.default_window(len(workers), max(part.nodes for part in workers))
    cover = joined([part.cover for part in workers])
    step = training_step(costs_of(layers, width), width, item, len(workers), cover)
    return [
        estimate_worker(rank, part, sends, len(workers), step, itemsize, window, held[optimizer])
        for rank, part in enumerate(workers)
    ]


def estimate_worker(
    rank: int, part: Part, sends: float, world: int, step: Step, item: int, window: int, held: int
) -> Estimate:
    """The estimate of one worker.

    :param part: what it has of the graph
    :param sends: rows that it sends to others in an exchange
    :param step: of the model
    :param item: bytes of a number of a parameter
    :param window: bytes
    :param held: numbers that the optimizer keeps for each parameter
    """
    weights = step.parameters * item
    parameters = weights * (2 + held) + (weights if world > 1 else 0)
    structure = _structure(part, sends)
    window = window if world > 1 else 0
    wire = step.sent * sends
    if world > 1:
        wire += 2 * (world - 1) / world * weights
    return Estimate(
        rank=rank,
        structure=structure,
        features=part.features,
        window=window,
        runtime=RUNTIME,
        parameters=parameters,
        activations=step.saved * part.nodes,
        scratch=(step.peak - step.saved) * part.nodes,
        peak=structure + part.features + window + RUNTIME + parameters + step.peak * part.nodes,
        sent_per_epoch=int(wire),
        aggregated=step.exchanged * part.edges,
        multiplied=3 * step.parameters * part.nodes,  # forward, and the gradients of input and weights
    )


def _cut_again(workers: Sequence[Part], parts: int, row_bytes: int) -> List[Part]:
    """An even cut into another number of parts, with the share of cut edges that the rows read of others speak of."""
    nodes, edges = sum(w.nodes for w in workers), sum(w.edges for w in workers)
    others, into = nodes - nodes / len(workers), edges / len(workers)
    boundary = sum(w.boundary for w in workers) / len(workers)
    cut = 0.0
    if others and into:
        cut = min(1.0, -math.log1p(-min(boundary / others, 0.999999)) * others / into)
    return _from_numbers(nodes, edges, parts, cut, row_bytes)


def _structure(part: Part, sends: float) -> int:
    """CSR and CSC, degrees, the order of rows, send lists."""
    columns = part.nodes + part.boundary
    return int(8 * part.edges + 4 * (part.nodes + 1) + 4 * (columns + 1) + 20 * part.nodes + 4 * sends)


def _from_files(path: str, itemsize: int, mapped: bool) -> tuple[List[Part], int]:
    parts: List[Part] = []
    width, count = 0, 1
    while len(parts) < count:
        info = abi.part_info(path, len(parts))
        count = int(info["num_parts"])
        ranges = [spans[len(parts)] for spans in info["edge_ranges"].values()]
        features = info["node_features"]
        parts.append(
            Part(
                nodes=int(info["num_inner_nodes"]),
                edges=sum(end - begin for begin, end in ranges),
                boundary=int(info["num_local_nodes"]) - int(info["num_inner_nodes"]),
                features=sum(_resident(f, itemsize, mapped) for f in features),
                cover=cover_of(info["cover"]),
            )
        )
        width = max([width, *(f["shape"][1] for f in features if len(f["shape"]) == 2)])
    return parts, width


def cover_of(cover: Optional[Dict[str, Any]]) -> Optional[Cover]:
    """The cover that the engine has read of a part; None: it is found when the graph is built."""
    return Cover(cover["all"], tuple(cover["rows"]), tuple(cover["sums"])) if cover else None


def joined(covers: Sequence[Optional[Cover]]) -> Optional[Cover]:
    """All workers' together, where all are known."""
    known = [cover for cover in covers if cover is not None]
    if not known or len(known) < len(covers):
        return None
    every, rows, sums = zip(*known)
    return Cover(sum(every), tuple(map(sum, zip(*rows))), tuple(map(sum, zip(*sums))))


def _resident(feature: Dict[str, Any], itemsize: int, mapped: bool) -> int:
    """Bytes of a feature in memory; what a model reads as numbers of another type is there twice, or, where it is
    mapped, once."""
    digits = "".join(c for c in feature["dtype"] if c.isdigit())
    stored = int(digits) // 8 if digits else 1
    same = stored == itemsize and feature["dtype"].startswith(("float", "bfloat"))
    converted = len(feature["shape"]) == 2 and not same
    kept = 0 if mapped and len(feature["shape"]) > 1 else stored
    return int(math.prod(feature["shape"])) * (kept + (itemsize if converted else 0))


def _from_numbers(nodes: int, edges: int, parts: int, cut: float, row_bytes: int) -> List[Part]:
    if nodes < 1 or edges < 0 or parts < 1 or not 0 <= cut <= 1:
        raise ValueError(
            f"num_nodes={nodes}, num_edges={edges}, parts={parts}, edge_cut={cut}: at least one node and one part are "
            "needed, and a share of cut edges between 0 and 1"
        )
    own, into = nodes / parts, edges / parts
    others = nodes - own
    # so many different sources do that many edges have that begin anywhere among the others
    boundary = others * -math.expm1(-cut * into / others) if others else 0.0
    return [Part(math.ceil(own), math.ceil(into), math.ceil(boundary), math.ceil(own * row_bytes))] * parts


# ---- time ----------------------------------------------------------------------


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
