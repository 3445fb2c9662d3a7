"""Every aggregation of ``torch_geometric.nn.aggr`` as that of a layer, and how it runs."""

from __future__ import annotations

from typing import Any, Callable

from torch import nn

from tests.parity.pyg_specs import DEGREES, IN, OUT, E, Spec, W, X, pyg_nn


def _layer(aggregation: Callable[[Any], Any], positive: bool) -> Callable[[], nn.Module]:
    """A layer whose messages are weighted rows of sources.

    :param positive: they are made positive, for powers
    """

    def make() -> nn.Module:
        class Weighted(pyg_nn().MessagePassing):  # type: ignore[name-defined, misc]
            def forward(self, x: Any, edge_index: Any, weight: Any) -> Any:
                return self.propagate(edge_index, x=x.abs() + 0.1 if positive else x, weight=weight)

            def message(self, x_j: Any, weight: Any) -> Any:
                return x_j * weight.view(-1, 1)

        return Weighted(aggr=aggregation(pyg_nn().aggr))

    return make


def _spec(aggregation: Callable[[Any], Any], how: str = "fused", positive: bool = False) -> Spec:
    return Spec(_layer(aggregation, positive), (X, E, W), how=how)


def _named(name: str, *args: Any, how: str = "values", **kwargs: Any) -> Spec:
    return _spec(lambda aggr: getattr(aggr, name)(*args, **kwargs), how)


# aggregation: its cases
AGGREGATIONS: dict[str, dict[str, Spec]] = {
    "SumAggregation": {"sum": _named("SumAggregation", how="fused")},
    "MeanAggregation": {"mean": _named("MeanAggregation", how="fused")},
    "MaxAggregation": {"max": _named("MaxAggregation", how="fused")},
    "MinAggregation": {"min": _named("MinAggregation", how="fused")},
    "MulAggregation": {"mul": _named("MulAggregation")},
    "VarAggregation": {
        "var": _named("VarAggregation", how="fused"),
        "var_semi": _named("VarAggregation", True, how="fused"),
    },
    "StdAggregation": {"std": _named("StdAggregation", how="fused")},
    "SoftmaxAggregation": {
        "softmax": _named("SoftmaxAggregation", learn=True, how="fused"),
        "softmax_channels": _named("SoftmaxAggregation", learn=True, channels=IN, how="fused"),
        "softmax_semi": _named("SoftmaxAggregation", t=0.3, semi_grad=True, how="fused"),
    },
    "PowerMeanAggregation": {
        "power_mean": _spec(lambda aggr: aggr.PowerMeanAggregation(p=2.0, learn=True), "blocks", True)
    },
    "MultiAggregation": {
        "multi": _named("MultiAggregation", ["sum", "max", "std"], how="fused"),
        "multi_attention": _named(
            "MultiAggregation",
            ["mean", "min"],
            mode="attn",
            mode_kwargs={"in_channels": IN, "out_channels": IN, "num_heads": 2},
            how="fused",
        ),
    },
    "DegreeScalerAggregation": {
        "degree_scaler": _named(
            "DegreeScalerAggregation", ["mean", "max"], ["attenuation", "linear"], DEGREES, how="fused"
        )
    },
    "VariancePreservingAggregation": {"variance_preserving": _named("VariancePreservingAggregation", how="fused")},
    "AttentionalAggregation": {
        "attention": _spec(lambda aggr: aggr.AttentionalAggregation(nn.Linear(IN, 1), nn.Linear(IN, OUT)), "blocks")
    },
    "DeepSetsAggregation": {
        "deep_sets": _spec(lambda aggr: aggr.DeepSetsAggregation(nn.Linear(IN, 5), nn.Linear(5, OUT)), "blocks")
    },
    "Set2Set": {"set2set": _named("Set2Set", IN, 2, how="fused")},
    "MedianAggregation": {"median": _named("MedianAggregation")},
    "QuantileAggregation": {"quantile": _named("QuantileAggregation", [0.25, 0.6], "linear")},
    "LSTMAggregation": {"lstm": _named("LSTMAggregation", IN, OUT)},
    "GRUAggregation": {"gru": _named("GRUAggregation", IN, OUT)},
    "SortAggregation": {"sort": _named("SortAggregation", 3), "sort_many": _named("SortAggregation", 40)},
    "MLPAggregation": {
        "mlp": _named("MLPAggregation", IN, OUT, 4, num_layers=1),
        "mlp_norm": _named("MLPAggregation", IN, OUT, 4, num_layers=2, hidden_channels=5)._replace(norm=True),
    },
    "LCMAggregation": {"lcm": _named("LCMAggregation", IN, OUT)},
    "GraphMultisetTransformer": {"multiset": _named("GraphMultisetTransformer", IN, 2, heads=2, layer_norm=True)},
    "SetTransformerAggregation": {"set_transformer": _named("SetTransformerAggregation", IN, 2, heads=2)},
    "PatchTransformerAggregation": {"patch": _named("PatchTransformerAggregation", IN, OUT, 2, 6, heads=2)},
}

CASES: dict[str, Spec] = {f"aggr_{name}": spec for cases in AGGREGATIONS.values() for name, spec in cases.items()}

# aggregation: why, and the way round
REFUSED: dict[str, tuple[str, str]] = {
    "EquilibriumAggregation": (
        "differentiates sums over edges twice",
        "AttentionalAggregation, DeepSetsAggregation, SoftmaxAggregation",
    )
}
