"""Parameter broadcast and gradient reduction, in flat buckets. Torch reads the annotations of its hook: no strings."""

import hashlib
import itertools
from typing import Iterator, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from sar._engine import abi, schedule, session as _session
from sar._engine.communicator import flat_cpu, give_back
from sar.units import some

from .agreement import equal_on_all

BUCKET_BYTES = 25 << 20


def sync_params(model: nn.Module) -> None:
    """Gives every worker the parameters and buffers of rank 0. Collective.

    As in torch's DistributedDataParallel, all buffers are sent but those that are named in
    ``model._ddp_params_and_buffers_to_ignore``.

    :param model: the same architecture on every worker
    :raises ValueError: the models differ in parameters or buffers, or a lazy module has no parameters yet
    """
    named = list(model.named_parameters())
    ignored = getattr(model, "_ddp_params_and_buffers_to_ignore", ())
    buffers = [(name, b) for name, b in model.named_buffers() if name not in ignored]
    _check_same_model(model, named, buffers)
    for flat in _flat([t.detach() for _, t in (*named, *buffers)]):
        _session.broadcast(flat, 0)


def gather_grads(model: nn.Module) -> None:
    """Sums the gradients of all workers, in place of each one's own. Collective, after ``loss.backward()``.

    A gradient that is ``None`` on some workers counts as zero there and is a tensor on all afterwards; one that is
    ``None`` on all stays ``None``. Gradients travel in flat buckets, one dtype each.

    :param model: the same architecture on every worker
    :raises ValueError: a gradient is sparse, the models differ in parameters, or a parameter wants a gradient on some
        workers only
    """
    named = list(model.named_parameters())
    for name, parameter in named:
        if parameter.grad is not None and parameter.grad.layout != torch.strided:
            raise ValueError(f"the gradient of {name} is sparse; make its layer with sparse=False")
    # one short reduction tells which gradients exist anywhere, which are wanted where, and that the models have as many
    # parameters
    told: List[List[int]] = [
        [p.grad is not None for _, p in named],
        [p.requires_grad for _, p in named],
        [not p.requires_grad for _, p in named],
        list(schedule.fingerprint(model)),
        [255 - byte for byte in schedule.fingerprint(model)],
    ]
    anywhere = torch.tensor([*itertools.chain(*told), True], dtype=torch.uint8)
    _session.all_reduce(anywhere, "max")
    exist, wanted, unwanted, most, least = (part.tolist() for part in anywhere[:-1].split([len(part) for part in told]))
    apart = [name for (name, _), yes, no in zip(named, wanted, unwanted) if yes and no]
    if apart:
        raise ValueError(
            f"{some(apart)}: some workers want gradients (requires_grad) and others do not, so their share would be "
            "missing; call requires_grad_() alike on all workers"
        )
    if all(high + low == 255 for high, low in zip(most, least)):
        schedule.number_layers(model)
    live = [p for (_, p), there in zip(named, exist) if there]
    for parameter in live:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    for flat in _flat([p.grad for p in live if p.grad is not None]):
        _session.all_reduce(flat, "sum", abi.REDUCE)


def sum_gradients(group: Optional[dist.ProcessGroup], bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """A communication hook by which DistributedDataParallel sums gradients, as :func:`gather_grads` does, in place
    of averaging them: ``wrapped.register_comm_hook(None, sar.sum_gradients)``.

    :param group: what the gradients travel over, by default torch's default group
    :param bucket: gradients of some parameters in one vector
    """
    work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


def _check_same_model(
    model: nn.Module, named: Sequence[Tuple[str, Tensor]], buffers: Sequence[Tuple[str, Tensor]]
) -> None:
    """Compares fingerprints of the model, because a worker with another model would silently mix up parameters."""
    lazy = [name for name, t in (*named, *buffers) if isinstance(t, (UninitializedParameter, UninitializedBuffer))]
    texts = [
        [f"{name} {'' if name in lazy else tuple(t.shape)} {t.dtype}" for name, t in given]
        for given in (named, buffers)
    ]
    digests = [int.from_bytes(hashlib.sha256(";".join(text).encode()).digest()[:7], "little") for text in texts]
    digests.append(int.from_bytes(schedule.fingerprint(model), "little"))
    alike, (any_lazy,) = equal_on_all(digests, [len(lazy)], abi.REDUCE)
    if any_lazy:
        raise ValueError(
            f"{some(lazy) or 'parameters of another worker'}: a lazy module has no parameters before its first "
            "forward. Run one forward on every worker first, or call sync_params after it"
        )
    for kind, text, equal in zip(("parameters", "buffers"), texts, alike):
        if not equal:
            raise ValueError(
                f"the workers' models differ in the names, shapes or dtypes of their {kind}; this worker's are: "
                + ", ".join(text)
                + (". Keep what belongs to the rows of one worker in a plain attribute" if kind == "buffers" else "")
            )
    if alike[2]:
        schedule.number_layers(model)


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
        parts = [flat_cpu(t) for t in bucket]
        flat = parts[0] if len(parts) == 1 else torch.cat(parts)
        yield flat
        for tensor, values in zip(bucket, flat.split([t.numel() for t in bucket])):
            give_back(tensor, values)
