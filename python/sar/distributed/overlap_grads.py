"""Gradient reduction that overlaps with backward."""

from __future__ import annotations

import queue
import threading
from types import TracebackType
from typing import Any, List, Optional, Sequence, Type

import torch
from torch import nn

from sar._engine import session as _session

from .gradients import check_dense, check_same_model, flatten, unflatten

BUCKET_BYTES = 1 << 20


class _Bucket:
    """Parameters of one dtype whose gradients travel together, and one number each that says whether there is one."""

    def __init__(self) -> None:
        self.parameters: List[nn.Parameter] = []
        self.size = 0
        self.missing = 0  # parameters whose gradient backward has not made yet
        self.sent = False
        self.anywhere: List[bool] = []

    def ready(self) -> bool:
        return self.missing == 0

    def reduce(self, comm: int) -> None:
        """Sums over the workers. What a worker does not have counts as zero."""
        first = self.parameters[0]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        here = torch.tensor([p.grad is not None for p in self.parameters], dtype=first.dtype)
        flat = flatten([*grads, here])
        _session.all_reduce(flat, "sum", comm)
        unflatten(flat[: flat.numel() - len(here)], grads)
        self.anywhere = (flat[flat.numel() - len(here) :] > 0).tolist()
        for parameter, grad, exists in zip(self.parameters, grads, self.anywhere):
            if exists and parameter.grad is None:
                parameter.grad = grad


class GradientOverlap:
    """What :func:`sar.overlap_grads` returns. Use :meth:`gather` in place of :func:`sar.gather_grads`."""

    def __init__(self, model: nn.Module, bucket_bytes: int) -> None:
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        check_same_model(named)
        self._named = named
        self._comm = _session.gradients()
        self._buckets = _in_buckets([p for _, p in reversed(named)], bucket_bytes)
        self._of = {p: b for b in self._buckets for p in b.parameters}
        self._twice = False
        self._next = 0  # bucket to be handed over
        self._tasks: queue.Queue[Optional[_Bucket]] = queue.Queue()
        self._error: Optional[BaseException] = None
        self._hooks: List[Any] = []
        for _, parameter in named:
            register = getattr(parameter, "register_post_accumulate_grad_hook", None)
            if register is not None:  # torch before 2.1 has none: then everything waits for gather
                self._hooks.append(register(self._arrived))
        self._restart()
        self._thread = threading.Thread(target=self._run, name="sar-gradients", daemon=True)
        self._thread.start()

    def gather(self) -> None:
        """Waits until the gradients of all workers are summed, in place of each one's own. Collective.

        Leaves the bits that :func:`sar.gather_grads` leaves: a gradient that is ``None`` on some workers counts as zero
        there, and one that is ``None`` on all stays ``None``.

        :raises ValueError: a gradient is sparse
        :raises RuntimeError: backward ran twice since the last call, or :meth:`close` was called
        """
        if not self._hooks and not self._thread.is_alive():
            raise RuntimeError("gather() after close(): make another one with sar.overlap_grads(model)")
        check_dense(self._named)
        if self._twice:
            raise RuntimeError(
                "backward made a gradient again that has been summed over the workers already: call gather() after "
                "each backward, or sum up gradients of several with sar.gather_grads"
            )
        for bucket in self._buckets[self._next :]:
            self._send(bucket)
        self._tasks.join()
        if self._error is not None:
            raise self._error
        self._restart()

    def close(self) -> None:
        """Lets go of the model. May be called again."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        if self._thread.is_alive():
            self._tasks.put(None)
            self._thread.join()

    def __enter__(self) -> GradientOverlap:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def _restart(self) -> None:
        self._next, self._twice = 0, False
        for bucket in self._buckets:
            bucket.missing, bucket.sent = len(bucket.parameters), False

    def _arrived(self, parameter: nn.Parameter) -> None:
        """Backward has made a gradient. Buckets leave in one order, which is the same on all workers."""
        bucket = self._of[parameter]
        if bucket.sent:
            self._twice = True
            return
        bucket.missing -= 1
        while self._next < len(self._buckets) and self._buckets[self._next].ready():
            self._send(self._buckets[self._next])

    def _send(self, bucket: _Bucket) -> None:
        bucket.sent = True
        self._next += 1
        self._tasks.put(bucket)

    def _run(self) -> None:
        while True:
            bucket = self._tasks.get()
            try:
                if bucket is None:
                    return
                if self._error is None:
                    with torch.no_grad():
                        bucket.reduce(self._comm)
            except BaseException as error:
                self._error = error
            finally:
                self._tasks.task_done()


def overlap_grads(model: nn.Module, bucket_bytes: int = BUCKET_BYTES) -> GradientOverlap:
    """Sums gradients over the workers while backward still computes others. Collective, once a model.

    It makes no measurable difference for the models and links that ``make bench-overlap`` runs, whose gradients are of
    a few MiB: :func:`sar.gather_grads` does the same with less. It may help where gradients take as long to travel as
    backward to compute. ::

        gradients = sar.overlap_grads(model)
        for epoch in range(epochs):
            ...
            loss.backward()     # buckets of gradients that are complete travel meanwhile
            gradients.gather()  # in place of sar.gather_grads(model): waits for the last of them
            optimizer.step()

    They travel on a communicator of their own, which takes a sixteenth of the window.

    :param model: the same architecture on every worker; its parameters stay the same objects
    :param bucket_bytes: of gradients that travel together
    :raises ValueError: the models differ in parameters, or ``bucket_bytes`` is not positive
    """
    if bucket_bytes < 1:
        raise ValueError(f"bucket_bytes is {bucket_bytes}: it must be positive")
    return GradientOverlap(model, bucket_bytes)


def _in_buckets(parameters: Sequence[nn.Parameter], limit: int) -> List[_Bucket]:
    """In order, so that a bucket is complete about when the one before it has left."""
    buckets: List[_Bucket] = []
    for parameter in parameters:
        last = buckets[-1] if buckets else None
        if last is None or last.size >= limit or last.parameters[0].dtype != parameter.dtype:
            last = _Bucket()
            buckets.append(last)
        last.parameters.append(parameter)
        last.size += parameter.numel() * parameter.element_size()
    return buckets

