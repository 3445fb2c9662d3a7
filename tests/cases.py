"""What runs on the workers. Arguments and results are numpy arrays and plain values."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import sar
from sar.common_tuples import PartitionData, ShardEdgesAndFeatures

ETYPE = ("_N", "_E", "_N")


def build(part: dict[str, Any]) -> sar.GraphShardManager:
    """A graph from edges in memory, in the order given."""
    starts = part["start"].tolist()
    edges = (torch.from_numpy(part["src"]), torch.from_numpy(part["dst"]))
    ranges = list(zip(starts[:-1], starts[1:]))
    data = PartitionData([ShardEdgesAndFeatures(edges, {})], ranges, {}, ["_N"], [ETYPE], None)
    return sar.construct_full_graph(data)


def numpy(tree: Any) -> Any:
    if isinstance(tree, torch.Tensor):
        return tree.detach().numpy().copy()
    if isinstance(tree, dict):
        return {k: numpy(v) for k, v in tree.items()}
    return [numpy(v) for v in tree] if isinstance(tree, (list, tuple)) else tree


def tensor(array: np.ndarray | None, grad: bool = False) -> torch.Tensor | None:
    return None if array is None else torch.from_numpy(array.copy()).requires_grad_(grad)


def raw(
    part: dict[str, Any],
    message: str,
    reduce: str,
    u: np.ndarray,
    e: np.ndarray | None,
    grad: np.ndarray,
    needs: tuple[bool, bool],
    strided: bool = False,
) -> dict[str, Any]:
    """One ``update_all`` and its backward."""
    graph = build(part)
    x, w = tensor(u, needs[0]), tensor(e, needs[1])
    assert x is not None
    fed = x
    if strided:  # the same values, every second column of a wider tensor
        fed = torch.stack([x, torch.full_like(x, 7.0)], dim=-1)[..., 0]
        assert x.numel() < 2 or not fed.is_contiguous()
    with graph.local_scope():
        graph.srcdata["h"] = fed
        if w is not None:
            graph.edata["w"] = w
        send = sar.function.copy_u("h", "m") if message == "copy_u" else sar.function.u_mul_e("h", "w", "m")
        graph.update_all(send, getattr(sar.function, reduce)("m", "out"))
        out = graph.dstdata["out"]
    assert not graph.ndata
    if out.requires_grad:
        out.backward(torch.from_numpy(grad))
    return numpy(
        {
            "out": out,
            "requires_grad": out.requires_grad,
            "u": x.grad,
            "e": None if w is None else w.grad,
            "degrees": [graph.in_degrees(), graph.out_degrees()],
        }
    )


def layer(
    part: dict[str, Any],
    name: str,
    options: dict[str, Any],
    state: dict[str, np.ndarray],
    dtype: str,
    x: np.ndarray,
    e: np.ndarray | None,
    grad: np.ndarray,
) -> dict[str, Any]:
    """A layer of ``dgl.nn``, unchanged: output, and gradients of input, edge weights and parameters (over all ranks)."""
    import dgl.nn

    torch.set_default_dtype(getattr(torch, dtype))
    try:
        graph = build(part)
        model = make_layer(dgl.nn, name, options)
        model.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
        feature, weight = tensor(x, True), tensor(e, True)
        out = model(graph, feature) if weight is None else model(graph, feature, edge_weight=weight)
        out.backward(torch.from_numpy(grad))
        sar.gather_grads(model)
        assert feature is not None
        return numpy(
            {
                "out": out,
                "x": feature.grad,
                "e": None if weight is None else weight.grad,
                "parameters": {k: p.grad for k, p in model.named_parameters()},
            }
        )
    finally:
        torch.set_default_dtype(torch.float32)


def make_layer(nn: Any, name: str, options: dict[str, Any]) -> torch.nn.Module:
    """A layer by name; a pair of sizes under ``apply_func`` is a linear layer."""
    given = dict(options)
    if "apply_func" in given:
        given["apply_func"] = torch.nn.Linear(*given["apply_func"])
    made: torch.nn.Module = getattr(nn, name)(**given)
    return made
