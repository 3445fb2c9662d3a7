"""Normalizations and pools, whose statistics are those of all nodes of a graph.

Each call first agrees with all workers on whether the tensor has a row for each own node; so once a split graph has
been made, every worker makes the same calls.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, Optional, Set, Tuple, Union
from weakref import WeakSet

from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.nn import aggr as nn_aggr

from sar._engine import session as _session
from sar.autograd.compile import uncompiled
from sar.autograd.fused.prepared import Prepared, choice_of, prepared
from sar.distributed.agreement import anywhere, equal_on_all
from sar.graph.edge_index.edges import SplitEdges
from sar.graph.edge_index.rows import EdgeEnds
from sar.graph.readout import NodeBatch, max_over_workers, nodes_per_graph, one_graph, reduce_by_graph
from sar.integrations.replacements import given
from sar.nn.batch_norm import DistributedBN1D

from .reductions import SORTED, aggregate_messages, scatter

_sessions: WeakSet[_session.Session] = WeakSet()
"""Sessions in which edge indices were made."""


class _Seen:
    """Whether edge indices were made in a session of several workers."""

    several = False


class _Here(threading.local):
    """Of this thread: the layer that passes messages now, if one does."""

    layer: Any = None


seen, here = _Seen(), _Here()


def begin() -> None:
    """From now on the session has split graphs."""
    session = _session.current()
    _sessions.add(session)
    seen.several = seen.several or session.world > 1


def concerned(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> bool:
    """Whether a tensor may be of the nodes of a split graph. torch.compile evaluates it as it traces."""
    return seen.several


def aggregates(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> bool:
    """Whether an aggregation module, the first argument, is given messages of a split graph, or may be given its nodes.
    Where it aggregates other messages of a layer, workers need not agree on what these are."""
    if _messages(args, kwargs):
        return True
    own = None if here.layer is None else here.layer.aggr_module
    return seen.several and (own is None or all(part is not args[0] for part in own.modules()))


_messages = given(EdgeEnds, NodeBatch)


def _active() -> bool:
    session = _session.peek()
    return session is not None and session.world > 1 and session in _sessions


@uncompiled
def node_batch(
    what: Union[str, nn.Module], x: Any, dim: int = 0, batch: Any = None, graphs: Optional[int] = None
) -> Optional[NodeBatch]:
    """The graphs of own nodes, if ``x`` has a row for each on every worker. Collective, once a split graph was made; a
    prepared module asks in its first forward alone, where it has no batch vector.

    :param what: what reduces over nodes: a module, or a name for errors
    :param x: a tensor, with rows in dimension ``dim``
    :param batch: the graph of each row; None: all are one graph
    :param graphs: how many graphs; counted where None
    :returns: None where ``x`` is no tensor of nodes; its rows are then all there, as after pooling
    :raises ValueError: on every worker, where tensors have a row for each own node on some of them only, or different
        numbers of rows
    """
    if isinstance(batch, NodeBatch):
        return batch
    if isinstance(batch, EdgeEnds) or not _active():
        return None
    rows = x.shape[dim] if isinstance(x, Tensor) and -x.dim() <= dim < x.dim() else -1
    own = {edges.rows(side) for edges in SplitEdges.alive for side in "uv"}
    name, known = (what, None) if isinstance(what, str) else (type(what).__name__, prepared(what))
    if known is not None and batch is None and "of_nodes" in known.kept:
        return _as_before(known, rows, own, graphs)
    count = 1 if batch is None else int(batch.max()) + 1 if len(batch) else 0
    fits = batch is None or (batch.dim() == 1 and len(batch) == rows)
    told = [int(rows in own), int(rows not in own), rows, count, graphs or 0, int(not fits)]
    (alike,), (some, others, most, count, size, wrong) = equal_on_all([rows], told)
    if known is not None and batch is None and not (some and others):
        known.kept["of_nodes"] = bool(some)
    if not some and alike:
        return None
    if others:
        raise ValueError(
            f"{name} reduces over all nodes of a graph, which is split over workers. It was given {rows} rows on this "
            f"worker, up to {most} on others, and not on every worker these are as many as it owns nodes "
            f"({', '.join(map(str, sorted(own))) or 'none'} here). Give a row for each own node, as data.x has, or the "
            "same tensor on every worker"
        )
    if wrong:
        raise ValueError(f"{name}: batch has to give the graph of each own node, int64 [{rows}] on this worker")
    if size and count > size:
        raise ValueError(f"{name}: a batch vector names graph {count - 1}, and a size of {size} graphs was given")
    return NodeBatch.of(one_graph(rows) if batch is None else batch, size or count)


def _as_before(known: Prepared, rows: int, own: Set[int], graphs: Optional[int]) -> Optional[NodeBatch]:
    """What :func:`node_batch` said in the first forward of a prepared module. Local."""
    if not known.kept["of_nodes"]:
        return None
    if rows not in own:
        raise ValueError(
            f"{known.choice.path or 'the model'} ({known.choice.kind}) reduced over all nodes in its first forward, "
            f"and was given {rows} rows now, where this worker owns {', '.join(map(str, sorted(own)))} nodes: use one "
            "module for nodes and another for pooled rows, or call sar.restore on this one"
        )
    return NodeBatch.of(one_graph(rows), graphs or 1)


# ---- normalizations ----------------------------------------------------------------


def norm(size_name: str) -> Callable[..., Any]:
    """The forward of a normalization ``(x, batch, batch_size)``."""

    def forward(original: Any, layer: Any, x: Tensor, batch: Any = None, size: Any = None, **named: Any) -> Tensor:
        size = named.pop(size_name, size)
        found = node_batch(layer, x, 0, batch, size)
        batch, size = (batch, size) if found is None else (found, found.graphs)
        out = original(layer, x, batch, size, **named)
        if found is not None:
            _detach_statistics(layer)
        return out

    return forward


def _detach_statistics(layer: Any) -> None:
    """With a batch vector, PyG's running statistics of InstanceNorm would hold the steps of all epochs."""
    for name in ("running_mean", "running_var"):
        value = getattr(layer, name, None)
        if value is not None and value.requires_grad:
            setattr(layer, name, value.detach())


