"""Replacements in torch_geometric that let its layers run on split graphs.

Layers are not edited. They work because functions of torch on an edge index of a split graph, and on what is made of
it, are overridden. What is replaced here are functions of torch_geometric whose steps would compute the values of all
edges, or would look at the numbers of the whole graph. On other tensors all of them behave as before.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

import torch_geometric.nn  # noqa: F401  the modules whose names are replaced

from sar.config import Config
from sar.integrations.replacements import Patches

from . import all_nodes, fused, hetero, layers, over_nodes, propagation, reductions, refused, scripts, self_loops
from .super_gat import METHODS as SUPER_GAT
from .transforms import METHODS as TRANSFORMS

__all__ = ["adapt", "restore"]

OTHERWISE = "Install a version that SAR supports (2.7 or 2.8), or set sar.Config.patch_pyg = False"

_applied: Optional[Patches] = None


def adapt() -> None:
    """Makes torch_geometric's layers work on edge indices of split graphs. Idempotent.

    :raises RuntimeError: this version of torch_geometric lacks a name that is replaced; nothing is replaced then
    """
    global _applied
    if _applied is not None or not Config.patch_pyg:
        return
    patches = Patches("torch_geometric", OTHERWISE)
    for path, function in FUNCTIONS.items():
        patches.wrap_everywhere(f"torch_geometric.{path}", function)
    for module in self_loops.ANY_ORDER:
        patches.wrap(f"torch_geometric.nn.conv.{module}", "add_self_loops", self_loops.add_self_loops_in_any_order)
    patches.wrap("torch_geometric.nn.aggr.Aggregation", "__call__", reductions.aggregate_sorted)
    patches.wrap("torch_geometric.nn.SAGEConv", "forward", fused.sage_conv)
    patches.wrap("torch_geometric.nn.GCNConv", "forward", fused.gcn_conv)
    patches.wrap("torch_geometric.nn.GINConv", "forward", fused.gin_conv)
    patches.wrap("torch_geometric.nn.GATConv", "forward", fused.gat_conv)
    patches.wrap("torch_geometric.nn.GATv2Conv", "forward", fused.gatv2_conv)
    patches.wrap("torch_geometric.nn.TransformerConv", "forward", fused.transformer_conv)
    patches.wrap("torch_geometric.nn.ChebConv", "forward", layers.cheb_conv)
    patches.wrap("torch_geometric.nn.HypergraphConv", "forward", layers.hypergraph_conv)
    patches.wrap("torch_geometric.nn.WLConvContinuous", "forward", layers.wl_conv_continuous)
    patches.wrap("torch_geometric.nn.aggr.Aggregation", "__call__", over_nodes.aggregate)
    for path, method in {**scripts.METHODS, **over_nodes.METHODS, **all_nodes.METHODS, **propagation.METHODS}.items():
        owner, _, name = f"torch_geometric.{path}".rpartition(".")
        patches.wrap(owner, name, method)
    for path, method in {**TRANSFORMS, **SUPER_GAT}.items():
        owner, _, name = f"torch_geometric.{path}".rpartition(".")
        patches.wrap(owner, name, method)
    patches.wrap("torch_geometric.nn.HeteroDictLinear", "initialize_parameters", hetero.initialize)
    patches.wrap("torch_geometric.data.HeteroData", "to_homogeneous", hetero.to_homogeneous)
    for name, forward in hetero.LAYERS.items():
        patches.wrap(f"torch_geometric.nn.{name}", "forward", forward)
    for layer, why in refused.REFUSED.items():
        patches.wrap(f"torch_geometric.nn.{layer}", "forward", refused.refusing(layer, why))
    patches.apply()
    _applied = patches


def restore() -> None:
    """Undoes all replacements."""
    global _applied
    if _applied is not None:
        _applied.undo()
        _applied = None


FUNCTIONS: Dict[str, Callable[..., Any]] = {
    "utils.scatter": reductions.scatter,
    "utils.softmax": reductions.softmax,
    "utils.degree": reductions.degree,
    "utils.remove_self_loops": self_loops.remove_self_loops,
    "utils.add_self_loops": self_loops.add_self_loops,
    "utils.add_remaining_self_loops": self_loops.add_remaining_self_loops,
    "utils.contains_self_loops": self_loops.contains_self_loops,
    "utils.num_nodes.maybe_num_nodes": layers.maybe_num_nodes,
    "utils.dropout_edge": scripts.dropout_edge,
    "utils.dropout_node": scripts.dropout_node,
    "utils.subgraph": scripts.subgraph,
    "utils.homophily": scripts.homophily,
    "nn.conv.gcn_conv.gcn_norm": layers.gcn_norm,
    "nn.conv.han_conv.group": hetero.group,
    **{f"utils.{name}": scripts.needs_whole_graph for name in refused.WHOLE},
    **over_nodes.POOLS,
}
"""Functions of torch_geometric: each is given the original and its arguments."""
