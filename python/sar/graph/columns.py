"""Numbers of the source nodes of edges."""

from __future__ import annotations

import numbers
from typing import Any, Optional, Union

import torch
from torch import Tensor

from sar.autograd.fetch import fetch

from .relation import Relation
from .types import ALL


class SourceColumns(Tensor):
    """int64 ``[edges]``: the columns of the sources of edges, own rows and behind them halo rows. An ordinary tensor in
    all but two things: degrees are those of the nodes, wherever they are, and errors say what columns are.

    Results of functions, parts of it too, are ordinary tensors.
    """

    relation: Relation

    @staticmethod
    def of(relation: Relation, columns: Tensor) -> SourceColumns:
        """:param relation: whose columns"""
        self = columns.as_subclass(SourceColumns)
        self.relation = relation
        return self

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            try:
                return func(*args, **(kwargs or {}))
            except (IndexError, RuntimeError) as error:
                if "out of" not in str(error):
                    raise
                raise IndexError(f"{error}. {HALO}") from error


HALO = (
    "Sources of edges are columns: from the number of own nodes on they are halo rows, which other workers own and no "
    "tensor of this worker's nodes has. graph.in_degrees and out_degrees take graph.edges()[0] as it is; other values "
    "of nodes come to edges by apply_edges and update_all"
)


def pick_degrees(degrees: Tensor, rows: Any, kind: Optional[str] = None) -> Union[Tensor, int]:
    """All degrees, or those of some rows; of one row as an int. Collective for the sources of edges.

    :param degrees: of own nodes
    :param kind: their type; None where they are not the nodes that edges may begin at
    :raises IndexError: a row that is not there
    """
    if isinstance(rows, str) and rows == ALL:
        return degrees
    if isinstance(rows, SourceColumns) and rows.relation.canonical[0] == kind:
        return fetch(rows.relation, rows.as_subclass(Tensor), degrees)
    picked = torch.as_tensor(rows)
    if picked.dtype != torch.bool and picked.numel() and not 0 <= picked.min() <= picked.max() < len(degrees):
        raise IndexError(
            f"degrees of the {len(degrees)} nodes of this worker were asked for, of nodes {int(picked.min())} to "
            f"{int(picked.max())}. {HALO}"
        )
    return int(degrees[rows]) if isinstance(rows, numbers.Integral) else degrees[picked]
