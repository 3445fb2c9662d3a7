"""Training in DistDGL and full-graph inference with SAR in one script: a process of ``test_dist_graph.py``.

``dist_graph.py JSON IP_CONFIG PORT``; with ``DGL_ROLE=server`` it is the server of a partition and never gets beyond
``initialize``. With ``RANK`` it initializes torch.distributed itself, as scripts for the Python package do.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import dgl
import dgl.nn
import torch

import sar


def main(json_file: str, ip_config: str, port: str) -> dict[str, Any]:
    dgl.distributed.initialize(ip_config)
    graph = dgl.distributed.DistGraph(Path(json_file).stem, part_config=json_file)
    book = graph.get_partition_book()
    master = os.environ.get("MASTER_ADDR", "127.0.0.1")
    backend = "gloo" if "RANK" in os.environ else "sar"
    if backend == "gloo":
        torch.distributed.init_process_group(backend)
    sar.initialize_comms(graph.rank(), book.num_partitions(), master, backend, master_port_number=int(port))
    full = sar.convert_dist_graph(graph)
    found: dict[str, Any] = {
        "counts": [full.num_nodes(), full.num_edges(), full.num_nodes_global(), full.num_edges_global()],
        "types": [full.ntypes == graph.ntypes, full.canonical_etypes == graph.canonical_etypes],
        "shards": len(full.graph_shard_managers[0].graph_shards),
    }
    data = sar.data_loading.load_dgl_partition_data_from_graph(graph, torch.device("cpu"))
    if len(graph.ntypes) > 1:
        triple = ("paper", "cites", "paper")
        found["w"] = full.edata["w"][triple].flatten().tolist()
        found["again"] = data.edge_features["paper:cites:paper/w"].flatten().tolist()
        found["papers"] = data.node_features["paper/features"].flatten().tolist()
        full.srcdata["h"] = {"paper": data.node_features["paper/features"]}
        full.update_all(dgl.function.u_mul_e("h", "w", "m"), dgl.function.sum("m", "n"), etype="cites")
        found["cited"] = full.dstdata["n"]["paper"].tolist()
        return found

    torch.manual_seed(0)
    model = torch.nn.ModuleList([dgl.nn.SAGEConv(4, 8, "mean"), dgl.nn.SAGEConv(8, 3, "mean")])

    def run(graphs: list[Any], h: torch.Tensor) -> torch.Tensor:
        return model[1](graphs[1], torch.relu(model[0](graphs[0], h)))

    sar.sync_params(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    train = dgl.distributed.node_split(torch.ones(graph.num_nodes(), dtype=torch.bool), book, force_even=True)
    loader = dgl.dataloading.DistNodeDataLoader(
        graph, train, dgl.dataloading.NeighborSampler([3, 3]), batch_size=16, shuffle=True
    )
    losses = []
    for _ in range(4):
        total = 0.0
        for inputs, seeds, blocks in loader:
            out = run(blocks, graph.ndata["features"][inputs])
            loss = torch.nn.functional.cross_entropy(out, graph.ndata["labels"][seeds])
            optimizer.zero_grad()
            loss.backward()
            sar.gather_grads(model)
            optimizer.step()
            total += loss.item()
        losses.append(total)
    found["losses"] = losses
    with torch.no_grad():
        features = sar.suffix_key_lookup(data.node_features, "features")
        found["out"] = run([full, full], features).tolist()
        full.edata["v"] = full.edata["w"]
        full.srcdata["h"] = features
        full.update_all(dgl.function.u_mul_e("h", "v", "m"), dgl.function.sum("m", "n"))
        found["weighted"] = full.dstdata["n"].tolist()
    found["state"] = {k: v.tolist() for k, v in model.state_dict().items()}
    return found


if __name__ == "__main__":
    print("RESULT", json.dumps(main(*sys.argv[1:])), flush=True)
