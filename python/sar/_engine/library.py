"""Loads the shared object that holds the engine, and calls its functions.

Importing this module starts nothing. The first call loads the extension, both as the Python module that gopy made
and through ctypes on the same file, so that there is one Go runtime in the process. ctypes releases the GIL during a
call, so another Python thread runs while the engine computes or waits.

A Go runtime does not survive a fork: in a child of a process that has used the engine, every call raises.
"""

from __future__ import annotations

import ctypes as ct
import importlib
import json
import os
import threading
from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence, Union

from sar import errors

from . import interrupts
from .signatures import ABI_VERSION, PROTOTYPES, TYPES, DLTensor, Prototype, SizedStruct, Text

if TYPE_CHECKING:
    import torch

__all__ = ["DLTensor", "call", "calls", "face", "started", "tensor", "tensors"]


class _Engine:
    """The loaded extension: ``functions`` of the C ABI by name, and gopy's ``face``."""

    def __init__(self) -> None:
        try:
            self.face: Any = importlib.import_module("sar._ext.pybind")
            module = importlib.import_module("sar._ext._sar_engine")
        except ImportError as e:
            raise ImportError(
                f"the engine of sar cannot be loaded ({e}): it is built for CPython 3.9 and newer, for one "
                "processor, on Linux. Install a wheel for this machine, or build it in a clone with `make build`."
            ) from e
        path = module.__file__
        assert path is not None
        library = ct.CDLL(path)
        library.sar_abi_version.restype = ct.c_uint32
        version = library.sar_abi_version()
        if version != ABI_VERSION:
            raise ImportError(
                f"{path} has version {version} of the C interface, and this package was written for {ABI_VERSION}: "
                "build the extension again with `make build`, or install the package again."
            )
        self.functions: dict[str, Callable[..., Any]] = {}
        for name, prototype in PROTOTYPES.items():
            function = getattr(library, name, None)
            if function is None:
                continue  # named when it is called
            function.restype, function.argtypes = prototype.result, prototype.arguments
            self.functions[name] = function
        self.pid = os.getpid()


_loaded: Optional[_Engine] = None
_lock = threading.Lock()


def started() -> bool:
    """Whether the engine is loaded, in this process or, before a fork, in its parent."""
    return _loaded is not None


def _load() -> _Engine:
    global _loaded
    engine = _loaded
    if engine is None:
        # A lock that another thread of the parent held at a fork would never be released here.
        with _lock:
            if _loaded is None:
                _loaded = _Engine()
            engine = _loaded
    if engine.pid != os.getpid():
        raise RuntimeError(
            f"process {os.getpid()} was forked from process {engine.pid} after that had used sar, and the engine does "
            "not survive a fork. Start worker processes with the start method `spawn`: "
            "multiprocessing.get_context('spawn'), torch.multiprocessing.spawn, "
            "DataLoader(..., multiprocessing_context='spawn'), or `sar launch`."
        )
    return engine


def _forget_lock() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)


def face() -> Any:
    """The module that gopy made. Call this for each use, so that a use after a fork is detected."""
    return _load().face


def _function(name: str) -> tuple[_Engine, Callable[..., Any], Prototype]:
    engine = _load()
    function = engine.functions.get(name)
    if function is None:
        known = "is not in the loaded extension: build it again" if name in PROTOTYPES else "is not in sar.h"
        raise RuntimeError(f"{name} {known}")
    return engine, function, PROTOTYPES[name]


def call(name: str, *args: Any) -> Any:
    """Calls a function of ``sar.h``, and raises what its status stands for.

    Tensors, sequences of tensors, strings and structs are passed as C wants them, numbers as the prototype says.

    :param args: all arguments but the last ones, which are for results
    :returns: the result: a number, a string, or what JSON says; a list where there are several; of a function without a
        status, what it returns
    """
    engine, function, prototype = _function(name)
    results = [kind._type_() for kind in prototype.arguments[len(args) :]]
    sent = [*map(argument, args), *map(ct.byref, results)]
    outer = interrupts.around()
    try:
        interrupts.entering()
        status = function(*sent)
    finally:  # the handler of a signal may raise before the next line
        interrupts.left(outer)
    if not prototype.fails:
        return status.decode("utf-8", "replace") if isinstance(status, bytes) else status
    if status != 0:
        raise _error(engine, status)
    found = [_text(engine, one) if isinstance(one, Text) else one.value for one in results]
    if prototype.json:
        return json.loads(found[0])
    return found if len(found) > 1 else found[0] if found else None


def _text(engine: _Engine, made: Text) -> str:
    try:
        return ct.string_at(made.value or 0).decode()
    finally:
        engine.functions["sar_free_string"](made)


def calls(name: str) -> Callable[..., Any]:
    """:func:`call` of one function."""
    return lambda *args: call(name, *args)


