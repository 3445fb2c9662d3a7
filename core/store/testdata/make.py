"""Makes the partition directories that the tests of core/store read, with the DGL that is installed.

python make.py OUT npz             writes OUT/npz/*.npz, with numpy alone
python make.py OUT [CASE ...]      writes OUT/dgl-<version>/<case>/: DGL's files, and expected.npz with what DGL reads from them

Run it once in an environment of each DGL version (docs/faq.md names them). The arrays of expected.npz are
named part|kind|name|dtype, so that a reader that shares no code with DGL can be held against it element by element.
DGL leaves the first 4096 bytes of a graph file uninitialized after its header; they are zeroed here, so that a run
gives the same bytes and nothing of the process ends up in them.
"""
import json
import os
import sys

import dgl
import numpy as np
import torch

N = 21


def seed():
    torch.manual_seed(7)
    np.random.seed(7)
    dgl.seed(7)
    dgl.random.seed(7)


def ends(n, m, e):
    return torch.randint(0, n, (e,)), torch.randint(0, m, (e,))


def plain():
    g = dgl.graph(ends(N, N, 70), num_nodes=N)
    g.edata["number"] = torch.arange(70)
    return g


def homo():
    g = plain()
    g.ndata["f32"] = torch.randn(N, 3)
    g.ndata["f16"] = torch.randn(N, 2).half()
    g.ndata["bf16"] = torch.randn(N, 2).bfloat16()
    g.ndata["f64"] = torch.randn(N, 2, 2, dtype=torch.float64)
    g.ndata["label"] = torch.randint(0, 5, (N,))
    g.ndata["mask"] = torch.rand(N) < 0.5
    g.ndata["i32"] = torch.randint(-9, 9, (N,), dtype=torch.int32)
    g.ndata["i16"] = torch.randint(-9, 9, (N, 1), dtype=torch.int16)
    g.ndata["i8"] = torch.randint(-9, 9, (N,), dtype=torch.int8)
    g.ndata["u8"] = torch.randint(0, 9, (N,), dtype=torch.uint8)
    g.edata["w"] = torch.randn(70)
    return g


def hetero():
    g = dgl.heterograph(
        {
            ("user", "follows", "user"): ends(13, 13, 30),
            ("user", "buys", "item"): ends(13, 9, 25),
            ("item", "bought", "user"): ends(9, 13, 25),
        },
        num_nodes_dict={"user": 13, "item": 9},
    )
    for t in g.ntypes:
        g.nodes[t].data["x"] = torch.randn(g.num_nodes(t), 2)
    g.nodes["user"].data["age"] = torch.arange(13)
    for t in g.canonical_etypes:
        g.edges[t].data["w"] = torch.randn(g.num_edges(t))
    return g


# DGL 1.1.3 reorders graphs of int32 ids wrongly typed, and says so: they can be written as one partition only.
CASES = {
    "metis": (homo, 2, dict(part_method="metis")),
    "one": (hetero, 1, dict(part_method="random")),
    "int32": (lambda: plain().int(), 1, dict(part_method="random")),
    "hetero": (hetero, 2, dict(part_method="random")),
    "csr": (plain, 2, dict(part_method="random", graph_formats=["csr"])),
    "csc": (hetero, 2, dict(part_method="random", graph_formats=["csc", "csr"])),
}


def bits(t):
    name = str(t.dtype).removeprefix("torch.")
    return (t.view(torch.int16) if t.dtype == torch.bfloat16 else t).numpy(), name


def arrays(out):
    """Files as users save them, that readers must take or refuse with a reason."""
    out = os.path.join(out, "npz")
    os.makedirs(out, exist_ok=True)
    rng = np.random.default_rng(3)
    n, e = 6, 9
    edges = rng.integers(0, n, (2, e))
    base = dict(edge_index=edges, x=rng.integers(0, 99, (n, 3)).astype(np.float32), y=np.arange(n), train_mask=np.arange(n) % 2 == 0)
    np.savez(os.path.join(out, "stored.npz"), **base, edge_weight=np.arange(e) / 2)
    np.savez_compressed(os.path.join(out, "deflated.npz"), **base, edge_weight=np.arange(e) / 2)
    np.savez(os.path.join(out, "fortran.npz"), **{**base, "edge_index": np.asfortranarray(edges.astype(np.int16)),
             "x": np.asfortranarray(base["x"]), "t": np.asfortranarray(np.arange(n * 4).reshape(n, 2, 2))})
    np.savez(os.path.join(out, "bare.npz"), edge_index=edges.astype(np.uint8))
    np.savez(os.path.join(out, "bigendian.npz"), **{**base, "x": base["x"].astype(">f4")})
    np.savez(os.path.join(out, "object.npz"), **base, meta=np.array([{"a": 1}, None]))
    np.savez(os.path.join(out, "string.npz"), **base, names=np.array(["a"] * n))
    np.savez(os.path.join(out, "badid.npz"), **{**base, "edge_index": edges + 3})
    np.savez(os.path.join(out, "transposed.npz"), **{**base, "edge_index": edges.T.copy()})
    np.savez(os.path.join(out, "rows.npz"), **{**base, "y": np.arange(n + 1)})
    np.savez(os.path.join(out, "noedges.npz"), x=base["x"])
    for major in (1, 2, 3):
        with open(os.path.join(out, f"v{major}.npy"), "wb") as f:
            np.lib.format.write_array(f, base["x"], version=(major, 0))


def main(out, *cases):
    if cases == ("npz",):
        return arrays(out)
    out = os.path.join(out, "dgl-" + dgl.__version__.split("+")[0])
    for case in cases or CASES:
        make, parts, how = CASES[case]
        seed()
        g = make()
        where = os.path.join(out, case)
        dgl.distributed.partition_graph(g, case, parts, where, num_hops=1, **how)
        expected = {}

        def put(*key, value):
            array, dtype = bits(value)
            expected["|".join([*key, dtype])] = array

        for p in range(parts):
            path = os.path.join(where, f"part{p}", "graph.dgl")
            with open(path, "r+b") as f:
                f.seek(32)
                f.write(bytes(4096 - 32))
            part, node_feats, edge_feats, *_ = dgl.distributed.load_partition(os.path.join(where, case + ".json"), p)
            src, dst = part.edges(order="eid")
            put(f"part{p}", "graph", "src", value=src)
            put(f"part{p}", "graph", "dst", value=dst)
            for name, value in part.ndata.items():
                put(f"part{p}", "ndata", name, value=value)
            for name, value in part.edata.items():
                put(f"part{p}", "edata", name, value=value)
            for name, value in node_feats.items():
                put(f"part{p}", "node", name, value=value)
            for name, value in edge_feats.items():
                put(f"part{p}", "edge", name, value=value)
        np.savez_compressed(os.path.join(where, "expected.npz"), **expected)
        with open(os.path.join(where, case + ".json")) as f:
            print(case, json.load(f)["node_map"])


if __name__ == "__main__":
    main(*sys.argv[1:])
