"""Columns of batches: node features, edge columns, and sampling weights."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

import torch
from torch import Tensor

from sar._engine import samplers as abi
from sar.graph.manager import GraphShardManager

from .engine import Column

Features = Mapping[str, Union[Tensor, Mapping[str, Tensor]]]
"""One row per own node, by name; by node type where there are several."""

UNCOPIED = ("orig_id",)
"""Edge columns that blocks do not carry: what ``sar partition`` notes for itself."""


def columns_of(
    graph: GraphShardManager,
    inputs: Optional[Features],
    outputs: Optional[Features],
    copy_edata: bool,
    prob: Optional[str],
) -> List[Column]:
    """Features of a batch's input and output nodes, columns of edges, and weights that edges are drawn by.

    :param prob: the column of weights; the others are as :class:`sar.DistNeighborSampler` takes them
    :raises KeyError: a node type or a column is unknown
    :raises ValueError: the number of rows
    """
    columns = []
    for what, features in ((abi.INPUT, inputs), (abi.OUTPUT, outputs)):
        for name, value in (features or {}).items():
            for ntype, rows in _by_type(graph, name, value).items():
                columns.append(Column(what, graph.ntypes.index(ntype), name, rows))
    frames = [graph._state.edge_frames[r] for r in graph.canonical_etypes]
    if copy_edata:
        for kind, frame in enumerate(frames):
            for name in sorted(set(frame) - set(UNCOPIED)):
                columns.append(Column(abi.EDGE, kind, name, frame[name]))
    if prob is not None:
        if not any(prob in frame for frame in frames):
            known = sorted({name for frame in frames for name in frame})
            raise KeyError(f"prob names the edge column {prob!r}; there are: {', '.join(known) or 'none'}")
        for kind, (frame, relation) in enumerate(zip(frames, graph._relations)):
            rows = frame[prob] if prob in frame else torch.ones(relation.num_edges)
            columns.append(Column(abi.WEIGHT, kind, prob, rows))
    return columns


def _by_type(graph: GraphShardManager, name: str, value: Any) -> Dict[str, Tensor]:
    """A feature by node type, with as many rows as there are own nodes."""
    if not isinstance(value, Mapping):
        if len(graph.ntypes) > 1:
            raise ValueError(f"feature {name!r}: this graph has several node types, give {{node type: tensor}}")
        value = {graph.ntypes[0]: value}
    for ntype, rows in value.items():
        if ntype not in graph.ntypes:
            raise KeyError(f"feature {name!r}: node type {ntype!r} is unknown; there are: {', '.join(graph.ntypes)}")
        own = graph._state.nodes[ntype].num_own
        if not isinstance(rows, Tensor) or rows.dim() == 0 or len(rows) != own:
            shape = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
            raise ValueError(
                f"feature {name!r} has shape {shape}, but this worker owns {own} nodes of type {ntype!r}: expected "
                f"({own}, ...)"
            )
    return dict(value)


def sign(column: Column) -> Tuple[Any, ...]:
    """What a column must share with the one that the engine knows. Copies are made again when the original changed."""
    rows = column.rows
    if not isinstance(rows, Tensor):
        return (column.what, column.kind, column.name, id(rows))
    copied = column.what == abi.WEIGHT or not rows.is_contiguous()
    return (
        column.what,
        column.kind,
        column.name,
        rows.data_ptr(),
        rows.dtype,
        tuple(rows.shape),
        rows.stride(),
        rows._version if copied else None,
    )


def readable(column: Column) -> Column:
    """The column in one piece of CPU memory; weights as float32 [n]."""
    rows = column.rows
    if not isinstance(rows, Tensor) and hasattr(rows, "materialize"):
        rows = rows.materialize()
    if rows.device.type != "cpu":
        raise TypeError(f"feature {column.name!r} is on {rows.device}: give sampling features in CPU memory")
    rows = rows.detach()
    if column.what == abi.WEIGHT:
        if rows.dim() > 1 and rows.numel() == len(rows):
            rows = rows.reshape(-1)
        if rows.dim() != 1:
            shape = tuple(rows.shape)
            raise ValueError(f"edge column {column.name!r} has shape {shape}: prob needs one number per edge")
        rows = rows.to(torch.float32)
    return column._replace(rows=rows.contiguous())
