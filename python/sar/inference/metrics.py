"""Metrics of predictions over the nodes of all workers, by torchmetrics.

Every worker updates metrics with its own nodes. Their states are then put together as they would be on one worker:
counts are added, and scores, which the area under a curve needs as they are, are gathered on rank 0.
"""

from __future__ import annotations

import warnings
from typing import Any, Dict, List, Mapping, Optional, Tuple

import torch
from torch import Tensor

from sar import comm
from sar.distributed.agreement import all_or_none
from sar.extras import need

METRICS = ("accuracy", "f1", "auc")
SPLITS = ("train", "val", "test")


def library() -> Any:
    """torchmetrics.

    :raises ImportError: it is not installed
    """
    return need("torchmetrics", "results", "sar evaluate")


def targets_of(columns: Mapping[str, Tensor], kind: str, name: str) -> Tuple[Tensor, Dict[str, Tensor]]:
    """Labels of own nodes, and for each split that the partition has, which nodes it holds; all nodes, under the name
    "all", where it has none.

    :raises ValueError: there are no such labels
    """
    library()
    key = f"{kind}/{name}" if f"{kind}/{name}" in columns else name
    if key not in columns:
        known = ", ".join(sorted(columns)) or "none"
        raise ValueError(f"nodes of type {kind!r} have no feature {name!r}; there are: {known}. Name one with --labels")
    labels = columns[key]
    masks = {split: columns.get(f"{kind}/{split}_mask", columns.get(f"{split}_mask")) for split in SPLITS}
    splits = {split: mask.bool() for split, mask in masks.items() if mask is not None}
    return labels, splits or {"all": torch.ones(len(labels), dtype=torch.bool)}


def evaluate(
    logits: Tensor, labels: Tensor, splits: Mapping[str, Tensor], wanted: List[str]
) -> Dict[str, Dict[str, Any]]:
    """By split, the number of its labelled nodes and the metrics that are wanted. Collective.

    Nodes whose label is negative or NaN have none. Accuracy counts nodes; F1 and the area under the ROC curve are
    means over classes, the latter of each against the others.

    :param logits: ``[n, classes]``; ``[n]`` or ``[n, 1]`` for two classes
    :param labels: ``[n]`` class numbers; ``[n, classes]`` of 0 and 1 where a node may have several classes
    :param splits: bool ``[n]`` each
    :returns: complete on rank 0; elsewhere the area under the curve is missing
    :raises ValueError: shapes or labels that do not fit
    """
    task, classes = all_or_none("sar evaluate", lambda: _task(logits, labels))
    scores, labels = _scores(task, logits.float()), labels if task == "multilabel" else labels.reshape(-1)
    known = labels >= 0 if task != "multilabel" else (labels >= 0).all(1)
    found: Dict[str, Dict[str, Any]] = {}
    for split, mask in splits.items():
        chosen = mask & known
        count = torch.tensor(int(chosen.sum()))
        comm.all_reduce(count, "sum")
        found[split] = {"nodes": int(count)}
        for name in wanted:
            found[split][name] = _value(name, task, classes, scores[chosen], labels[chosen].long(), int(count))
    return found


def _task(logits: Tensor, labels: Tensor) -> Tuple[str, int]:
    classes = 1 if logits.dim() == 1 else logits.shape[1]
    if logits.dim() > 2 or len(logits) != len(labels) or not logits.is_floating_point():
        raise ValueError(
            f"the model returns {logits.dtype} {tuple(logits.shape)} for labels {tuple(labels.shape)}: metrics take "
            "floating-point numbers [nodes, classes], or [nodes] for two classes"
        )
    if labels.dim() == 2 and labels.shape[1] > 1:
        if labels.shape[1] != classes:
            raise ValueError(f"labels have {labels.shape[1]} columns, and the model returns {classes}")
        return "multilabel", classes
    largest = int(labels.max()) if len(labels) else -1
    if largest >= max(classes, 2):
        raise ValueError(f"a label is {largest}, and the model returns {classes} columns: labels begin at 0")
    return ("binary", 1) if classes == 1 else ("multiclass", classes)


def _scores(task: str, logits: Tensor) -> Tensor:
    if task == "multiclass":
        return logits.softmax(1)
    return logits.sigmoid() if task == "multilabel" else logits.view(-1).sigmoid()


def _value(name: str, task: str, classes: int, scores: Tensor, labels: Tensor, count: int) -> Optional[float]:
    """One metric over the chosen nodes of all workers. Collective."""
    metric = _metric(name, task, classes)
    if task == "multiclass" and name != "auc":
        scores = scores.argmax(1)
    if len(labels):
        metric.update(scores, labels)
    combine(metric, scores, labels)
    if not count or (name == "auc" and comm.rank()):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of classes that a split has no node of
        return float(metric.compute())


def _metric(name: str, task: str, classes: int) -> Any:
    tm = library()
    sizes = {"multiclass": {"num_classes": classes}, "multilabel": {"num_labels": classes}, "binary": {}}[task]
    more = {"sync_on_compute": False, **sizes}
    if name == "accuracy":
        return tm.Accuracy(task=task, average="micro", **more)
    return {"f1": tm.F1Score, "auc": tm.AUROC}[name](task=task, average="macro", **more)


def combine(metric: Any, scores: Tensor, labels: Tensor) -> None:
    """Makes the state of a metric that of all workers: sums everywhere, lists of rows on rank 0. Collective.

    :param scores: what it was updated with here, for dtype and shape where that had no rows
    """
    metric._update_count = max(1, metric._update_count)  # a worker without nodes has not called update
    empty = {"preds": scores[:0], "target": labels[:0]}
    for name, initial in metric._defaults.items():
        state = getattr(metric, name)
        if isinstance(initial, list):
            rows = torch.cat([empty[name], *state])
            setattr(metric, name, [_on_first(rows)])
        else:
            comm.all_reduce(state, "sum")


def _on_first(rows: Tensor) -> Tensor:
    """The rows of all workers on rank 0, in order of rank; no rows elsewhere. Collective."""
    nothing = rows[:0]
    return torch.cat(comm.exchange_tensors([rows if q == 0 else nothing for q in range(comm.world_size())]))


def table_of(found: Dict[str, Dict[str, Any]]) -> str:
    """For people."""
    names = list(next(iter(found.values())))
    lines = [[split, *(_text(values[name]) for name in names)] for split, values in found.items()]
    cells = [["split", *names], *lines]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in cells)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
