"""Process groups of ``torch.distributed`` whose messages the engine carries: the backend ``sar``.

The default group that :func:`sar.initialize_comms` makes uses the session of the graphs: its communicator for
gradients, which it shares with :mod:`sar.comm`. Each other group is a session of the engine of its own, whose ranks
meet through the group's store. So groups disturb neither each other nor operations on graphs, and a group of some ranks
is as good as one of all. A group fails as a whole: after an error in an operation each further one raises it too.

Tensors are CPU tensors of any strides. What is moved has any dtype; what is reduced by the engine has one of its
dtypes, and other reductions are folded by torch, in the order of ranks, from the values of all.
"""

from __future__ import annotations

import collections
import datetime
import os
import sys
import threading
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from sar._engine import abi, communicator
from sar._engine.communicator import Lane
from sar._engine.session import Session

from . import network, rendezvous, shutdown, tokens
from .store import Store
from .work import Work

_Base: Any = torch.distributed.ProcessGroup  # torch's versions name the arguments of its methods differently
_Move = Tuple[Sequence[Tensor], Sequence[Tensor]]
_PAIR_WINDOW = 1 << 20  # bytes that the link of a pair of ranks takes
# Older versions of torch let go of the Python half of a handle that they give to their own C++ code, and ask it for its
# future a moment later.
_FORGOTTEN = 8 if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 8) else 0
_FOLDS: Dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.add,
    "avg": torch.add,
    "min": torch.minimum,
    "max": torch.maximum,
    "product": torch.mul,
    "band": torch.bitwise_and,
    "bor": torch.bitwise_or,
    "bxor": torch.bitwise_xor,
}
_HALVES = (torch.float16, torch.bfloat16)
_REDUCED = (*_HALVES, torch.float64, torch.float32, torch.int64, torch.int32, torch.uint8, torch.bool)  # by the engine


