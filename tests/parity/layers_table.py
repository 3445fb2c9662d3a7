"""Which layers of ``dgl.nn`` run on split graphs: docs/layers.md, made from the specifications that are tested.

``make docs-layers`` writes the page; a test holds it against the specifications.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

from tests.parity.cases_layers import NEWER, SPECS
from tests.support import ROOT

PAGE = ROOT / "docs" / "layers.md"


def by_layer() -> dict[str, str]:
    """For each layer the first case of cases_layers.py that runs it, also as a part of another."""
    import dgl.nn.pytorch as home

    found: dict[str, str] = {}
    for name, spec in SPECS.items():
        for kind in dict.fromkeys(type(module) for module in spec.make(home).modules()):
            if getattr(home, kind.__name__, None) is kind:
                found.setdefault(kind.__name__, name)
    return {**found, "GatedGCNConv": next(iter(NEWER))}  # which this DGL may not have


# said of layers that run
NOTES: dict[str, str] = {
    "SAGEConv": "`mean` and `gcn` too (tests/parity/test_layers.py)",
    "EdgeConv": "with `batch_norm=True`: `sar.convert_batchnorm(model)`",
    "PNAConv": "`sar.convert_batchnorm(model)`, as it normalizes inside",
    "DGNConv": "`sar.convert_batchnorm(model)`, as it normalizes inside",
    "GatedGraphConv": "with edge types one aggregation for each type that occurs on any worker",
    "GatedGCNConv": "of DGL 2; with batch norm: `sar.convert_batchnorm(model)`",
    "RelGraphConv": "`presorted=True` is looked at: where types are not in order, the way for any order is taken",
    "HGTConv": "`presorted=True` as in RelGraphConv",
    "EGATConv": "the new edge features are computed when they are read, which is collective",
    "TWIRLSConv": "makes a new graph with self loops in each forward, which is collective: better keep that graph",
    "ChebConv": "give `lambda_max`: `dgl.laplacian_lambda_max` needs the whole graph",
}
POOLING = "over the nodes of all workers; all get the result, so a loss on it belongs on one worker or is divided by P"

# name: why, and the way round
REFUSED: dict[str, tuple[str, str]] = {
    "SortPooling": ("seeks the k largest nodes of the graph", "another pooling, or gather the features on one worker"),
    "SetTransformerEncoder": ("relates each node to all", "gather the features on one worker; attention over edges"),
    "SetTransformerDecoder": ("relates each node to all", "gather the features on one worker; attention over edges"),
    "CuGraphGATConv": ("needs cuGraph and a GPU, as with DGL", "GATConv"),
    "CuGraphRelGraphConv": ("needs cuGraph and a GPU, as with DGL", "RelGraphConv"),
    "CuGraphSAGEConv": ("needs cuGraph and a GPU, as with DGL", "SAGEConv"),
    "GNNExplainer": ("looks at subgraphs around a node", "explain the trained model on a DGL graph"),
    "HeteroGNNExplainer": ("looks at subgraphs around a node", "explain the trained model on a DGL graph"),
    "PGExplainer": ("looks at subgraphs around a node", "explain the trained model on a DGL graph"),
    "HeteroPGExplainer": ("looks at subgraphs around a node", "explain the trained model on a DGL graph"),
    "SubgraphX": ("looks at subgraphs around a node", "explain the trained model on a DGL graph"),
    "HeteroSubgraphX": ("looks at subgraphs around a node", "explain the trained model on a DGL graph"),
    "DenseGraphConv": ("takes a dense adjacency matrix, no graph", "GraphConv"),
    "DenseSAGEConv": ("takes a dense adjacency matrix, no graph", "SAGEConv"),
    "DenseChebConv": ("takes a dense adjacency matrix, no graph", "ChebConv"),
    "KNNGraph": ("makes a DGL graph of points", "partition that graph"),
    "SegmentedKNNGraph": ("makes a DGL graph of points", "partition that graph"),
    "RadiusGraph": ("makes a DGL graph of points", "partition that graph"),
}

# they see rows or pairs of rows, never a graph
NO_GRAPH = ["EdgePredictor", "TransE", "TransR", "HeteroLinear", "HeteroEmbedding", "JumpingKnowledge", "WeightBasis"]
NO_GRAPH += ["DeepWalk", "MetaPath2Vec", "BiasedMHA", "DegreeEncoder", "EGTLayer", "GraphormerLayer", "LapPosEncoder"]
NO_GRAPH += ["PathEncoder", "SpatialEncoder", "SpatialEncoder3d"]

# tested in files of their own
ELSEWHERE = {"HeteroGraphConv": "tests/parity/test_hetero.py"}


def measure(way: str) -> dict[str, float]:
    """MiB that forward and backward of each case add."""
    command = [sys.executable, "-m", "tests.parity.layers_memory", way]
    done = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
    return read(done.stdout)


def read(lines: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for line in lines.splitlines():
        found.update(json.loads(line))
    return found


def page(ours: dict[str, float], dgls: dict[str, float]) -> str:
    """docs/layers.md."""
    lines = [
        "# Layers of dgl.nn on split graphs",
        "",
        "Written by `make docs-layers`. Layers run as they are, imported from `dgl.nn`. Outputs and the gradients of",
        "all inputs and parameters equal DGL's on the whole graph, with 1, 2 and 4 workers, one of which owns no node",
        "(tests/parity/test_layers.py): to 1e-11 in double precision, to 1e-5 of the largest entry in single.",
        "",
        "Batch norm inside a layer sees the rows of its worker; `sar.convert_batchnorm(model)` makes it global.",
        "",
        "Memory is what forward and backward add to the resident size, in MiB: one worker, then DGL, on a random",
        "graph of 4,000 nodes and 50,000 edges, features of 24, single precision. Of several modes, the first.",
        "",
        "| layer | runs | MiB | DGL | notes |",
        "| --- | --- | --- | --- | --- |",
    ]
    for layer, first in by_layer().items():
        shown = [f"{way[first]:.1f}" if first in way else "" for way in (ours, dgls)]
        note = NOTES.get(layer, POOLING if layer.endswith("Pooling") or layer in ("Set2Set", "WeightAndSum") else "")
        lines.append(f"| {layer} | yes | {shown[0]} | {shown[1]} | {note} |")
    lines += [f"| {layer} | yes | | | {where} |" for layer, where in ELSEWHERE.items()]
    names = ", ".join(NO_GRAPH)
    lines += [
        "",
        "## Not run",
        "",
        "| layer | why | instead |",
        "| --- | --- | --- |",
        *(f"| {layer} | {why} | {instead} |" for layer, (why, instead) in REFUSED.items()),
        "",
        "## No graph needed",
        "",
        *textwrap.wrap("These take rows and know no graph, so they run on each worker's rows: " + names + ".", 120),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(measure("sar"), measure("dgl")))
