"""Normalizations and pools of torch_geometric: the same code for PyG on the whole graph and for the workers."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import torch
from torch import nn

import sar
from tests.parity.cases_pyg import graph_index
from tests.support.worker import default_dtype, numpy, random_layer, refusal

IN, GRAPHS = 6, 5
DEGREES = torch.tensor([1, 4, 9, 12, 9, 6, 4, 2])


def _nn() -> Any:
    import torch_geometric.nn

    return torch_geometric.nn


def _made(name: str, *args: Any, **kwargs: Any) -> Callable[[], nn.Module]:
    return lambda: getattr(_nn(), name)(*args, **kwargs)


class Call(nn.Module):
    """A function as a layer."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: Any, batch: Any = None, graphs: Any = None) -> Any:
        return getattr(_nn(), self.name)(x, batch, graphs)


class Module(nn.Module):
    """An aggregation of nodes, which takes the number of graphs by name."""

    def __init__(self, name: str, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.aggr = getattr(_nn().aggr, name)(*args, **kwargs)

    def forward(self, x: Any, batch: Any = None, graphs: Any = None) -> Any:
        return self.aggr(x) if batch is None else self.aggr(x, batch, dim_size=graphs)


class Residual(nn.Module):
    """MessageNorm, of nodes and of messages that were added up."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.lin = _nn().MessageNorm(learn_scale=True), nn.Linear(IN, IN)

    def forward(self, x: Any) -> Any:
        return self.norm(x, self.lin(x))


def _pool(name: str, *args: Any, **kwargs: Any) -> Callable[[], nn.Module]:
    return lambda: Module(name, *args, **kwargs)


NORMS: dict[str, Callable[[], nn.Module]] = {
    "graph": _made("GraphNorm", IN),
    "instance": _made("InstanceNorm", IN),
    "instance_tracked": _made("InstanceNorm", IN, affine=True, track_running_stats=True),
    "pair": _made("PairNorm"),
    "pair_individually": _made("PairNorm", scale=1.5, scale_individually=True),
    "graph_size": _made("GraphSizeNorm"),
    "mean_subtraction": _made("MeanSubtractionNorm"),
    "layer": _made("LayerNorm", IN),
    "layer_bare": _made("LayerNorm", IN, affine=False),
    "layer_of_nodes": _made("LayerNorm", IN, mode="node"),
}
"""Normalizations with and without a batch vector."""
BARE: dict[str, Callable[[], nn.Module]] = {"diff_group": _made("DiffGroupNorm", IN, 3), "message": Residual}
"""Those that take none."""
POOLS: dict[str, Callable[[], nn.Module]] = {
    **{f"global_{name}": lambda name=name: Call(f"global_{name}_pool") for name in ("add", "mean", "max")},
    **{name: _pool(f"{name.capitalize()}Aggregation") for name in ("sum", "mean", "max", "min", "var", "std")},
    "softmax": _pool("SoftmaxAggregation", learn=True),
    "softmax_channels": _pool("SoftmaxAggregation", t=0.7, learn=True, channels=IN),
    "power_mean": _pool("PowerMeanAggregation", p=2.0, learn=True),
    "variance_preserving": _pool("VariancePreservingAggregation"),
    "attention": lambda: Module("AttentionalAggregation", nn.Linear(IN, 1), nn.Linear(IN, 3)),
    "deep_sets": lambda: Module("DeepSetsAggregation", nn.Linear(IN, 4), nn.Linear(4, 3)),
    "set2set": _pool("Set2Set", IN, 3),
    "multi": _pool("MultiAggregation", ["mean", "std", "max", "softmax"]),
    "degree_scaler": _pool("DegreeScalerAggregation", ["mean", "max"], ["amplification", "linear"], DEGREES),
}
MODELS = {**NORMS, **BARE, **POOLS}


def step(
    name: str, x: np.ndarray, batch: np.ndarray | None, grad: np.ndarray | None, share: float, split: bool
) -> dict[str, Any]:
    """The result, all gradients, and buffers.

    :param grad: of the result; drawn where there is none
    :param share: the part of it that this worker gives, where all workers have the result
    """
    dtype = torch.from_numpy(x).dtype
    with default_dtype(torch.float64):  # so that both precisions have the same parameters
        model = random_layer(MODELS[name]).to(dtype)
        torch.set_default_dtype(dtype)
        if split:
            model = sar.convert_batchnorm(model)
        leaf = torch.from_numpy(x.copy()).requires_grad_()
        for _ in range(2):
            leaf.grad = None
            model.zero_grad()
            out = model(leaf) if batch is None else model(leaf, torch.from_numpy(batch), GRAPHS)
            if grad is None:
                grad = np.random.default_rng(12).standard_normal(tuple(out.shape)).astype(x.dtype)
            out.backward(torch.from_numpy(grad * np.asarray(share, x.dtype)))
        evaluated = model.eval()(leaf) if batch is None else model.eval()(leaf, torch.from_numpy(batch), GRAPHS)
    parameters = {k: torch.zeros_like(p) if p.grad is None else p.grad for k, p in model.named_parameters()}
    buffers = {k: v for k, v in model.named_buffers() if v.is_floating_point()}
    found = {"out": out, "grad": grad, "x": leaf.grad, "parameters": parameters, "buffers": buffers}
    return numpy({**found, "eval": evaluated})


def layer(part: dict[str, Any], name: str, x: Any, batch: Any, grad: Any, share: float) -> dict[str, Any]:
    """The same on a worker."""
    index = graph_index(part)
    found = step(name, x, batch, grad, share, True)
    return {**found, "edges": index.shape[1]}


# ---- what is refused, and what is left alone ----------------------------------------

ORDERED: dict[str, tuple[Any, ...]] = {
    "LSTMAggregation": (IN, 3),
    "GRUAggregation": (IN, 3),
    "MLPAggregation": (IN, 3, 4),
    "SortAggregation": (3,),
    "GraphMultisetTransformer": (IN, 2),
    "SetTransformerAggregation": (IN,),
    "PatchTransformerAggregation": (IN, 3, 2, 4),
    "LCMAggregation": (IN, 3),
    "QuantileAggregation": (0.3,),
    "MedianAggregation": (),
    "MulAggregation": (),
    "EquilibriumAggregation": (IN, 3, [4]),
}


NEIGHBOURS = ["DynamicEdgeConv", "GravNetConv", "XConv"]


def neighbours(name: str, x: torch.Tensor) -> Any:
    """A layer that finds neighbours. PyG makes none without pyg-lib, which is asked after the layer has refused."""
    layer = nn.Module.__new__(getattr(_nn(), name))
    nn.Module.__init__(layer)
    return layer(x, x)


def said(part: dict[str, Any]) -> dict[str, str]:
    """What is raised. Afterwards, workers still agree on what comes next."""
    index, nn_ = graph_index(part), _nn()
    rows, first = index.edges.rows("v"), sar.rank() == 0
    x, batch = torch.randn(rows, IN), torch.zeros(rows, dtype=torch.int64)
    tried: dict[str, Callable[[], Any]] = {
        name: lambda name=name, args=args: getattr(nn_.aggr, name)(
            *args, **({"num_layers": 1} if name == "MLPAggregation" else {})
        )(x, batch)
        for name, args in ORDERED.items()
    }
    tried.update({name: lambda name=name: neighbours(name, x) for name in NEIGHBOURS})
    tried["ptr"] = lambda: nn_.aggr.SumAggregation()(x, ptr=torch.tensor([0, rows]))
    tried["batch norm inside"] = lambda: nn_.DiffGroupNorm(IN, 2)(x)
    tried["rows of one worker alone"] = lambda: nn_.GraphNorm(IN)(x if first else x.new_ones(rows + 1, IN))
    tried["rows of no worker"] = lambda: nn_.global_mean_pool(x.new_ones(rows + (100 if first else 200), IN), None)
    tried["batch of one worker too short"] = lambda: nn_.PairNorm()(x, batch[1:] if first else batch)
    tried["too few graphs"] = lambda: nn_.aggr.SumAggregation()(x, batch + 2, dim_size=2)
    found = {name: refusal(function) for name, function in tried.items()}
    total = nn_.global_add_pool(torch.ones(rows, 1), None)
    return {**found, "afterwards": f"{float(total)}"}


def left_alone(part: dict[str, Any]) -> list[float]:
    """How far tensors that are the same on every worker are from PyG; and a layer that one worker runs alone."""
    index, nn_ = graph_index(part), _nn()
    torch.manual_seed(1)
    x = torch.randn(97, IN)
    mean, centered = x.mean(0), x - x.mean(0)
    truth = [
        (nn_.GraphNorm(IN), centered / (centered.square().mean(0) + 1e-5).sqrt()),
        (nn_.LayerNorm(IN), (x - x.mean()) / (x.std(unbiased=False) + 1e-5)),
        (lambda t: nn_.global_mean_pool(t, None), mean[None]),
        (nn_.aggr.StdAggregation(), ((x * x).mean(0) - mean * mean).sqrt()[None]),
    ]
    apart = [float((function(x) - expected).detach().abs().max()) for function, expected in truth]
    if sar.rank() == 1:  # nobody else knows of it
        plain = torch.randint(0, 97, (2, 300))
        for aggr in ("mean", "std", "softmax"):
            assert nn_.GraphConv(IN, 2, aggr=aggr)(x, plain).shape[0] == 97
    total = nn_.global_add_pool(torch.ones(index.edges.rows("v"), 1), None)
    return [*apart, float(total)]
