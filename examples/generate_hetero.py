"""Makes a small heterograph of papers, authors and fields of research, and cuts it into parts with DGL's partitioner.

Papers have noisy features and a class to be learned; authors and fields have no features at all.

python examples/generate_hetero.py --num-partitions 2 --partition-out-path parts/papers
"""

import argparse

import dgl
import numpy as np
import torch

PAPERS, AUTHORS, FIELDS, CLASSES, WIDTH = 1200, 700, 60, 6, 24


def links(rng, sources, targets, count, loyalty):
    """``count`` pairs of nodes, given the class of each node; a share ``loyalty`` of the pairs is within a class."""
    src = rng.integers(0, len(sources), count)
    dst = rng.integers(0, len(targets), count)
    order = np.argsort(targets, kind="stable")
    first = np.searchsorted(targets[order], np.arange(CLASSES))
    size = np.bincount(targets, minlength=CLASSES)
    kind = sources[src]
    same = order[first[kind] + rng.integers(0, 1 << 30, count) % size[kind]]
    return src, np.where(rng.random(count) < loyalty, same, dst)


def make(seed):
    rng = np.random.default_rng(seed)
    paper, author, field = (rng.permutation(np.arange(n) % CLASSES) for n in (PAPERS, AUTHORS, FIELDS))
    cites = links(rng, paper, paper, 5000, 0.7)
    writes = links(rng, author, paper, 3000, 0.8)
    about = links(rng, paper, field, 2400, 0.9)
    graph = dgl.heterograph(
        {
            ("paper", "cites", "paper"): cites,
            ("author", "writes", "paper"): writes,
            ("paper", "written_by", "author"): writes[::-1],
            ("paper", "about", "field"): about,
            ("field", "of", "paper"): about[::-1],
        },
        {"paper": PAPERS, "author": AUTHORS, "field": FIELDS},
    )
    centers = rng.standard_normal((CLASSES, WIDTH))
    features = 0.3 * centers[paper] + rng.standard_normal((PAPERS, WIDTH))
    order = rng.permutation(PAPERS)
    data = graph.nodes["paper"].data
    data["features"] = torch.from_numpy(features.astype("float32"))
    data["labels"] = torch.from_numpy(paper)
    for name, rows in zip(("train", "val", "test"), np.split(order, (300, 600))):
        mask = torch.zeros(PAPERS, dtype=torch.bool)
        mask[torch.from_numpy(rows)] = True
        data[f"{name}_mask"] = mask
    return graph


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--num-partitions", type=int, required=True)
    p.add_argument("--partition-out-path", required=True, help="directory to write to; the graph is named papers")
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    # METIS where DGL can balance parts; a single part needs none
    method = "metis" if args.num_partitions > 1 else "random"
    dgl.distributed.partition_graph(
        make(args.seed), "papers", args.num_partitions, args.partition_out_path, num_hops=1, part_method=method
    )


if __name__ == "__main__":
    main()
