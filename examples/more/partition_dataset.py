"""Cuts a dataset into parts that `sar.load` reads.

A dataset is one of

- an .npz file (see `sar partition --help`), which needs no DGL,
- a file of `dgl.save_graphs`, whose first graph is taken,
- a dataset of `dgl.data` by its class, such as CoraGraphDataset, which DGL downloads,
- a node property dataset of OGB, such as ogbn-arxiv, where the package ogb is installed.

python examples/more/partition_dataset.py --dataset-name examples/data/cora.npz --num-partitions 2 \\
    --partition-out-path parts/cora --self-loops
"""

import argparse
import os
import sys


def from_ogb(name, root):
    """A DGL graph with features, labels and masks."""
    import torch

    try:
        from ogb.nodeproppred import DglNodePropPredDataset
    except ImportError:
        sys.exit(f"{name} is a dataset of OGB: install it with `pip install ogb`")
    dataset = DglNodePropPredDataset(name=name, root=root)
    graph, labels = dataset[0]
    graph.ndata["labels"] = labels.view(-1)
    if "feat" in graph.ndata:
        graph.ndata["features"] = graph.ndata.pop("feat")
    for ours, theirs in (("train", "train"), ("val", "valid"), ("test", "test")):
        mask = torch.zeros(graph.num_nodes(), dtype=torch.bool)
        mask[dataset.get_idx_split()[theirs]] = True
        graph.ndata[f"{ours}_mask"] = mask
    return graph


def from_dgl(name, root):
    """The first graph of a file or of a dataset, with the names that scripts look for."""
    import dgl

    if os.path.exists(name):
        (graph, *_), _ = dgl.load_graphs(name)
    elif hasattr(dgl.data, name):
        graph = getattr(dgl.data, name)(raw_dir=root)[0]
    else:
        sys.exit(f"there is no file {name}, and no dataset of that name in dgl.data or OGB")
    for old, new in (("feat", "features"), ("label", "labels")):
        if graph.is_homogeneous and old in graph.ndata:
            graph.ndata[new] = graph.ndata.pop(old)
    return graph


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dataset-name", required=True)
    p.add_argument("--dataset-root", default="./datasets", help="where downloads go")
    p.add_argument("--num-partitions", type=int, required=True)
    p.add_argument("--partition-out-path", required=True)
    p.add_argument("--self-loops", action="store_true", help="exactly one edge from every node to itself")
    args = p.parse_args()
    parts, out = args.num_partitions, args.partition_out_path
    if args.dataset_name.endswith(".npz"):
        from sar.cli import main as sar

        loops = ["--self-loops"] if args.self_loops else []
        return sar(["partition", args.dataset_name, "--parts", str(parts), "--out", out, *loops])
    import dgl

    ogb = args.dataset_name.startswith("ogbn-")
    graph = (from_ogb if ogb else from_dgl)(args.dataset_name, args.dataset_root)
    if args.self_loops:
        graph = dgl.add_self_loop(dgl.remove_self_loop(graph))
    name = os.path.splitext(os.path.basename(args.dataset_name))[0]
    method = "metis" if parts > 1 else "random"
    dgl.distributed.partition_graph(graph, name, parts, out, num_hops=1, part_method=method)
    return 0


if __name__ == "__main__":
    sys.exit(main())
