"""Sums over all workers, and the number of classes, of a graph and of PyG's data objects."""

from __future__ import annotations

from typing import Dict, Mapping, Union

import torch
from torch import Tensor

from sar.data.loading import full_name
from sar.distributed.agreement import equal_on_all, summed

LABELS = ("y", "labels", "label")
"""What columns with the classes of nodes are called."""


def classes_of(columns: Mapping[str, Mapping[str, Tensor]]) -> Dict[str, int]:
    """Classes of each node type over all workers, of those types that have labels. Collective.

    :param columns: columns of own nodes by type, the same on all workers
    """
    labels = [next((own[name] for name in LABELS if name in own), torch.empty(0)) for own in columns.values()]
    _, found = equal_on_all([], [_own_classes(column) for column in labels])
    return {kind: count for kind, count in zip(columns, found) if count > 0}


def _own_classes(labels: Tensor) -> int:
    """As many as whole numbers from 0 to the largest, or as columns where a node may have several classes; else 0."""
    if labels.dim() > 1 and labels.shape[1] > 1:
        return labels.shape[1]
    return int(labels.max()) + 1 if len(labels) and not labels.is_floating_point() else 0


class Totals:
    """What :func:`sar.load` gives beside a graph or data object itself."""

    def _node_columns(self) -> Dict[str, Tensor]:
        """Columns of own nodes, under ``type/name`` where there are several types."""
        raise NotImplementedError

    def _classes(self) -> Mapping[str, int]:
        """By node type, the number of classes that :func:`classes_of` gave."""
        raise NotImplementedError

    @property
    def num_classes(self) -> int:
        """Classes over all workers, counted by :func:`sar.load`: one more than the largest label (a column ``y``,
        ``labels`` or ``label`` of whole numbers), or the labels' columns where they have several.

        :raises ValueError: no node type has labels, or several have; says which columns there are
        """
        found = self._classes()
        if len(found) > 1:
            counts = ", ".join(f"{kind} {count}" for kind, count in sorted(found.items()))
            raise ValueError(f"several node types have labels: take the number of classes of yours from {counts}")
        if not found:
            names = ", ".join(sorted(self._node_columns())) or "none"
            raise ValueError(
                f"sar.load found no labels, which are a column {', '.join(LABELS[:-1])} or {LABELS[-1]} of whole "
                f"numbers; columns of nodes are: {names}"
            )
        return next(iter(found.values()))

    def total(self, what: Union[str, Tensor, float]) -> float:
        """A sum over the nodes of all workers. Collective.

        ``total("train_mask")`` counts the training nodes of the whole graph, by which a loss is divided. Sums are
        computed in float64, so counts are exact.

        :param what: the name of a column of nodes, or the end of one (``"paper/train_mask"`` where several types have
            it); or a tensor, of which this worker's elements are added up; or a number of this worker
        :raises KeyError: there is no such column; says which there are
        :raises ValueError: several columns end so
        """
        if isinstance(what, str):
            columns = self._node_columns()
            what = columns[full_name(columns, what)]
        return summed(torch.as_tensor(what).detach().sum(dtype=torch.float64)).item()
