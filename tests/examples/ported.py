"""What a port adds to a public script: the same source runs alone, on the whole graph, and on workers.

A script is a function of a :class:`Run`, and gives the losses of its epochs and what it found at their end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import sar
from tests.support import ROOT

FEATURES, EDGE = 24, 3
"""Columns of nodes and of edges."""
SPLITS = ("train", "val", "test")
EPOCHS, HIDDEN, CLASSES = 4, 16, 7


Result = tuple[list[float], list[float]]
"""Losses by epoch, and scores."""


def pyg() -> Any:
    """The layers of PyG, which is imported when a script runs."""
    import torch_geometric.nn

    return torch_geometric.nn


class Found(NamedTuple):
    """:ivar losses: of each epoch, over the nodes, edges or pairs of all workers
    :ivar scores: metrics of the whole graph
    :ivar drawn: pairs ``[2, n]`` and permutations ``[own nodes]`` that were drawn, by original ids, in turn
    :ivar ids: original ids of own nodes
    """

    losses: list[float]
    scores: list[float]
    drawn: list[np.ndarray]
    ids: np.ndarray


class Run:
    """A script's graph, and each thing that a port adds to a script.

    :ivar data: of PyG, or a graph of DGL or SAR
    :ivar given: alone: what the workers drew
    """

    def __init__(self, data: Any, given: list[np.ndarray] | None = None) -> None:
        self.data, self.split = data, given is None
        self.drawn: list[np.ndarray] = [] if given is None else list(given)

    def prepare(self, model: Any) -> Any:
        if not self.split:
            return model
        sar.prepare(model, self.data)
        sar.sync_params(model)
        return model

    def total(self, what: Any) -> float:
        """Of a number or a tensor of own nodes, a sum over all workers."""
        if self.split:
            return float(self.data.total(what))
        return float(what.detach().sum()) if isinstance(what, Tensor) else float(what)

    def step(self, loss: Tensor, optimizer: Any, *models: Any) -> float:
        optimizer.zero_grad()
        loss.backward()
        if self.split:
            for model in models:
                sar.gather_grads(model)
        optimizer.step()
        return self.total(loss)

    def negative(self, edges: Any, count: int) -> Any:
        """Pairs that are no edges. PyG's own ``negative_sampling`` is given what the workers drew."""
        if not self.split:
            return torch.from_numpy(self.drawn.pop(0))
        pairs = sar.negative_sampling(edges, num_neg_samples=count)
        self.drawn.append(by_id(pairs, self.ids()))
        return pairs

    def permutation(self, rows: int) -> Tensor:
        if not self.split:
            return torch.from_numpy(self.drawn.pop(0))
        permutation = torch.randperm(rows)
        self.drawn.append(sar.fetch(self.ids(), permutation).numpy())
        return permutation

    def ids(self) -> Tensor:
        """Original ids of own nodes."""
        if hasattr(self.data, "ndata"):
            ids: Tensor = self.data.nodes[self.data.ntypes[0]].data["orig_id"]
        else:
            ids = self.data["node"].n_id if hasattr(self.data, "node_types") else self.data.n_id
        return ids

    def areas(self, positive: Any, negative: Any) -> tuple[float, float]:
        """Area under the curve and average precision of scores."""
        if self.split:
            found: Any = sar.link_metrics(positive, negative, hits=())
            return found["auc"], found["ap"]
        from torchmetrics.functional.classification import binary_auroc, binary_average_precision

        scores = torch.cat([positive, negative]).sigmoid()
        labels = torch.cat([torch.ones(len(positive)), torch.zeros(len(negative))]).long()
        return float(binary_auroc(scores, labels)), float(binary_average_precision(scores, labels))

    def accuracy(self, out: Tensor, y: Tensor, mask: Tensor) -> float:
        return self.total((out.argmax(-1) == y)[mask].double()) / self.total(mask.double())


def by_id(pairs: Any, ids: Tensor) -> np.ndarray:
    """Both ends of pairs of this worker by original ids.

    :param pairs: an edge index or a graph
    """
    graph = getattr(pairs, "graph", pairs)
    columns, rows = pairs.numbers() if graph is not pairs else graph.edges()
    return np.stack([sar.fetch(ids, graph.column_nodes()[columns]).numpy(), ids[rows].numpy()])


# ---- the graph -----------------------------------------------------------------------


def cora() -> Any:
    """Cora with its fullest features, and random columns of edges, in double precision."""
    from torch_geometric.data import Data

    with np.load(ROOT / "examples" / "data" / "cora.npz") as file:
        x = file["x"][:, np.argsort(-file["x"].sum(0, dtype=np.int64), kind="stable")[:FEATURES]].astype(np.float64)
        masks = {f"{name}_mask": torch.from_numpy(file[f"{name}_mask"]) for name in SPLITS}
        edges, y = torch.from_numpy(file["edge_index"]).long(), torch.from_numpy(file["y"]).long()
    attributes = torch.from_numpy(np.random.default_rng(1).random((edges.shape[1], EDGE)))
    rows = torch.from_numpy(x / np.maximum(x.sum(1, keepdims=True), 1))
    return Data(x=rows, y=y, edge_index=edges, edge_attr=attributes, n_id=torch.arange(len(y)), **masks)


def links(whole: Any) -> Any:
    """The edges split for link prediction, as relations of one node type."""
    from torch_geometric import seed_everything
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.transforms import RandomLinkSplit

    seed_everything(0)
    split = RandomLinkSplit(
        num_val=0.05, num_test=0.1, is_undirected=True, split_labels=True, add_negative_train_samples=False
    )
    train, val, test = split(Data(x=whole.x, edge_index=whole.edge_index))
    data = HeteroData()
    data["node"].x, data["node"].y = whole.x, whole.y
    data["node"].n_id = whole.n_id
    data["node", "train", "node"].edge_index = train.edge_index
    data["node", "train_val", "node"].edge_index = test.edge_index
    for name, one in (("train", train), ("val", val), ("test", test)):
        data["node", f"{name}_pos", "node"].edge_index = one.pos_edge_label_index
        if name != "train":
            data["node", f"{name}_neg", "node"].edge_index = one.neg_edge_label_index
    return data


def write(folder: Path, parts: int) -> None:
    """Partitions of both."""
    whole = cora()
    pairs = links(whole)
    del whole.n_id, pairs["node"].n_id
    sar.pyg.partition(whole, parts, folder / "cora", method="random")
    sar.pyg.partition(pairs, parts, folder / "links", method="random")


def of_dgl(data: Any) -> Any:
    """A graph of DGL from data of PyG, with the names that partitions have."""
    import dgl

    nodes = data["node"] if hasattr(data, "node_types") else data
    if nodes is data:
        graph = dgl.graph(tuple(data.edge_index), num_nodes=len(data.x))
    else:
        edges = {kind: tuple(data[kind].edge_index) for kind in data.edge_types}
        graph = dgl.heterograph(edges, {"node": len(nodes.x)})
    columns = graph.nodes[graph.ntypes[0]].data
    columns["features"], columns["labels"] = nodes.x, nodes.y
    for name in (f"{split}_mask" for split in SPLITS if nodes is data):
        columns[name] = nodes[name]
    columns["orig_id"] = torch.arange(len(nodes.x))
    return graph