def layer_norm(original: Any, layer: Any, x: Tensor, batch: Any = None, batch_size: Optional[int] = None) -> Tensor:
    found = node_batch(layer, x, 0, batch, batch_size) if layer.mode == "graph" else None
    if found is None or batch is not None:
        batch, batch_size = (batch, batch_size) if found is None else (found, found.graphs)
        return original(layer, x, batch, batch_size)
    # without a batch vector, PyG adds eps to the deviation and not to the variance
    entries = one_graph(x.numel(), int(nodes_per_graph(found)) * x.shape[1:].numel())
    x = x - reduce_by_graph(x.reshape(-1), entries, 0, "mean")
    out = x / (reduce_by_graph(x.square().reshape(-1), entries, 0, "mean").sqrt() + layer.eps)
    return out * layer.weight + layer.bias if layer.weight is not None and layer.bias is not None else out


def diff_group_norm(original: Any, layer: Any, x: Tensor) -> Tensor:
    of_nodes = node_batch(layer, x) is not None and choice_of(layer.norm) is None
    if of_nodes and anywhere(not isinstance(layer.norm, DistributedBN1D))[0]:
        raise NotImplementedError(
            "DiffGroupNorm on a graph split over workers takes its statistics from the batch norm inside it, which "
            "sees this worker's nodes alone: call sar.prepare(model, data), or sar.convert_batchnorm(model)"
        )
    return original(layer, x)


def refuse_neighbours(layer: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
    """Layers that find neighbours among points."""
    if not isinstance(layer, NEIGHBOURS):
        return
    name, x = type(layer).__name__, args[0] if args else kwargs.get("x")
    if node_batch(name, x[0] if isinstance(x, (tuple, list)) else x) is not None:
        raise NotImplementedError(
            f"{name} on a graph split over workers would find neighbours among the points of each worker: make the "
            "edges before the graph is partitioned (torch_geometric.transforms.KNNGraph), and use EdgeConv or "
            "PointNetConv"
        )


NEIGHBOURS = (pyg.DynamicEdgeConv, pyg.GravNetConv, pyg.XConv)


def x_conv(original: Any, layer: Any, *args: Any, **kwargs: Any) -> Tensor:
    refuse_neighbours(layer, args, kwargs)
    return original(layer, *args, **kwargs)


# ---- pools ---------------------------------------------------------------------------


def pool(name: str) -> Callable[..., Tensor]:
    def pool(original: Any, x: Tensor, batch: Optional[Tensor], size: Optional[int] = None) -> Tensor:
        dim = -1 if isinstance(x, Tensor) and x.dim() == 1 else -2
        found = node_batch(f"global_{name}pool", x, dim, batch, size)
        if found is None:
            return original(x, batch, size)
        if batch is None and name == "max":  # torch's maximum, of which one of equal rows gets the gradient
            out = max_over_workers(x.movedim(dim, 0)).movedim(0, dim)
        else:
            out = original(x, found, found.graphs)
        return out if batch is not None or x.dim() <= 2 else out.squeeze(dim)

    return pool


def pooled(
    original: Any, src: Tensor, index: Any, dim: int = 0, dim_size: Optional[int] = None, reduce: str = "sum"
) -> Tensor:
    """What pools call; also those that a script imported before they were replaced."""
    found = node_batch("a global pool", src, dim % src.dim(), index, dim_size)
    if found is None:
        return original(src, index, dim, dim_size, reduce)
    return scatter(original, src, found, dim, found.graphs, reduce)


ORDERED = (*SORTED, nn_aggr.MulAggregation, nn_aggr.EquilibriumAggregation)
"""Aggregations that look at all rows of a graph at once."""


def aggregate(
    original: Any, module: nn.Module, x: Any, index: Any = None, ptr: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """An aggregation module: of the messages of a split graph, or of the nodes of a graph."""
    if isinstance(index, EdgeEnds):
        return aggregate_messages(original, module, x, index, ptr, *args, **kwargs)
    size, dim = (args + (None, None)[len(args) :])[:2]
    size, dim = kwargs.pop("dim_size", size), kwargs.pop("dim", -2 if dim is None else dim)
    found = node_batch(module, x, dim, index, size)
    if found is None:
        return original(module, x, index, ptr, size, dim, **kwargs)
    if ptr is not None:
        raise NotImplementedError(
            f"{type(module).__name__}(ptr=...) over the nodes of a graph split over workers: give index, the graph of "
            "each own node"
        )
    if isinstance(module, ORDERED):
        raise NotImplementedError(
            f"{type(module).__name__} over the nodes of a graph split over workers needs all nodes of a graph on one "
            "worker: use sum, mean, max, min, var, std, softmax, power mean, attention, deep sets or Set2Set"
        )
    return original(module, x, found, None, found.graphs, dim, **kwargs)
