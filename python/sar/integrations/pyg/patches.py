"""Replacements in torch_geometric that let its layers run on split graphs.

Layers are not edited. They work because functions of torch on an edge index of a split graph, and on what is made of
it, are overridden; so do functions of torch_geometric, under whatever name a script holds them. What is replaced here
are methods that would look at the nodes of one worker or compute the values of all edges, and, in the modules of layers
alone, functions that the engine has in one piece. Only calls that concern split graphs are, as their arguments tell.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch_geometric.nn  # noqa: F401  the modules whose names are replaced

from sar._engine import session as _session
from sar.config import Config
from sar.graph.edge_index.placeholders import SplitNumbers
from sar.graph.edge_index.refusals import allow_in, refuse_in, refuse_nowhere
from sar.graph.edge_tensor.tensor import EdgeTensor
from sar.graph.readout import NodeBatch
from sar.integrations.replacements import Concerned, Patches, given

from . import (
    all_nodes,
    calls,
    hetero,
    layers,
    over_nodes,
    reductions,
    scripts,
    transformers,
    transforms,
)

OTHERWISE = "Install a version that SAR supports (2.7 or 2.8), or set sar.Config.patch_pyg = False"

_applied: Optional[Patches] = None


def adapt() -> None:
    """Makes torch_geometric's layers work on edge indices of split graphs. Idempotent.

    :raises RuntimeError: this version of torch_geometric lacks a name that is replaced; nothing is replaced then
    """
    global _applied
    if _applied is not None or not Config.patch_pyg:
        return
    patches = Patches("torch_geometric", OTHERWISE, given(SplitNumbers, EdgeTensor, NodeBatch))
    for why, concerned, packages, functions in FUNCTIONS:
        for path, function in functions.items():
            for package in packages:
                patches.wrap_within(f"torch_geometric.{package}", f"torch_geometric.{path}", function, why, concerned)
    for why, concerned, methods in METHODS:
        for path, method in methods.items():
            owner, _, name = f"torch_geometric.{path}".rpartition(".")
            patches.wrap(owner, name, method, why, concerned)
    refused = {path: patches.look_up(f"torch_geometric.{path}") for path in scripts.WHOLE}
    pools = [patches.look_up(f"torch_geometric.{path}") for path in POOLS]
    patches.apply()
    _applied = patches
    for path, instead in scripts.WHOLE.items():
        refuse_in(refused[path], scripts.called(path), instead)
    allow_in(transformers.of_one_graph)
    _warn_of_pools(pools)


def _warn_of_pools(pools: List[Any]) -> None:
    """A pool without a batch vector calls nothing that could tell whose nodes it is given."""
    session, originals = _session.peek(), {id(pool) for pool in pools}
    held = [
        f"{label}.{name}"
        for label, module in list(sys.modules.items())
        if label.split(".")[0] != "torch_geometric"
        for name, value in list(getattr(module, "__dict__", {}).items())
        if id(value) in originals
    ]
    if held and session is not None and session.world > 1:
        warnings.warn(
            f"{', '.join(held)} was imported before there was a split graph: without a batch vector it pools the nodes "
            "of this worker alone. Give it one, import it after sar.pyg.load, or use an aggregation module such as "
            "torch_geometric.nn.MeanAggregation",
            stacklevel=5,
        )


def restore() -> None:
    """Undoes all replacements."""
    global _applied
    if _applied is not None:
        _applied.undo()
        refuse_nowhere()
        _applied = None


EDGES = "reductions over edges in one piece, in the engine"
ALL_NODES = "the nodes of all workers"

NORMS: Dict[str, Callable[..., Any]] = {
    **{f"nn.{name}.forward": over_nodes.norm("batch_size") for name in ("GraphNorm", "InstanceNorm", "PairNorm")},
    "nn.GraphSizeNorm.forward": over_nodes.norm("batch_size"),
    "nn.MeanSubtractionNorm.forward": over_nodes.norm("dim_size"),
    "nn.LayerNorm.forward": over_nodes.layer_norm,
    "nn.DiffGroupNorm.forward": over_nodes.diff_group_norm,
}
POOLS = {f"nn.global_{name}_pool": over_nodes.pool(name) for name in ("add", "mean", "max")}

FUNCTIONS: List[Tuple[str, Optional[Concerned], Tuple[str, ...], Dict[str, Callable[..., Any]]]] = [
    (EDGES, None, ("nn.aggr", "nn.conv", "nn.norm"), {"utils.scatter": reductions.scatter}),
    (EDGES, None, ("nn.aggr", "nn.conv"), {"utils.softmax": reductions.softmax}),
    (EDGES, None, ("nn",), {"nn.conv.gcn_conv.gcn_norm": layers.gcn_norm}),
    ("the same edges for any number of workers", None, ("utils", "nn"), {"utils.dropout_edge": scripts.dropout_edge}),
    (ALL_NODES, None, ("utils",), {"utils.homophily": scripts.homophily}),
    (ALL_NODES, over_nodes.concerned, ("nn",), POOLS),
]
"""Functions of torch_geometric: why they are replaced, for which calls if not those with tensors of a split graph, in
the modules of which packages, and by what, which is given the original and its arguments. In other modules the original
runs, by the overrides of torch's functions."""

METHODS: List[Tuple[str, Optional[Concerned], Dict[str, Callable[..., Any]]]] = [
    (
        "layers in one piece in the engine, or over the nodes of all workers",
        calls.concerned,
        {"nn.MessagePassing.__call__": calls.called},
    ),
    (
        ALL_NODES,
        calls.on_edges,
        {
            "nn.ChebConv.forward": layers.cheb_conv,
            "nn.WLConv.forward": all_nodes.wl_conv,
            "nn.GPSConv.forward": transformers.gps_conv,
            "nn.CorrectAndSmooth.correct": all_nodes.correct,
            "nn.HANConv.forward": hetero.han_conv,
        },
    ),
    (
        ALL_NODES,
        over_nodes.concerned,
        {
            **NORMS,
            "nn.XConv.forward": over_nodes.x_conv,
            "nn.WLConv.histogram": all_nodes.wl_histogram,
            "nn.pool.glob.scatter": over_nodes.pooled,
        },
    ),
    (
        "messages in the order of nodes, and the nodes of all workers",
        over_nodes.aggregates,
        {"nn.aggr.Aggregation.__call__": over_nodes.aggregate},
    ),
    (
        "widths of a type of which a worker has no rows",
        over_nodes.concerned,
        {"nn.HeteroDictLinear.initialize_parameters": hetero.initialize},
    ),
    (
        "transforms of data: the nodes of all workers, or refused",
        transforms.concerned,
        {"transforms.BaseTransform.__call__": transforms.transformed},
    ),
]
"""Methods, and functions in one module: why they are replaced, for which calls if not those with tensors of a split
graph, and by what."""
