"""Makes a small heterograph of papers, authors and fields of research, as an .npz file for `sar partition`.

Papers have noisy features and a class to be learned; authors and fields have no features at all.

python examples/more/generate_hetero.py papers.npz
sar partition papers.npz --parts 2 --out parts/papers
"""

import argparse

import numpy as np

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
    """The arrays of the file: ends of the edges by relation, ids per type; columns of the papers."""
    rng = np.random.default_rng(seed)
    paper, author, field = (rng.permutation(np.arange(n) % CLASSES) for n in (PAPERS, AUTHORS, FIELDS))
    cites = links(rng, paper, paper, 5000, 0.7)
    writes = links(rng, author, paper, 3000, 0.8)
    about = links(rng, paper, field, 2400, 0.9)
    relations = {
        "paper:cites:paper": cites,
        "author:writes:paper": writes,
        "paper:written_by:author": writes[::-1],
        "paper:about:field": about,
        "field:of:paper": about[::-1],
    }
    centers = rng.standard_normal((CLASSES, WIDTH))
    features = 0.3 * centers[paper] + rng.standard_normal((PAPERS, WIDTH))
    arrays = {f"{relation}/edge_index": np.stack(ends) for relation, ends in relations.items()}
    arrays["paper/features"] = features.astype("float32")
    arrays["paper/labels"] = paper
    for name, rows in zip(("train", "val", "test"), np.split(rng.permutation(PAPERS), (300, 600))):
        mask = np.zeros(PAPERS, bool)
        mask[rows] = True
        arrays[f"paper/{name}_mask"] = mask
    return arrays


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("file", help="the .npz file to write")
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    np.savez(args.file, **make(args.seed))


if __name__ == "__main__":
    main()