def _error(engine: _Engine, status: int) -> BaseException:
    """The exception for the last error of this thread."""
    info = TYPES["sar_error_info"]()
    engine.functions["sar_last_error_info"](ct.byref(info))

    def text(value: Optional[bytes]) -> str:
        return value.decode("utf-8", "replace") if value else ""

    message, rank = text(info.message), info.rank
    if status == 14:
        message += ": call sar.initialize_comms again"
    if status == 3:
        return errors.FormatError(message, text(info.file), info.offset)
    if status in (4, 5):
        kind = errors.PeerLostError if status == 4 else errors.RemoteError
        return kind(message, rank, text(info.host), text(info.phase))
    if status == 7:
        return errors.BudgetError(message, info.minimum)
    ranked = {6: errors.ScheduleError, 8: errors.DeadlineError, 12: errors.RendezvousError}
    if status in ranked:
        return ranked[status](message, rank)
    if status == 10 and info.error_number:
        return OSError(info.error_number, message)  # FileNotFoundError, PermissionError and so on
    return {1: ValueError, 2: TypeError, 10: OSError}.get(status, RuntimeError)(message)


# ---- arguments ---------------------------------------------------------------


def argument(value: Any) -> Any:
    """What C gets for an argument of :func:`call`."""
    if hasattr(value, "data_ptr"):  # a tensor
        return tensor(value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, SizedStruct):
        return ct.byref(value)
    if isinstance(value, (list, tuple)):
        return tensors(value)
    if hasattr(value, "__array_interface__") and value.shape:  # an array of numpy, and no number
        return tensor(value)
    return value


def tensors(given: Sequence[Union[torch.Tensor, DLTensor, None]]) -> Any:
    """A ``DLTensor[n]``, with data NULL where there is no tensor; NULL for none at all."""
    views = [DLTensor() if t is None else t if isinstance(t, DLTensor) else tensor(t) for t in given]
    array: Any = (DLTensor * len(views))(*views) if views else None
    if views:
        array._keep = views  # the shapes that the copies point at live in the originals
    return array


# By the name that torch and numpy share: DLPack's code (0 int, 1 uint, 2 float, 4 bfloat, 6 bool) and bits.
_DTYPES = {
    "bool": (6, 8),
    **{f"int{bits}": (0, bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (1, bits) for bits in (8, 16, 32, 64)},
    "float16": (2, 16),
    "bfloat16": (4, 16),
    "float32": (2, 32),
    "float64": (2, 64),
}
_known: dict[Any, Any] = {}  # the same, a DLDataType, by dtype object
_CPU = TYPES["DLDevice"](1, 0)


def _dtype(dtype: Any) -> Any:
    found = _known.get(dtype)
    if found is None:
        entry = _DTYPES.get(str(dtype).rpartition(".")[2])
        if entry is None:
            raise TypeError(f"SAR's engine does not work on tensors of {dtype}")
        found = _known[dtype] = TYPES["DLDataType"](*entry, 1)
    return found


def knows(dtype: Any) -> bool:
    """Whether the engine can be given tensors of a dtype."""
    return dtype in _known or str(dtype).rpartition(".")[2] in _DTYPES


VECTORIZED = (
    "message passing on a split graph cannot be vectorized (jacobian(vectorize=True), is_grads_batched, vmap, "
    "torch.func): its exchanges between workers take tensors that have memory, one at a time. Compute one "
    "gradient after the other, as torch.autograd.functional.jacobian(vectorize=False) and loops over grad do"
)


def tensor(t: Any) -> DLTensor:
    """The ``DLTensor`` of a torch tensor or numpy array. It shares the memory, and keeps ``t`` alive."""
    device = getattr(t, "device", None)
    if hasattr(t, "data_ptr"):
        if device is not None and device.type != "cpu":
            raise TypeError(
                f"SAR's engine works on CPU tensors; this one, of shape {list(t.shape)}, is on {device}: "
                "move it with .cpu()"
            )
        try:
            address, steps = t.data_ptr(), t.stride()
        except RuntimeError:
            raise RuntimeError(VECTORIZED) from None
    elif hasattr(t, "__array_interface__"):
        address = t.__array_interface__["data"][0]
        steps = [s // t.itemsize for s in t.strides]
    else:
        raise TypeError(f"a torch tensor or numpy array is needed, not {type(t).__name__}")
    n = len(t.shape)
    shape, strides = (ct.c_int64 * n)(*t.shape), (ct.c_int64 * n)(*steps)
    pointer = ct.POINTER(ct.c_int64)
    out = DLTensor(address, _CPU, n, _dtype(t.dtype), ct.cast(shape, pointer), ct.cast(strides, pointer), 0)
    out._keep = (t, shape, strides)
    return out
