"""Trains the model of :mod:`tests.cli.models_to_infer` for two epochs, and saves a checkpoint after each."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import sar
from sar.results.rows import own_rows
from tests.cli.models_to_infer import CLASSES, build


def main(description: str, directory: str) -> None:
    sar.initialize_comms()
    data = sar.load_dgl_partition_data(description, sar.rank(), torch.device("cpu"))
    graph = sar.construct_full_graph(data)
    features = sar.suffix_key_lookup(data.node_features, "features")
    numbers = own_rows(graph).numbers
    torch.manual_seed(5)
    model = sar.convert_batchnorm(build())
    sar.sync_params(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    with sar.Checkpointer(directory, model, optimizer, graph=graph, every=1) as checkpoints:
        for epoch in (1, 2):
            model.train()
            loss = F.cross_entropy(model(graph, features), numbers % CLASSES, reduction="sum") / 200
            optimizer.zero_grad()
            loss.backward()
            sar.gather_grads(model)
            optimizer.step()
            model.eval()
            with torch.no_grad():
                logits = torch.cat([numbers[:, None], model(graph, features)], 1)
            if sar.rank() == 0:
                np.save(Path(directory).parent / f"logits-{epoch}.npy", logits.numpy())
            checkpoints.step(epoch)


if __name__ == "__main__":
    main(*sys.argv[1:])
