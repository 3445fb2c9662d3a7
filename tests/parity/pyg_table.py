"""How layers of ``torch_geometric.nn.conv`` run on split graphs: docs/layers-pyg.md, made from the specifications that
are tested.

``make docs-layers`` writes the page; a test holds it against the specifications.
"""

from __future__ import annotations

from tests.parity import pyg_aggregations
from tests.parity.pyg_specs import SPECS
from tests.support import ROOT

PAGE = ROOT / "docs" / "layers-pyg.md"


def by_layer() -> dict[str, list[str]]:
    """For each layer the cases of pyg_specs.py that run it: whose first module of torch_geometric.nn.conv it is."""
    from torch_geometric.nn import conv

    found: dict[str, list[str]] = {}
    for name, spec in SPECS.items():
        if not name.endswith("_model") and name != "own_message":
            kinds = (type(module).__name__ for module in spec.make().modules())
            found.setdefault(next(kind for kind in kinds if kind in conv.__all__), []).append(name)
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


# layer: the models of cases_pyg_hetero.py that run it, and a note
HETERO: dict[str, tuple[str, str]] = {
    "HeteroConv": ("hetero_conv hetero_conv_max hetero_gatv2_columns hetero_nn_columns", "as the layers in it run"),
    "HGTConv": ("hgt hgt_wide", "fused: one softmax over all relations into a node"),
    "HANConv": ("han han_attention", "fused; relations are weighed by a mean over the nodes of all workers"),
}

NOTES: dict[str, str] = {
    "ARMAConv": "node features are `[stacks, nodes, channels]`",
    "ChebConv": "*values*: one weight for each edge",
    "ClusterGCNConv": "*values*: one weight for each edge",
    "DirGNNConv": "*values*: of the reversed edges",
    "GENConv": "with batch norm: `sar.convert_batchnorm(model)`",
    "HypergraphConv": "hyperedges are numbered as nodes, and owned with them",
    "RGCNConv": "makes a graph for each relation in each forward: `FastRGCNConv` does not",
    "FiLMConv": "with several relations as RGCNConv",
    "SuperGATConv": "its loss in training, with pairs of all nodes, is the worker's share",
    "GPSConv": "`performer`: by sums over workers; `multihead`: the rows of all nodes are gathered by each worker",
    "WLConv": "colours are numbered in the order of partitions; each worker has the table of all",
    "PNAConv": "`deg` is the histogram of the whole graph",
}

# aggregation: a note
PADDED = "rows padded to the node with the most messages, of all workers"
AGGREGATION_NOTES: dict[str, str] = {
    **dict.fromkeys(["LSTMAggregation", "GRUAggregation", "SortAggregation", "LCMAggregation"], PADDED),
    **dict.fromkeys(["GraphMultisetTransformer", "SetTransformerAggregation", "PatchTransformerAggregation"], PADDED),
    "MLPAggregation": "with batch norm: `sar.convert_batchnorm(model)`",
    "MultiAggregation": "as those in it",
    "DegreeScalerAggregation": "as those in it; `deg` is the histogram of the whole graph",
}

# name: why, and the way round
REFUSED: dict[str, tuple[str, str]] = {
    "MeshCNNConv": ("takes messages by their position among all edges", "the whole graph on one worker"),
    "PANConv": ("multiplies sparse matrices of the whole graph", "MixHopConv, TAGConv"),
}

NEIGHBOURS = "needs pyg-lib, of which PyPI has no wheel; refused, since it finds neighbours among all points"
# name: why
UNTRIED: dict[str, str] = {
    "SplineConv": "needs pyg-lib, of which PyPI has no wheel",
    "GravNetConv": NEIGHBOURS,
    "DynamicEdgeConv": NEIGHBOURS,
    "XConv": NEIGHBOURS,
    "FusedGATConv": "needs dgNN and a GPU",
    "CuGraphSAGEConv": "needs cuGraph and a GPU",
    "CuGraphGATConv": "needs cuGraph and a GPU",
    "CuGraphRGCNConv": "needs cuGraph and a GPU",
}


def page() -> str:
    """docs/layers-pyg.md."""
    lines = [
        "# Layers of torch_geometric.nn on split graphs",
        "",
        "Written by `make docs-layers`. Layers run as they are. Results and the gradients of all inputs and parameters",
        "equal PyG's on the whole graph, with 1, 2 and 4 workers, one of which owns no node",
        "(tests/parity/test_pyg_layers.py): to 1e-10 in double precision, to 1e-5 of the largest entry in single.",
        "",
        "*fused*: messages are computed in the engine and never stored. *blocks*: they are computed in Python on",
        "blocks of edges, in forward and again in backward. *values*: a row for each edge is computed and kept.",
        "Of several modes, those that were tested are named.",
        "",
        "| layer | runs | notes |",
        "| --- | --- | --- |",
    ]
    for layer, names in by_layer().items():
        how = dict.fromkeys(SPECS[name].how for name in names)
        lines.append(f"| {layer} | {', '.join(how)} | {NOTES.get(layer, '')} |")
    lines += [
        f"| WLConv | values | {NOTES['WLConv']} |",
        "",
        "Attention of each node to all, as in `SGFormer`: [graph transformers](graph-transformers.md).",
        "",
        "## Heterographs",
        "",
        "The same figures, in tests/parity/test_pyg_hetero.py, which also has models made by `to_hetero`, and",
        "`HeteroDictLinear` and `HeteroJumpingKnowledge`. Widths may be left to the first call (`-1`).",
        "",
        "| layer | notes |",
        "| --- | --- |",
        *(f"| {layer} | {note} |" for layer, (_, note) in HETERO.items()),
        "",
        "## Aggregations",
        "",
        "All of `torch_geometric.nn.aggr`, as the aggregation of a layer: the same figures, over shared memory and TCP",
        "(tests/parity/test_pyg_aggregations.py). What is *values* below looks at all messages of a node. Where PyG",
        "wants edges in the order of their destinations, any order does here: messages of a node come in the order of",
        "edges.",
        "",
        "| aggregation | runs | notes |",
        "| --- | --- | --- |",
        *(
            f"| {name} | {', '.join({spec.how: None for spec in cases.values()})} | {AGGREGATION_NOTES.get(name, '')} |"
            for name, cases in pyg_aggregations.AGGREGATIONS.items()
        ),
        *(
            f"| {name} | refused: {why} | {instead} instead |"
            for name, (why, instead) in pyg_aggregations.REFUSED.items()
        ),
        "",
        "As pools over nodes see [Porting a PyG script](pyg.md#normalizations-and-pools).",
        "",
        "## Not run",
        "",
        "These raise an error on every worker.",
        "",
        "| layer | why | instead |",
        "| --- | --- | --- |",
        *(f"| {layer} | {why} | {instead} |" for layer, (why, instead) in REFUSED.items()),
        "",
        "## Not tested",
        "",
        "| layer | why |",
        "| --- | --- |",
        *(f"| {layer} | {why} |" for layer, why in UNTRIED.items()),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
