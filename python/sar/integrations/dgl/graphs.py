"""DGL graphs built from a worker's edges."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple

import dgl
import dgl.function
from torch import Tensor

from sar.data.partition_book import CanonicalEtype
from sar.function import BinaryMessage, CopyMessage, Reduce


def block(ends: Tuple[Tensor, Tensor], num_src: int, num_dst: int, columns: Mapping[str, Tensor]) -> Any:
    """A DGL block of the given edges and edge columns."""
    made = dgl.create_block(ends, num_src_nodes=num_src, num_dst_nodes=num_dst)
    made.edata.update(columns)
    return made


def whole_graph(
    ends: Dict[CanonicalEtype, Tuple[Tensor, Tensor]],
    sizes: Dict[str, int],
    columns: Mapping[CanonicalEtype, Mapping[str, Tensor]],
) -> Any:
    """A DGL graph of all node ids with the given edges and edge columns; homogeneous where there is one relation."""
    made = dgl.heterograph(ends, num_nodes_dict=sizes)
    for triple, given in columns.items():
        for name, column in given.items():
            made.edges[triple].data[name] = column
    return made


def function(given: Any) -> Any:
    """DGL's counterpart of a message or reduce function of :mod:`sar.function`; others as they are."""
    if isinstance(given, CopyMessage):
        fields = [given.in_field]
    elif isinstance(given, BinaryMessage):
        fields = [given.lhs_field, given.rhs_field]
    elif isinstance(given, Reduce):
        fields = [given.msg_field]
    else:
        return given
    return getattr(dgl.function, given.name)(*fields, given.out_field)
