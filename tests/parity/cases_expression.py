"""Edge expressions on the workers."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Dict, List, Optional

import numpy as np
import torch

from sar.autograd import expression as ex, program as programs
from tests.support.worker import build, numpy

Program = List[Any]
"""An expression as nested lists: ``["load", "u", 0]``, ``["param", 1]``, ``["add", a, b]``, ``["leaky_relu", a, 0.2]``,
``["total", a, [1]]``, ``["reshape", a, [4]]``, ``["softmax", a]``, ``["dropout", a, p, seed]``. Numbers name
tensors."""


def written(program: Program, tensors: List[torch.Tensor]) -> ex.Expr:
    """The expression that a program describes."""
    op, *rest = program
    if op == "load":
        return ex.load(rest[0], tensors[rest[1]])
    if op == "param":
        return ex.param(tensors[rest[0]])
    args = [written(x, tensors) if isinstance(x, list) and x and isinstance(x[0], str) else x for x in rest]
    if op in ex.BINARY:
        return ex.binary(op, *args)
    special = {"total": ex.total, "reshape": ex.reshape, "softmax": ex.softmax, "dropout": ex.dropout}
    if op in special:
        return special[op](*args)
    return ex.unary(op, *args)


def expression(
    part: Dict[str, Any],
    program: Program,
    reduce: Optional[str],
    tensors: List[np.ndarray],
    grad: np.ndarray,
    needs: List[bool],
    strided: bool = False,
    twice: bool = False,
    keys: Optional[np.ndarray] = None,
) -> Dict[str, Any]:
    """An expression and its backward."""
    relation = build(part)._relations[0]
    relation.edge_keys = None if keys is None else torch.from_numpy(keys.copy())
    leaves = [torch.from_numpy(t.copy()).requires_grad_(n) for t, n in zip(tensors, needs)]
    fed = leaves
    if strided:  # the same values, every second column of wider tensors
        fed = [torch.stack([x, torch.full_like(x, 7.0)], dim=-1)[..., 0] for x in leaves]
    outs = [ex.evaluate(relation, written(program, fed), reduce) for _ in range(2 if twice else 1)]
    assert all(np.array_equal(outs[0].detach(), o.detach(), equal_nan=True) for o in outs)
    out = outs[0]
    grads: List[Optional[torch.Tensor]] = [None] * len(leaves)
    if out.requires_grad:
        out.backward(torch.from_numpy(grad))
        grads = [x.grad for x in leaves]
    return numpy({"out": out, "requires_grad": out.requires_grad, "grads": grads})


def forgotten(part: Dict[str, Any], x: np.ndarray) -> Dict[str, Any]:
    """Two expressions, of which the second takes the first's place in the table of programs before the first's
    backward."""
    relation = build(part)._relations[0]
    table, programs.compiled = programs.compiled, lru_cache(maxsize=1)(programs.Compiled)
    try:
        leaf = torch.from_numpy(x.copy()).requires_grad_()
        outs = [ex.evaluate(relation, ex.unary(op, ex.load("u", leaf)), "sum") for op in ("exp", "tanh")]
        known = programs.compiled.cache_info().currsize
        sum(out.sum() for out in outs).backward()  # type: ignore[union-attr]
    finally:
        programs.compiled = table
    assert leaf.grad is not None
    return {"known": known, "outs": [out.detach().numpy() for out in outs], "grad": leaf.grad.numpy()}
