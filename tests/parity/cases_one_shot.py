"""What runs on the workers to test ``ndata`` in one-shot aggregation and the order of seeds."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

import sar
import sar.function
from tests.support.worker import data_of, numpy, tensor


def own_columns(part: dict[str, Any], x: np.ndarray, grad: np.ndarray, ours: bool) -> dict[str, Any]:
    """Two sums over in-edges that a model written with ``ndata`` alone asks for; functions are ours or DGL's."""
    import dgl.function

    fn: Any = sar.function if ours else dgl.function
    graph = sar.construct_full_graph(data_of(part)).get_full_partition_graph()
    own = tensor(x, True)
    assert own is not None
    with graph.local_scope():
        graph.ndata["h"] = own
        graph.update_all(fn.copy_u("h", "m"), fn.sum("m", "once"))
        graph.ndata["h"] = graph.ndata["once"]
        graph.update_all(fn.copy_u("h", "m"), fn.sum("m", "twice"))
        out = graph.ndata["twice"]
        names, held = sorted(graph.ndata), [graph.srcdata["h"].shape[0], graph.ndata["h"].shape[0]]
        del graph.ndata["h"]
        left = ["h" in view for view in (graph.ndata, graph.srcdata, graph.dstdata)]
        try:
            graph.ndata["h"]
            refused = ""
        except KeyError as error:
            refused = str(error)
    out.backward(torch.from_numpy(grad))
    return numpy({"out": out, "x": own.grad, "names": names, "held": held, "left": left, "refused": refused})


def ndata_of_a_block(part: dict[str, Any], seeds: np.ndarray) -> str:
    block = sar.construct_mfgs(data_of(part), torch.from_numpy(seeds), 1)[0].get_full_partition_graph()
    try:
        return f"no error: {block.ndata}"
    except ValueError as error:
        return str(error)


def seeds_given(part: dict[str, Any], seeds: np.ndarray) -> dict[str, Any]:
    """What is warned of, and which nodes the rows are."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        blocks = sar.construct_mfgs(data_of(part), torch.from_numpy(seeds), 2)
    return numpy({"warned": [(str(w.message), w.filename) for w in caught], "seeds": blocks[-1].seeds})


def edge_functions(part: dict[str, Any], x: np.ndarray, w: np.ndarray) -> dict[str, Any]:
    """``apply_edges`` and every reducer, with functions of ours and of DGL."""
    import dgl.function

    graph = sar.construct_full_graph(data_of(part, {"w": w})).get_full_partition_graph()
    found: dict[str, list[Any]] = {}
    functions: Any
    for functions in (sar.function, dgl.function):
        with graph.local_scope():
            graph.ndata["h"] = torch.from_numpy(x)
            graph.apply_edges(functions.u_sub_v("h", "h", "d"))
            graph.apply_edges(functions.e_mul_u("w", "h", "p"))
            found.setdefault("edges", []).append(torch.cat([graph.edata["d"], graph.edata["p"]], 1))
            for reducer in ("sum", "mean", "max", "min"):
                graph.update_all(functions.copy_e("p", "m"), getattr(functions, reducer)("m", "o"))
                found.setdefault(reducer, []).append(graph.ndata["o"].clone())
    return numpy(found)
