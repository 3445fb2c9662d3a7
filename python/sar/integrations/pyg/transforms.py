"""Transforms of torch_geometric on data of a split graph: which run, and what stands in the way of others.

``tests/parity/transforms_table.py`` has all of them, and writes docs/transforms.md.
"""

from __future__ import annotations

import copy
import random
from typing import Any, Callable, Dict, Optional, Tuple

import torch
from torch import Tensor
from torch_geometric.transforms import BaseTransform
from torch_geometric.transforms.add_positional_encoding import add_node_attr

from sar import transforms as sar_transforms
from sar.distributed.agreement import agreed_seed
from sar.errors import WholeGraphError
from sar.graph.edge_index.placeholders import SplitNumbers
from sar.graph.edge_index.refusals import check_readers
from sar.graph.edge_tensor.tensor import values
from sar.graph.readout import max_over_workers

EXACT = 1e-10
"""The largest norm of ``L v - value v``, where a script does not say: scipy's eigenvectors are as exact as can be."""

_BEFORE = "apply it before the graph is partitioned, and keep its result in the data"
_EDGES = f"it needs the edges of the whole graph, which are on several workers: {_BEFORE}"
_NODES = f"it needs the nodes of the whole graph, which are on several workers: {_BEFORE}"
_OTHERS = f"it makes other nodes: {_BEFORE}"
_DRAWS = f"it draws from all nodes or edges of the whole graph: {_BEFORE}"

REFUSED: Dict[str, str] = {
    **dict.fromkeys(["ToSparseTensor", "ToUndirected", "RemoveIsolatedNodes", "ToDense"], _EDGES),
    **dict.fromkeys(["RemoveDuplicatedEdges", "TwoHop", "LineGraph", "GDC", "SIGN"], _EDGES),
    **dict.fromkeys(["AddMetaPaths", "AddRandomMetaPaths", "RootedEgoNets", "RootedRWSubgraph"], _EDGES),
    **dict.fromkeys(["LargestConnectedComponents", "AddGPSE"], _EDGES),
    **dict.fromkeys(["FeaturePropagation", "HalfHop", "NodePropertySplit"], _EDGES),
    **dict.fromkeys(["SVDFeatureReduction", "KNNGraph", "RadiusGraph", "Center", "NormalizeRotation"], _NODES),
    **dict.fromkeys(["NormalizeScale", "Delaunay", "GenerateMeshNormals", "FaceToEdge"], _NODES),
    **dict.fromkeys(["VirtualNode", "Pad", "SamplePoints", "FixedPoints", "GridSampling", "ToSLIC"], _OTHERS),
    **dict.fromkeys(["RandomNodeSplit", "RandomLinkSplit"], _DRAWS),
}
"""Why each is refused, and the way round."""

OWN_ROWS = frozenset(
    ["Compose", "ComposeFilters", "ToDevice", "Constant", "RemoveTrainingClasses", "IndexToMask", "MaskToIndex"]
    + ["OneHotDegree", "AddSelfLoops", "AddRemainingSelfLoops", "RemoveSelfLoops", "GCNNorm", "LocalCartesian"]
    + ["PointPairFeatures", "RandomJitter", "LinearTransformation", "LocalDegreeProfile"]
)
"""Those that treat each node and each edge by itself, by functions that run on split graphs."""


def _normalize_features(transform: Any, data: Any) -> Any:
    """The smallest value is that of all nodes. Collective."""
    for store in data.stores:
        for key, value in store.items(*transform.attrs):
            value = values(value)
            value = value + _largest(-value)
            store[key] = value.div_(value.sum(dim=-1, keepdim=True).clamp_(min=1.0))
    return data


def _largest(value: Tensor) -> Tensor:
    """The largest number of all workers, a scalar. Collective."""
    return max_over_workers(value.detach().reshape(-1).double()).squeeze(0).to(value.dtype)