class ProcessGroup(_Base):
    """A group of backend ``sar``. Scripts make it by ``torch.distributed.init_process_group`` or ``new_group``.

    :param store: where the ranks of this group, and no others, meet
    :param timeout: for the rendezvous, and for each operation
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> None:
        super().__init__(rank, size)
        self._store, self._me, self._size = store, rank, size
        self._seconds = timeout.total_seconds()
        self._name = ""
        self._pairs: Dict[Any, Lane] = {}
        self._lock = threading.Lock()
        self._remembered: Deque[Work] = collections.deque(maxlen=_FORGOTTEN)
        self._own: List[Lane] = []  # that end with the group
        if _being_joined is not None:
            self._lane, self._comm = _being_joined.lane, abi.REDUCE
        else:
            key, missing = rendezvous.new_key(store, "sar/native", rank), "rank 0 of the group has not come"
            self._lane, self._comm = self._new_lane(lambda: self._session(key, rank, size, 0, missing)), abi.TRAIN
            self._lane.open()

    def _new_lane(self, open_session: Callable[[], int]) -> Lane:
        self._own.append(Lane(open_session, shutdown.close_group))
        return self._own[-1]

    def _session(self, key: str, rank: int, size: int, window: int, missing: str) -> int:
        """Opens a session of ranks that meet through the store, by the name of a key."""
        settings = rendezvous.settings(self._seconds, self._seconds)
        if settings["transport"] == "torch":
            raise ValueError(
                "SAR_TRANSPORT=torch: a group of backend sar cannot travel over torch.distributed; choose another "
                "transport, or another backend for the group"
            )
        own = (_own_address() if rank == 0 else "", 0, tokens.given())
        place = rendezvous.announce(self._store, key, rank, self._seconds, own, missing)
        handle = rendezvous.open_session(rank, size, place, {**settings, "window_bytes": window})
        shutdown.add_group(handle)
        return handle

    def getBackendName(self) -> str:
        return rendezvous.NATIVE

    # torch asks a group's backends for what follows, and here there are none

    supports_coalescing = False

    @property
    def _device_types(self) -> List[torch.device]:
        """What ``async_save`` wants to see. While torch makes a group it asks to find out whether it is its own."""
        return [torch.device("cpu")] if self in torch.distributed.distributed_c10d._world.pg_names else []

    def _get_backend(self, device: Any) -> Any:
        return self

    def setGroupName(self, name: str) -> None:
        self._name = name

    _set_group_name = setGroupName

    def getGroupName(self) -> str:
        return self._name

    @property
    def group_name(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"<process group of backend {rendezvous.NATIVE}: rank {self._me} of {self._size}>"

    def shutdown(self) -> None:
        """Leaves the group; ranks that wait for this one fail."""
        with self._lock:
            lanes = list(self._own)
        for lane in lanes:
            lane.close()

    abort = shutdown

    def __del__(self) -> None:
        if hasattr(self, "_own"):
            self.shutdown()

    # ---- reductions ----------------------------------------------------------

    def allreduce(self, tensors: List[Tensor], opts: Any = None) -> Work:
        op = _op_name(opts, "all_reduce")
        _check(tensors)

        def operation(handle: int) -> None:
            for tensor in tensors:
                self._all_reduce(handle, tensor, op)

        return self._run(operation, tensors, opts)

    allreduce_coalesced = allreduce

    def _all_reduce(self, handle: int, tensor: Tensor, op: str) -> None:
        if op in abi.REDUCE_OPS and tensor.dtype in _REDUCED:
            communicator.all_reduce(handle, self._comm, tensor, op)
        else:
            rows = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(self._size)]
            self._move(handle, rows, [tensor] * self._size)
            tensor.detach().copy_(_fold(rows, op))

    def reduce(self, tensors: List[Tensor], opts: Any) -> Work:
        op, root = _op_name(opts, "reduce"), opts.rootRank
        _check(tensors)

        def operation(handle: int) -> None:
            for tensor in tensors:
                self._all_reduce(handle, tensor if self._me == root else tensor.clone(), op)

        return self._run(operation, tensors, opts)

    def reduce_scatter(self, outputs: List[Tensor], inputs: List[List[Tensor]], opts: Any = None) -> Work:
        op = _op_name(opts, "reduce_scatter")
        _check([*outputs, *(t for parts in inputs for t in parts)])

        def operation(handle: int) -> None:
            for output, parts in zip(outputs, inputs):
                rows = [torch.empty_like(output, memory_format=torch.contiguous_format) for _ in range(self._size)]
                self._move(handle, rows, parts)
                output.detach().copy_(_fold(rows, op))

        return self._run(operation, outputs, opts)

    def reduce_scatter_single_coalesced(self, outputs: List[Tensor], inputs: List[Tensor], opts: Any = None) -> Work:
        for output, input in zip(outputs, inputs):
            self._check_parts("reduce_scatter_tensor: the input", input, "the output", output)
        parts = [list(i.detach().reshape(self._size, *o.shape).unbind()) for o, i in zip(outputs, inputs)]
        return self.reduce_scatter(outputs, parts, opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    _reduce_scatter_base = reduce_scatter_single

    # ---- what is moved -------------------------------------------------------

    def broadcast(self, tensors: List[Tensor], opts: Any) -> Work:
        _check(tensors)

        def operation(handle: int) -> None:
            for tensor in tensors:
                communicator.broadcast(handle, self._comm, tensor, opts.rootRank)

        return self._run(operation, tensors, opts)

    def _exchange(self, moves: Sequence[_Move], result: Any, opts: Any) -> Work:
        """For each move, ``outputs[q]`` gets what rank q has as ``inputs[own rank]``."""
        for outputs, inputs in moves:
            for name, tensors in (("outputs", outputs), ("inputs", inputs)):
                if len(tensors) != self._size:
                    raise ValueError(f"{len(tensors)} {name} for a group of {self._size} ranks: give one for each")
            _check([*outputs, *inputs])

        def operation(handle: int) -> None:
            for outputs, inputs in moves:
                self._move(handle, outputs, inputs)

        return self._run(operation, result, opts)

    def allgather(self, outputs: List[List[Tensor]], inputs: List[Tensor], opts: Any = None) -> Work:
        return self._exchange([(o, [i] * self._size) for o, i in zip(outputs, inputs)], outputs, opts)

    def allgather_coalesced(self, outputs: List[List[Tensor]], inputs: List[Tensor], opts: Any = None) -> Work:
        by_tensor = [list(tensors) for tensors in zip(*outputs)]  # they are given by rank
        return self.allgather(by_tensor, inputs, opts)

    def all_gather_single_coalesced(self, outputs: List[Tensor], inputs: List[Tensor], opts: Any = None) -> Work:
        for output, input in zip(outputs, inputs):
            self._check_parts("all_gather_into_tensor: the output", output, "the input", input)
        return self.allgather([self._parts(output) for output in outputs], inputs, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        return self.all_gather_single_coalesced([output], [input], opts)

    _allgather_base = all_gather_single

    def gather(self, outputs: List[List[Tensor]], inputs: List[Tensor], opts: Any) -> Work:
        nothing = inputs[0].new_empty(0)
        sent = [inputs[0] if q == opts.rootRank else nothing for q in range(self._size)]
        got = outputs[0] if self._me == opts.rootRank else [nothing] * self._size
        return self._exchange([(got, sent)], outputs, opts)

    def gather_single(self, output: Tensor, input: Tensor, opts: Any) -> Work:
        return self.gather([self._parts(output)] if self._me == opts.rootRank else [], [input], opts)

    def scatter(self, outputs: List[Tensor], inputs: List[List[Tensor]], opts: Any) -> Work:
        nothing = outputs[0].new_empty(0)
        sent = inputs[0] if self._me == opts.rootRank else [nothing] * self._size
        got = [outputs[0] if q == opts.rootRank else nothing for q in range(self._size)]
        return self._exchange([(got, sent)], outputs, opts)

    def alltoall(self, outputs: List[Tensor], inputs: List[Tensor], opts: Any = None) -> Work:
        return self._exchange([(outputs, inputs)], outputs, opts)

    def all_to_all_single(
        self, output: Tensor, input: Tensor, output_splits: List[int], input_splits: List[int], opts: Any = None
    ) -> Work:
        moves = [(self._rows(output, output_splits, "output"), self._rows(input, input_splits, "input"))]
        return self._exchange(moves, output, opts)

    alltoall_base = all_to_all_single

    def _check_parts(self, name: str, tensor: Tensor, part_name: str, part: Tensor) -> None:
        """Refuses a tensor that does not consist of one part for each rank."""
        if tensor.numel() != self._size * part.numel():
            raise ValueError(
                f"{name} {tuple(tensor.shape)} must have {self._size} times as many elements as {part_name} "
                f"{tuple(part.shape)}"
            )

    def _parts(self, output: Tensor) -> List[Tensor]:
        """One part of a tensor for each rank, in the order of its elements."""
        return list(output.detach().view(-1).view(self._size, -1).unbind())

    def _rows(self, tensor: Tensor, splits: Sequence[int], name: str) -> List[Tensor]:
        rows = tensor.shape[0] if tensor.dim() else 0
        if not splits:
            if rows % self._size:
                raise ValueError(
                    f"all_to_all_single: the {rows} rows of the {name} cannot be divided equally among {self._size} "
                    "ranks: give the splits"
                )
            splits = [rows // self._size] * self._size
        if len(splits) != self._size or sum(splits) != rows:
            raise ValueError(
                f"all_to_all_single: the {name} splits {list(splits)} must be {self._size} numbers whose sum is the "
                f"number of rows, {rows}"
            )
        return list(tensor.detach().split(list(splits)))

    def barrier(self, opts: Any = None) -> Work:
        return self._run(lambda handle: abi.barrier(handle, self._comm), [], opts)

    # ---- from one rank to another --------------------------------------------

    def send(self, tensors: List[Tensor], dstRank: int, tag: int = 0) -> Work:
        _check(tensors)
        return self._pair(self._me, dstRank, tag, tensors)

    def recv(self, tensors: List[Tensor], srcRank: int, tag: int = 0) -> Work:
        _check(tensors)
        return self._pair(srcRank, self._me, tag, tensors)

    def recv_anysource(self, tensors: List[Tensor], tag: int = 0) -> Work:
        raise NotImplementedError("backend sar receives from a rank that is named: give recv the argument src")

    def _pair(self, source: int, target: int, tag: int, tensors: List[Tensor]) -> Work:
        if tag:
            raise NotImplementedError(
                f"tag {tag}: backend sar delivers what one rank sends to another in the order in which it was sent; "
                "receive in that order, without tags"
            )
        with self._lock:
            lane = self._pairs.get((source, target))
            if lane is None:
                lane = self._pairs[source, target] = self._new_lane(lambda: self._meet_one(source, target))
        sends = source == self._me

        def operation(handle: int) -> None:
            for tensor in tensors:
                peers = (1, tensor, -1, None) if sends else (-1, None, 0, tensor)
                communicator.exchange_pair(handle, abi.TRAIN, *peers)

        return self._begin(lane, operation, tensors, True)

    def _meet_one(self, source: int, target: int) -> int:
        """Opens the session of two ranks in which one sends to the other."""
        missing = f"rank {source} sent nothing to rank {target}"
        return self._session(f"pair/{source}/{target}", int(source != self._me), 2, _PAIR_WINDOW, missing)

    # ---- how operations run --------------------------------------------------

    def _move(self, handle: int, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
        communicator.all_to_all(handle, self._comm, outputs, inputs)

    def _run(self, operation: Callable[[int], None], result: Any, opts: Any) -> Work:
        return self._begin(self._lane, operation, result, getattr(opts, "asyncOp", True))

    def _begin(self, lane: Lane, operation: Callable[[int], None], result: Any, asynchronous: bool) -> Work:
        work = Work(result)
        self._remembered.append(work)
        if asynchronous:
            lane.later(operation, work.finish)
        else:
            lane.now(operation)
            work.finish()
        return work


_being_joined: Optional[Session] = None  # whose default group torch is making


def make_default(session: Session, timeout: datetime.timedelta) -> None:
    """Makes the default group of ``torch.distributed``, over a session."""
    global _being_joined
    _being_joined, store, hook = session, Store(session.handle), sys.excepthook
    dist: Any = torch.distributed
    try:
        dist.init_process_group("sar", store=store, rank=session.rank, world_size=session.world, timeout=timeout)
    finally:
        _being_joined, sys.excepthook = None, hook  # torch's puts the rank before each line; `sar launch` does so too
    dist.group.WORLD.kept = store  # of which torch keeps the C++ half alone


def _own_address() -> str:
    """Where this process listens for the others of a group."""
    master = os.environ.get("MASTER_ADDR", "")
    return master if master and network.is_here(master) else network.get_socket().ip_addr


def _fold(rows: Sequence[Tensor], op: str) -> Tensor:
    """Reduces in the order of ranks; the 16-bit types in float32, rounded once, as the engine does."""
    if op == "avg" and not (rows[0].is_floating_point() or rows[0].is_complex()):
        raise ValueError(f"an average of {rows[0].dtype} would be cut off: reduce with SUM and divide")
    folded = rows[0].float() if rows[0].dtype in _HALVES else rows[0]
    for row in rows[1:]:
        folded = _FOLDS[op](folded, row)
    return folded / len(rows) if op == "avg" else folded


def _check(tensors: Sequence[Tensor]) -> None:
    for tensor in tensors:
        if tensor.device.type != "cpu":
            raise ValueError(
                f"backend sar takes CPU tensors, and one of shape {tuple(tensor.shape)} is on {tensor.device}: move it "
                "with .cpu()"
            )
        if tensor.layout != torch.strided:
            raise ValueError(f"backend sar takes dense tensors, and one is {tensor.layout}: make it dense")
        if tensor.dtype != tensors[0].dtype:
            raise ValueError(f"the tensors of one operation differ in dtype: {tensors[0].dtype} and {tensor.dtype}")


def _op_name(opts: Any, call: str) -> str:
    op = ReduceOp.SUM if opts is None else opts.reduceOp
    name = communicator.op_name(op, _FOLDS)
    if name is None:
        raise ValueError(f"{call}: operation {op} is not supported; give one of {', '.join(_FOLDS).upper()}")
    return name
