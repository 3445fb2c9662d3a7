"""The collectives of :mod:`sar.comm`, on torch tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Union

import torch
from torch import Tensor

from sar._engine import abi, communicator, session as _session

if TYPE_CHECKING:
    import torch.distributed as dist

ReduceOp = Union[str, "dist.ReduceOp", "dist.ReduceOp.RedOpType"]


def all_reduce(red_tensor: Tensor, op: ReduceOp = "sum", move_to_comm_device: bool = False) -> None:
    """``red_tensor = op over all workers of red_tensor``, in place. Collective.

    :param red_tensor: any shape, strides and device; float64, float32, float16, bfloat16, int64, int32, uint8 or bool
    :param op: a ``torch.distributed.ReduceOp`` (SUM, MIN, MAX, PRODUCT, AVG) or its name. The sum of bool is "or".
    :param move_to_comm_device: accepted for compatibility; tensors are always sent from CPU memory
    :raises ValueError: the operation is not one of the five, or shapes differ between workers
    :raises TypeError: the dtype is not one of those above
    """
    _session.all_reduce(red_tensor, _op_name(op))


def broadcast(tensor: Tensor, root: int = 0) -> None:
    """Gives every worker the values that ``root`` holds in ``tensor``, in place. Any dtype. Collective."""
    _session.broadcast(tensor, root)


def barrier() -> None:
    """Returns when every worker has called it. Collective."""
    _session.current().lane.now(abi.barrier, abi.REDUCE)


def all_to_all(
    recv_tensors: Sequence[Tensor], send_tensors: Sequence[Tensor], move_to_comm_device: bool = False
) -> None:
    """``recv_tensors[q]`` gets what worker q has in ``send_tensors[own rank]``. Collective.

    :param recv_tensors: one tensor per worker, as large as what comes from it
    :param send_tensors: one tensor per worker
    :param move_to_comm_device: accepted for compatibility
    :raises ValueError: not one tensor per worker, or sizes that do not match pairwise
    """
    world = _session.current().world
    for name, tensors in (("recv_tensors", recv_tensors), ("send_tensors", send_tensors)):
        if len(tensors) != world:
            raise ValueError(f"all_to_all: {name} holds {len(tensors)} tensors for {world} workers; give one for each")
    _session.all_to_all(recv_tensors, send_tensors)


def all_to_all_rounds(recv_tensors: Sequence[Tensor], send_tensors: Sequence[Tensor]) -> None:
    """:func:`all_to_all` under the name that scripts of the old package call. Collective.

    :param recv_tensors: as there
    :param send_tensors: as there
    """
    all_to_all(recv_tensors, send_tensors)


def exchange_tensors(tensors: Sequence[Tensor], recv_sizes: Optional[Sequence[int]] = None) -> List[Tensor]:
    """Sends ``tensors[q]`` to worker q and returns what each worker sent here. Collective.

    :param tensors: one per worker, ``[n_q, ...]``; dtype and trailing dimensions are the same everywhere
    :param recv_sizes: rows that each worker sends here; if omitted, they are exchanged first
    :returns: one tensor per worker, ``[recv_sizes[q], ...]``
    :raises ValueError: not one tensor or size per worker, or tensors that differ in dtype or trailing dimensions
    """
    world = _session.current().world
    if len(tensors) != world:
        raise ValueError(f"exchange_tensors: {len(tensors)} tensors for {world} workers; give one for each")
    first = tensors[0]
    for q, tensor in enumerate(tensors):
        if tensor.dim() == 0 or tensor.dtype != first.dtype or tensor.shape[1:] != first.shape[1:]:
            raise ValueError(
                f"exchange_tensors: tensors[{q}] is {tensor.dtype} {tuple(tensor.shape)}, tensors[0] is {first.dtype} "
                f"{tuple(first.shape)}; they must have one dtype and the same trailing dimensions"
            )
    if recv_sizes is None:
        sizes = torch.tensor([t.shape[0] for t in tensors], dtype=torch.int64)
        answer = torch.empty(world, dtype=torch.int64)
        _session.all_to_all(answer.split(1), sizes.split(1))
        rows = answer.tolist()
    else:
        rows = [int(n) for n in recv_sizes]
        if len(rows) != world:
            raise ValueError(f"exchange_tensors: {len(rows)} recv_sizes for {world} workers; give one for each")
    received = [first.new_empty((n, *first.shape[1:])) for n in rows]
    _session.all_to_all(received, tensors)
    return received


def exchange_single_tensor(recv_idx: int, send_idx: int, recv_tensor: Tensor, send_tensor: Tensor) -> None:
    """Sends ``send_tensor`` to worker ``send_idx`` while worker ``recv_idx`` fills ``recv_tensor``. Collective.

    :param recv_idx: worker to receive from; the own rank if ``send_idx`` is it too
    :param send_idx: worker to send to
    :param recv_tensor: as large as what the other worker sends
    :param send_tensor: any dtype
    :raises ValueError: a rank outside the session, or sizes that do not match
    """
    pair = send_idx, send_tensor, recv_idx, recv_tensor
    _session.current().lane.now(communicator.exchange_pair, abi.REDUCE, *pair)


def _op_name(op: Any) -> str:
    name = communicator.op_name(op, abi.REDUCE_OPS)
    if name is None:
        raise ValueError(
            f"all_reduce: operation {op} is not supported; give one of ReduceOp.SUM, MIN, MAX, PRODUCT, AVG"
        )
    return name
