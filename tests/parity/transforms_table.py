"""Transforms of PyG and graph functions of DGL on split graphs: docs/transforms.md, made from what runs and is refused.

``make docs-layers`` writes the page; a test holds it against the tables, and these against the libraries.
"""

from __future__ import annotations

from tests.support import ROOT

PAGE = ROOT / "docs" / "transforms.md"

OWN, ALL = "own rows", "all workers"

# transform: where what it computes comes from, and a note
PYG_RUN: dict[str, tuple[str, str]] = {
    "Compose": (OWN, "as those in it"),
    "ComposeFilters": (OWN, "as those in it"),
    "ToDevice": (OWN, ""),
    "Constant": (OWN, ""),
    "NormalizeFeatures": (ALL, "the smallest value"),
    "RemoveTrainingClasses": (OWN, ""),
    "IndexToMask": (OWN, "indices are numbers of own rows"),
    "MaskToIndex": (OWN, "indices are numbers of own rows"),
    "OneHotDegree": (ALL, "out-degrees"),
    "TargetIndegree": (ALL, "the largest degree, where `max_value` is not given"),
    "AddSelfLoops": (OWN, ""),
    "AddRemainingSelfLoops": (OWN, ""),
    "RemoveSelfLoops": (OWN, ""),
    "GCNNorm": (ALL, "degrees of both ends"),
    "Distance": (ALL, "positions of both ends; the largest distance, where `max_value` is not given"),
    "Cartesian": (ALL, "positions of both ends; the largest coordinate, where `max_value` is not given"),
    "LocalCartesian": (ALL, "positions of both ends"),
    "Polar": (ALL, "positions of both ends; the largest distance, where `max_value` is not given"),
    "Spherical": (ALL, "positions of both ends; the largest distance, where `max_value` is not given"),
    "PointPairFeatures": (ALL, "positions and normals of both ends"),
    "RandomJitter": (OWN, "each worker draws for its own nodes"),
    "LinearTransformation": (OWN, ""),
    "RandomFlip": (ALL, "one draw, the same on all workers"),
    "RandomScale": (ALL, "one draw, the same on all workers"),
    "RandomRotate": (ALL, "one draw, the same on all workers"),
    "RandomShear": (ALL, "one draw, the same on all workers"),
    "LocalDegreeProfile": (ALL, "degrees of neighbours"),
    "AddRandomWalkPE": (ALL, "powers of the adjacency matrix: see [costs](whole-graph.md#what-it-costs)"),
    "AddLaplacianEigenvectorPE": (ALL, "eigenvectors, of undirected graphs; of scipy's arguments `tol`"),
    "LaplacianLambdaMax": (ALL, "an eigenvalue, of undirected graphs"),
}

_OPS = ("readout", "sum", "mean", "max", "softmax", "broadcast")
_READOUT = [f"{op}_{of}" for op in _OPS for of in ("nodes", "edges")]

DGL_RUN: dict[str, tuple[str, str]] = {
    "add_self_loop": (OWN, ""),
    "remove_self_loop": (OWN, ""),
    "remove_edges": (OWN, "positions of own edges"),
    "reverse": (ALL, "one relation at a time"),
    "norm_by_dst": (OWN, ""),
    **dict.fromkeys(_READOUT, (ALL, "one graph")),
}

DGL_OPERATORS = ["copy_u", "copy_v", "u_add_v", "u_sub_v", "u_mul_v", "u_div_v", "u_dot_v"]
"""Operators of :mod:`dgl.ops`, which are no transforms."""

DGL_NO_GRAPH = [
    "graph",
    "heterograph",
    "create_block",
    "hetero_from_shared_memory",
    "from_scipy",
    "bipartite_from_scipy",
    "from_networkx",
    "bipartite_from_networkx",
    "from_cugraph",
    "rand_graph",
    "rand_bipartite",
    "knn_graph",
    "segmented_knn_graph",
    "radius_graph",
    "load_graphs",
    "seed",
    "enable_verbose_logging",
    "load_backend",
    "extract_ext_funcs",
    "get_global_func",
    "list_global_func_names",
    "register_func",
    "apply_each",
    "is_libxsmm_enabled",
    "use_libxsmm",
    "set_dst_lazy_features",
    "set_edge_lazy_features",
    "set_node_lazy_features",
    "set_src_lazy_features",
    "pairwise_squared_distance",
]
"""They make graphs of DGL, or take none."""

DGL_TRANSFORMS_RUN: dict[str, tuple[str, str]] = {
    "RowFeatNormalizer": (OWN, "`subtract_min=True` is refused: the smallest value is one of all rows"),
    "FeatMask": (ALL, "the same columns on all workers"),
    "AddSelfLoop": (OWN, ""),
    "RemoveSelfLoop": (OWN, ""),
    "Compose": (OWN, "as those in it"),
    "GCNNorm": (ALL, "degrees of both ends"),
    "DropEdge": (ALL, "the same edges for any number of workers"),
    "SIGNDiffusion": (ALL, "rows of neighbours"),
}


def pyg_refused() -> dict[str, str]:
    from sar.integrations.pyg.transforms import REFUSED

    return REFUSED


def dgl_refused() -> dict[str, str]:
    from sar.graph.refused import FUNCTIONS

    return FUNCTIONS


def dgl_refused_transforms() -> dict[str, str]:
    """Those of ``dgl.transforms``: the other classes are layers of dgl.nn."""
    from sar.graph.refused import BEFORE, MISTAKEN

    return {name: why for name, why in MISTAKEN.items() if why == BEFORE or "sar.transforms" in why}


def _rows(table: dict[str, tuple[str, str]]) -> list[str]:
    return [f"| {name} | {where} | {note} |" for name, (where, note) in table.items()]


def _refused(table: dict[str, str]) -> list[str]:
    by_text: dict[str, list[str]] = {}
    for name, why in table.items():
        by_text.setdefault(why, []).append(name)
    return [f"| {', '.join(names)} | {why} |" for why, names in by_text.items()]


def page() -> str:
    """docs/transforms.md."""
    lines = [
        "# Transforms on split graphs",
        "",
        "Written by `make docs-layers`, from what the tests try (tests/parity/test_transforms.py): every class of",
        "`torch_geometric.transforms` and `dgl.transforms`, and every graph function of `dgl`. Those that run give",
        "what they give on the whole graph. The others raise `sar.WholeGraphError` on every worker, which names them.",
        "",
        "*own rows*: each node and each edge is treated by itself. *all workers*: the transform reads other rows too,",
        "or reduces over all of them, so all workers call it. [Whole-graph utilities](whole-graph.md) has more on",
        "those that look at the whole graph.",
        "",
        "## torch_geometric.transforms",
        "",
        "A transform of your own, a subclass of `BaseTransform`, runs as it is, on the worker's part.",
        "",
        "| transform | computed from | notes |",
        "| --- | --- | --- |",
        *_rows(PYG_RUN),
        "",
        "| refused | why, and what to do |",
        "| --- | --- |",
        *_refused(pyg_refused()),
        "",
        "## dgl.transforms",
        "",
        "| transform | computed from | notes |",
        "| --- | --- | --- |",
        *_rows(DGL_TRANSFORMS_RUN),
        "",
        "| refused | why, and what to do |",
        "| --- | --- |",
        *_refused(dgl_refused_transforms()),
        "",
        "## Functions of dgl",
        "",
        "| function | computed from | notes |",
        "| --- | --- | --- |",
        *_rows(DGL_RUN),
        "",
        "| refused | why, and what to do |",
        "| --- | --- |",
        *_refused(dgl_refused()),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
