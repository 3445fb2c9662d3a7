"""Transforms of torch_geometric: the same for PyG on the whole graph and for the workers."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import torch

from sar.graph.edge_tensor.tensor import values
from tests.parity.cases_pyg import graph_index
from tests.support.worker import numpy, refusal

LINEAR = [[1.0, 2.0, 0.0], [0.0, 1.0, -1.0], [0.5, 0.0, 1.0]]

# transform: how it is made, of torch_geometric.transforms; what it changes of the data is compared
TRIED: dict[str, Callable[[Any], Any]] = {
    "Compose": lambda T: T.Compose([T.Constant(), T.NormalizeFeatures()]),
    "ToDevice": lambda T: T.ToDevice("cpu"),
    "Constant": lambda T: T.Constant(2.0),
    "NormalizeFeatures": lambda T: T.NormalizeFeatures(["x", "edge_attr"]),
    "RemoveTrainingClasses": lambda T: T.RemoveTrainingClasses([0, 2]),
    "MaskToIndex": lambda T: T.Compose([T.MaskToIndex(), T.IndexToMask(replace=True)]),
    "IndexToMask": lambda T: T.Compose([T.MaskToIndex(replace=True), T.IndexToMask(replace=True)]),
    "OneHotDegree": lambda T: T.Compose([T.OneHotDegree(60), T.OneHotDegree(60, in_degree=True)]),
    "TargetIndegree": lambda T: T.TargetIndegree(),
    "AddSelfLoops": lambda T: T.Compose([T.AddSelfLoops(attr=None), T.OneHotDegree(60)]),
    "AddRemainingSelfLoops": lambda T: T.Compose([T.AddRemainingSelfLoops(attr=None), T.OneHotDegree(60)]),
    "RemoveSelfLoops": lambda T: T.Compose([T.RemoveSelfLoops(attr=None), T.OneHotDegree(60)]),
    "GCNNorm": lambda T: T.GCNNorm(add_self_loops=False),
    "Cartesian": lambda T: T.Cartesian(),
    "Distance": lambda T: T.Compose([T.Distance(), T.Distance(norm=False), T.Distance(max_value=3.0)]),
    "Polar": lambda T: T.Polar(),
    "Spherical": lambda T: T.Spherical(cat=False),
    "LocalCartesian": lambda T: T.LocalCartesian(),
    "PointPairFeatures": lambda T: T.PointPairFeatures(),
    "LocalDegreeProfile": lambda T: T.LocalDegreeProfile(),
    "LinearTransformation": lambda T: T.LinearTransformation(torch.tensor(LINEAR, dtype=torch.double)),
}
NEW_EDGES = ("AddSelfLoops", "AddRemainingSelfLoops", "RemoveSelfLoops")

# transforms that draw one linear map for all nodes
DRAWN: dict[str, Callable[[Any], Any]] = {
    "RandomFlip": lambda T: T.Compose([T.RandomFlip(axis) for axis in (0, 1, 2)]),
    "RandomScale": lambda T: T.RandomScale((0.5, 2.0)),
    "RandomRotate": lambda T: T.RandomRotate(180),
    "RandomShear": lambda T: T.RandomShear(0.5),
}

NODES = ("x", "pos", "norm", "y", "train_mask")
EDGES = ("edge_attr", "edge_weight")


def columns(nodes: int, edges: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(31)
    norm = rng.standard_normal((nodes, 3))
    return {
        "x": rng.standard_normal((nodes, 4)),
        "pos": rng.standard_normal((nodes, 3)),
        "norm": norm / np.linalg.norm(norm, axis=1, keepdims=True),
        "y": rng.integers(0, 4, nodes),
        "train_mask": rng.random(nodes) < 0.5,
        "edge_attr": rng.standard_normal((edges, 2)),
    }


def transformed(transform: Any, name: str, given: dict[str, np.ndarray], index: Any) -> dict[str, Any]:
    """What a transform makes of the columns."""
    from torch_geometric.data import Data

    data = Data(edge_index=index, **{key: torch.from_numpy(value.copy()) for key, value in given.items()})
    if name == "Polar":
        data.pos = data.pos[:, :2]
    if name in NEW_EDGES:
        del data.edge_attr
    made = transform(data)
    found = {key: values(made[key]) for key in (*NODES, *EDGES) if key in made}
    assert torch.equal(data.pos, torch.from_numpy(given["pos"])[:, : data.pos.shape[1]]), "the data given were changed"
    return numpy({**found, "num_edges": made.edge_index.shape[1]})


def worker(part: dict[str, Any], given: dict[str, np.ndarray]) -> dict[str, Any]:
    """All of them on a worker; and what its own transforms, and what random ones give."""
    import torch_geometric.transforms as T
    from torch_geometric.data import Data

    index = graph_index(part)
    found = {name: transformed(make(T), name, given, index) for name, make in TRIED.items()}
    torch.manual_seed(int(index.edges.rows("v")))  # workers draw different numbers
    found.update({name: transformed(make(T), name, given, index) for name, make in DRAWN.items()})
    found["RandomJitter"] = transformed(T.RandomJitter(0.1), "RandomJitter", given, index)

    class Own(T.BaseTransform):  # type: ignore[name-defined, misc]
        def forward(self, data: Any) -> Any:
            data.x = data.x + 1
            return data

    found["own"] = transformed(Own(), "own", given, index)
    assert T.ComposeFilters([lambda data: data.x is not None])(Data(x=torch.ones(2, 1), edge_index=index))
    return found


def refused(part: dict[str, Any], names: list[str]) -> dict[str, str]:
    """What each says. None but AddGPSE comes so far as to look at how it was made."""
    import torch_geometric.transforms as T
    from torch_geometric.data import Data, HeteroData

    index = graph_index(part)
    data = Data(x=torch.ones(index.edges.rows("v"), 2), edge_index=index)
    said = {}
    for name in names:
        kind = getattr(T, name)
        typed = HeteroData()
        typed["_N", "_E", "_N"].edge_index = index
        for one in (data, typed):
            transform = kind.__new__(kind)
            transform.use_vn = False
            said[name] = refusal(transform, one)
    return said
