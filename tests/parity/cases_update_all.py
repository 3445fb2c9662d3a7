"""One ``update_all`` and its backward, on a worker."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import sar
from tests.support.worker import build, numpy, tensor


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
