"""Splits the edges of a graph for link prediction, as PyG's RandomLinkSplit does, and partitions it.

python examples/more/split_links.py examples/data/cora.npz --parts 2 --out parts

The parts hold relations of one node type: the edges that messages take in training ("train") and in the test
("train_val"), and pairs that are labelled, with a column edge_label ("train_label", "val_label", "test_label").
"""

import argparse

import numpy as np
import torch
from torch_geometric import seed_everything
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import RandomLinkSplit

import sar

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("graph", help="a .npz with edge_index and x")
p.add_argument("--parts", type=int, default=2, help="(default: 2)")
p.add_argument("--out", default="parts", help="directory (default: parts)")
a = p.parse_args()

arrays = np.load(a.graph)
edges = torch.from_numpy(arrays["edge_index"]).long()
whole = Data(x=torch.from_numpy(arrays["x"]).float(), edge_index=edges)
seed_everything(0)
split = RandomLinkSplit(num_val=0.05, num_test=0.1, is_undirected=True, add_negative_train_samples=False)
train, val, test = split(whole)

data = HeteroData()
data["node"].x = whole.x
data["node", "train", "node"].edge_index = train.edge_index
data["node", "train_val", "node"].edge_index = test.edge_index
for name, one in {"train": train, "val": val, "test": test}.items():
    data["node", f"{name}_label", "node"].edge_index = one.edge_label_index
    data["node", f"{name}_label", "node"].edge_label = one.edge_label.bool()
print(sar.pyg.partition(data, a.parts, a.out, name="links"))
