"""Tensors of bfloat16 on the workers. Arrays travel as float32, since numpy has no bfloat16."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional

import numpy as np
import torch

from sar.autograd import expression as ex
from tests.parity.cases_expression import Program, written
from tests.support.worker import build

HALF = torch.bfloat16


class Job(NamedTuple):
    """An expression to evaluate: ``dtypes`` of its tensors; ``strided``: these are no runs of memory."""

    program: Program
    reduce: Optional[str]
    tensors: List[np.ndarray]
    dtypes: List[str]
    grad: np.ndarray
    strided: bool = False


def told(tensor: Optional[torch.Tensor]) -> Any:
    """The dtype of a tensor and its numbers, for the test to look at."""
    return None if tensor is None else (str(tensor.dtype)[6:], tensor.detach().double().numpy())


def expressions(part: Dict[str, Any], jobs: List[Job]) -> List[Dict[str, Any]]:
    """Expressions and their gradients, one after the other."""
    relation = build(part)._relations[0]
    found = []
    for job in map(Job._make, jobs):
        leaves = [torch.from_numpy(t).to(getattr(torch, d)) for t, d in zip(job.tensors, job.dtypes)]
        leaves = [leaf.requires_grad_() for leaf in leaves]
        fed = [torch.stack([x, x * 7], -1)[..., 0] for x in leaves] if job.strided else leaves
        out = ex.evaluate(relation, written(job.program, fed), job.reduce)
        out.backward(torch.from_numpy(job.grad).to(out.dtype))
        found.append({"out": told(out), "grads": [told(leaf.grad) for leaf in leaves]})
    return found