def _by_largest(picked: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """A transform that divides values of edges by the largest, which is that of all workers. Collective.

    :param picked: of the values without ``norm``, those whose largest it is
    """

    def forward(transform: Any, data: Any) -> Any:
        if transform.norm and transform.max is None:
            plain, transform = copy.copy(transform), copy.copy(transform)
            plain.norm = plain.cat = False
            transform.max = float(_largest(picked(values(plain.forward(copy.copy(data)).edge_attr))))
        return transform.forward(data)

    return forward


def _same_draw(transform: Any, data: Any) -> Any:
    """One draw for all nodes, so the same on every worker. Collective."""
    seed, before = agreed_seed(), random.getstate()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        try:
            return transform.forward(data)
        finally:
            random.setstate(before)


def _random_walk_pe(transform: Any, data: Any) -> Any:
    """Powers of the adjacency matrix of all workers. Collective."""
    pe = sar_transforms.random_walk_pe(data.edge_index, transform.walk_length, data.edge_weight)
    return add_node_attr(data, pe, attr_name=transform.attr_name)


def _eigensolver(transform: Any) -> Dict[str, Any]:
    """How exact eigenvectors are to be, as scipy's ``eigsh`` calls it.

    :raises ValueError: another of its arguments
    """
    given = dict(transform.kwargs)
    tolerance = float(given.pop("tol", 0)) or EXACT
    if given:
        raise ValueError(
            f"{type(transform).__name__}({', '.join(given)}=...): of scipy's arguments, tol is taken on a graph split "
            "over workers"
        )
    return {"tolerance": tolerance}


def _laplacian_pe(transform: Any, data: Any) -> Any:
    """The Laplacian matrix of all workers. Collective."""
    how = _eigensolver(transform)
    pe = sar_transforms.laplacian_pe(data.edge_index, transform.k, data.edge_weight, random_signs=True, **how)
    weight = data.edge_weight
    pe = pe.to(torch.get_default_dtype() if weight is None else weight.dtype)
    return add_node_attr(data, pe, attr_name=transform.attr_name)


def _lambda_max(transform: Any, data: Any) -> Any:
    """The Laplacian matrix of all workers. Collective."""
    weight = data.edge_attr
    weight = weight if weight is not None and weight.numel() == data.num_edges else None
    data.lambda_max = sar_transforms.laplacian_lambda_max(data.edge_index, weight, transform.normalization)
    return data


SPECIAL: Dict[str, Callable[..., Any]] = {
    "AddRandomWalkPE": _random_walk_pe,
    "AddLaplacianEigenvectorPE": _laplacian_pe,
    "LaplacianLambdaMax": _lambda_max,
    "NormalizeFeatures": _normalize_features,
    "Cartesian": _by_largest(Tensor.abs),
    **dict.fromkeys(["Distance", "TargetIndegree"], _by_largest(lambda x: x)),
    **dict.fromkeys(["Polar", "Spherical"], _by_largest(lambda x: x[:, :1])),
    **dict.fromkeys(["RandomFlip", "RandomScale", "RandomRotate", "RandomShear"], _same_draw),
}
"""What runs in place of ``forward``."""


def transformed(original: Any, transform: Any, data: Any) -> Any:
    check_readers()
    name = _name(transform)
    if name is None or name in OWN_ROWS:
        return original(transform, data)
    if name in SPECIAL:
        return SPECIAL[name](transform, copy.copy(data))
    raise WholeGraphError(f"torch_geometric.transforms.{name}", REFUSED.get(name, _EDGES))


def _name(transform: Any) -> Optional[str]:
    """The class of torch_geometric that a transform is of; None for the user's own."""
    for kind in type(transform).__mro__:
        if kind.__module__.startswith("torch_geometric."):
            return None if kind is BaseTransform else kind.__name__
    return None


def _is_split(data: Any) -> bool:
    stores = getattr(data, "edge_stores", ())
    return any(isinstance(value, SplitNumbers) for store in stores for value in store.values())


def concerned(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> bool:
    """Whether a transform is called with data of a split graph."""
    return any(_is_split(value) for value in (*args, *kwargs.values()))
