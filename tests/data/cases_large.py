"""Worker cases of ``test_large.py``; they run in every worker of a pool."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import sar
import sar.function as fn


def mean_from_files(json_file: str, grad: np.ndarray) -> dict[str, Any]:
    """Mean of the features over in-edges, and its gradient, on the partition that is the worker's; rows of ``grad`` are
    by original id."""
    data = sar.load_dgl_partition_data(json_file, sar.rank(), torch.device("cpu"))
    ids = sar.suffix_key_lookup(data.node_features, "orig_id").numpy()
    x = sar.suffix_key_lookup(data.node_features, "features").requires_grad_()
    graph = sar.construct_full_graph(data)
    with graph.local_scope():
        graph.srcdata["x"] = x
        graph.update_all(fn.copy_u("x", "m"), fn.mean("m", "y"))
        y = graph.dstdata["y"]
    y.backward(torch.from_numpy(grad[ids]))
    assert x.grad is not None
    return {"ids": ids, "y": y.detach().numpy(), "grad": x.grad.numpy(), "edges": graph.num_edges()}
