"""Parameter broadcast and gradient reduction, in flat buckets."""

from __future__ import annotations

import hashlib
from typing import Iterator, List, Sequence, Tuple

import torch
from torch import Tensor, nn

from sar._engine import abi, session as _session

BUCKET_BYTES = 25 << 20


def sync_params(model: nn.Module) -> None:
    """Gives every worker the parameters of rank 0. Collective.

    :param model: the same architecture on every worker
    :raises ValueError: the models differ in parameters
    """
    named = list(model.named_parameters())
    _check_same_model(named)
    for flat in _flat([p.detach() for _, p in named]):
        _session.broadcast(flat, 0)


def gather_grads(model: nn.Module) -> None:
    """Sums the gradients of all workers, in place of each one's own. Collective, after ``loss.backward()``.

    A gradient that is ``None`` on some workers counts as zero there and is a tensor on all afterwards; one that is
    ``None`` on all stays ``None``. Gradients travel in flat buckets, one dtype each.

    :param model: the same architecture on every worker
    :raises ValueError: a gradient is sparse, or the models differ in parameters
    """
    named = list(model.named_parameters())
    for name, parameter in named:
        if parameter.grad is not None and parameter.grad.layout != torch.strided:
            raise ValueError(f"the gradient of {name} is sparse; make its layer with sparse=False")
    # one short reduction tells which gradients exist anywhere, and that the models have as many parameters
    present = torch.tensor([p.grad is not None for _, p in named] + [True], dtype=torch.uint8)
    _session.all_reduce(present, "max")
    live = [p for (_, p), anywhere in zip(named, present.tolist()) if anywhere]
    for parameter in live:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    for flat in _flat([p.grad for p in live if p.grad is not None]):
        _session.all_reduce(flat, "sum", abi.REDUCE)


class GradientOverlap:
    """What :func:`sar.overlap_grads` returns."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def gather(self) -> None:
        """:func:`sar.gather_grads` of the model. Collective."""
        gather_grads(self._model)

    def close(self) -> None:
        """Nothing is left to do."""

    def __enter__(self) -> GradientOverlap:
        return self

    def __exit__(self, *unused: object) -> None:
        pass


def overlap_grads(model: nn.Module, bucket_bytes: int = 0) -> GradientOverlap:
    """:func:`sar.gather_grads` under another name, for scripts that call it: ``overlap_grads(model).gather()``.

    It once summed gradients while backward computed others. That made no measurable difference, so gradients are now
    summed when ``gather`` is called. Collective, once a model.

    :param model: the same architecture on every worker
    :param bucket_bytes: has no effect
    :raises ValueError: the models differ in parameters
    """
    _check_same_model(list(model.named_parameters()))
    return GradientOverlap(model)


def _check_same_model(named: Sequence[Tuple[str, nn.Parameter]]) -> None:
    """Compares a fingerprint of the model, because a worker with another model would silently mix up parameters."""
    text = ";".join(f"{name}{tuple(p.shape)}{p.dtype}" for name, p in named)
    digest = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")
    lowest = torch.tensor([digest, -digest], dtype=torch.int64)
    _session.all_reduce(lowest, "min")
    if int(lowest[0]) != -int(lowest[1]):
        raise ValueError(
            "the workers' models differ in the names, shapes or dtypes of their parameters; this worker's are: "
            + ", ".join(f"{name} {tuple(p.shape)} {p.dtype}" for name, p in named)
        )


def _buckets(tensors: Sequence[Tensor]) -> Iterator[List[Tensor]]:
    """Groups of tensors of one dtype, in order, of about BUCKET_BYTES each."""
    for dtype in dict.fromkeys(t.dtype for t in tensors):
        bucket: List[Tensor] = []
        filled = 0
        for tensor in (t for t in tensors if t.dtype == dtype):
            size = tensor.numel() * tensor.element_size()
            if bucket and filled + size > BUCKET_BYTES:
                yield bucket
                bucket, filled = [], 0
            bucket.append(tensor)
            filled += size
        yield bucket


def _flat(tensors: Sequence[Tensor]) -> Iterator[Tensor]:
    """Vectors in CPU memory of all tensors' values, a bucket at a time. What a vector holds when the next one is asked
    for becomes the tensors' values. A lone contiguous CPU tensor lends its own memory."""
    for bucket in _buckets(tensors):
        parts = [t.detach().to("cpu").contiguous().view(-1) for t in bucket]
        flat = parts[0] if len(parts) == 1 else torch.cat(parts)
        yield flat
        for tensor, values in zip(bucket, flat.split([t.numel() for t in bucket])):
            if tensor.numel() and tensor.data_ptr() != values.data_ptr():
                tensor.detach().copy_(values.view(tensor.shape))
