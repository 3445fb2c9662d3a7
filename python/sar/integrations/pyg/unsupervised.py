"""Models of PyG whose losses are means over edges, pairs and nodes of the whole graph: what stands for their methods.

A loss is this worker's share of that of the whole graph: the sum over its own divided by the number of all. Shares add
up, as gradients do in :func:`sar.gather_grads`.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch_geometric import nn as pyg
from torch_geometric.nn.models import autoencoder

from sar.autograd.fused.prepared import forward_of_class
from sar.distributed.agreement import agreed_seed, summed
from sar.graph.edge_index.index import SplitEdgeIndex
from sar.graph.edge_tensor.tensor import values
from sar.graph.readout import one_graph, reduce_by_graph, rows_of_all
from sar.links import link_metrics, negative_sampling
from sar.links.node_ids import shuffled

EPS = 1e-15
"""What PyG adds to probabilities."""


def share(own: Any) -> Tensor:
    """This worker's share of the mean of all workers' elements. Collective."""
    own = values(own)
    total = summed(torch.tensor(own.numel()))
    return own.sum(dtype=torch.promote_types(own.dtype, torch.float32)) / total.clamp(min=1)


def _surprise(probability: Any) -> Tensor:
    """The share of the mean of minus the logarithms of probabilities."""
    return share(-torch.log(probability + EPS))


# ---- autoencoders --------------------------------------------------------------------


def recon_loss(model: Any, z: Tensor, pos_edge_index: Any, neg_edge_index: Any = None) -> Tensor:
    """Of GAE. Pairs are drawn over the nodes of all workers."""
    if neg_edge_index is None:
        neg_edge_index = negative_sampling(pos_edge_index, z.size(0))
    edges = _surprise(model.decoder(z, pos_edge_index, sigmoid=True))
    return edges + _surprise(1 - model.decoder(z, neg_edge_index, sigmoid=True))


def test(model: Any, z: Tensor, pos_edge_index: Any, neg_edge_index: Any) -> Tuple[Optional[float], Optional[float]]:
    """Of GAE: area under the curve, and average precision."""
    scores = [model.decoder(z, index, sigmoid=True) for index in (pos_edge_index, neg_edge_index)]
    found = link_metrics(scores[0], scores[1], hits=())
    return found["auc"], found["ap"]


def kl_loss(model: Any, mu: Optional[Tensor] = None, logstd: Optional[Tensor] = None) -> Tensor:
    """Of VGAE."""
    mu = model.__mu__ if mu is None else mu
    logstd = model.__logstd__ if logstd is None else logstd.clamp(max=autoencoder.MAX_LOGSTD)
    return -0.5 * share((1 + 2 * logstd - mu.square() - logstd.exp().square()).sum(1))


def reg_loss(model: Any, z: Tensor) -> Tensor:
    """Of ARGA."""
    return _surprise(torch.sigmoid(model.discriminator(z)))


def discriminator_loss(model: Any, z: Tensor) -> Tensor:
    """Of ARGA."""
    real = torch.sigmoid(model.discriminator(torch.randn_like(z)))
    return _surprise(real) + _surprise(1 - torch.sigmoid(model.discriminator(z.detach())))


# ---- DeepGraphInfomax ------------------------------------------------------------------


def infomax_loss(model: Any, pos_z: Tensor, neg_z: Tensor, summary: Tensor) -> Tensor:
    """Of DeepGraphInfomax."""
    real = model.discriminate(pos_z, summary, sigmoid=True)
    return _surprise(real) + _surprise(1 - model.discriminate(neg_z, summary, sigmoid=True))


def infomax_test(
    model: Any, train_z: Tensor, train_y: Tensor, test_z: Tensor, test_y: Tensor, *args: Any, **named: Any
) -> float:
    """Of DeepGraphInfomax: the regression is of the rows of all workers, which each gathers."""
    rows = [rows_of_all(values(one).detach()) for one in (train_z, train_y, test_z, test_y)]
    return type(model).test(model, *rows, *args, **named)


def dgi_forward(model: Any, *args: Any, **kwargs: Any) -> Any:
    """Of DeepGraphInfomax: the corruption permutes the nodes of all workers, and the summary is one of them all."""
    index = next((value for value in (*args, *kwargs.values()) if isinstance(value, SplitEdgeIndex)), None)
    if index is None:
        return forward_of_class(model, *args, **kwargs)
    graph = index.graph
    kind = index.edges.relation.canonical[0]
    nodes = graph._state.nodes[kind]
    corruption, summary = model.corruption, model.summary

    def corrupted(*given: Any, **named: Any) -> Any:
        with _Permutations(nodes.num_own, lambda: shuffled(graph._state, kind, agreed_seed())):
            return corruption(*given, **named)

    def summarized(z: Tensor, *given: Any, **named: Any) -> Any:
        rows: Any = z.as_subclass(RowsOfAll)
        rows.total = nodes.num_global
        found = summary(rows, *given, **named)
        return found.as_subclass(Tensor) if isinstance(found, RowsOfAll) else found

    with _in_place_of(model, corruption=corrupted, summary=summarized):
        return forward_of_class(model, *args, **kwargs)


@contextlib.contextmanager
def _in_place_of(model: nn.Module, **attributes: Callable[..., Any]) -> Iterator[None]:
    own = vars(model)
    before = {name: own[name] for name in attributes if name in own}
    own.update(attributes)
    try:
        yield
    finally:
        for name in attributes:
            del own[name]
        own.update(before)


class _Permutations(TorchFunctionMode):
    """``torch.randperm`` of as many numbers as there are own nodes gives, for these, a permutation of all nodes."""

    def __init__(self, rows: int, draw: Callable[[], Tensor]) -> None:
        super().__init__()
        self._rows, self._draw = rows, draw

    def __torch_function__(
        self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        if func is torch.randperm and (args[:1] == (self._rows,) or (kwargs or {}).get("n") == self._rows):
            return self._draw()
        return func(*args, **(kwargs or {}))


class RowsOfAll(Tensor):
    """Rows of own nodes whose mean and sum over nodes are those of the nodes of all workers."""

    total: int

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            reducer = _REDUCED.get(func)
            dim = args[1] if len(args) > 1 else kwargs.get("dim")
            if reducer is not None and isinstance(args[0], RowsOfAll) and dim in (0, -args[0].dim(), (0,), [0]):
                rows = one_graph(len(args[0]), args[0].total)
                keep = args[2] if len(args) > 2 else kwargs.get("keepdim", False)
                found = reduce_by_graph(args[0].as_subclass(Tensor), rows, 0, reducer)
                return found if keep else found.squeeze(0)
            found = func(*args, **kwargs)
            return found.as_subclass(Tensor) if isinstance(found, RowsOfAll) else found


_REDUCED = {Tensor.mean: "mean", torch.mean: "mean", Tensor.sum: "sum", torch.sum: "sum"}

_METHODS: Dict[Any, Mapping[str, Callable[..., Any]]] = {
    pyg.GAE: {"recon_loss": recon_loss, "test": test},
    pyg.VGAE: {"kl_loss": kl_loss},
    pyg.ARGA: {"reg_loss": reg_loss, "discriminator_loss": discriminator_loss},
    pyg.DeepGraphInfomax: {"loss": infomax_loss, "test": infomax_test},
}


def methods_of(module: nn.Module) -> Dict[str, Callable[..., Any]]:
    """By name, what stands for methods of a module, which are PyG's own; none of other modules."""
    found: Dict[str, Callable[..., Any]] = {}
    for kind, methods in _METHODS.items():
        if isinstance(module, kind):
            found.update({n: f for n, f in methods.items() if getattr(type(module), n) is getattr(kind, n)})
    return found
