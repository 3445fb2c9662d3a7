"""What the operations on graphs belong to, for the engine to hold against the other workers.

Two operations of equal rows would pair if a worker ran them in another order, and give wrong numbers. So each names the
layer that runs it, and in backward the forward operation it belongs to. Layers have the same numbers on all workers,
from :func:`number_layers`. Where one is not known, nothing is compared: an observer on one worker may hide a layer (a
compiled or copied module), and never changes its number.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any, Iterator, List, NamedTuple, Optional, Tuple
from weakref import WeakKeyDictionary, WeakSet

from sar import errors

from . import library
from .log import warn_user

if TYPE_CHECKING:  # commands that open partitions do without torch
    from torch import nn


class Operation(NamedTuple):
    """A forward operation: its number, and what messages call it."""

    number: int = 0
    name: str = ""


class _State:
    """Of the session, where there are several workers."""

    def __init__(self, handle: Optional[int] = None, rank: int = 0) -> None:
        self.handle, self.rank = handle, rank
        self.last = Operation()
        self.layers: WeakKeyDictionary[nn.Module, Tuple[int, str]] = WeakKeyDictionary()
        self.models: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
        self.wrapped: WeakSet[nn.Module] = WeakSet()
        self.numbered = 0
        self.thread: Optional[int] = None


_state = _State()
_MOST_LAYERS = (1 << 12) - 1


def follow(handle: Optional[int] = None, rank: int = 0) -> None:
    """The session of several workers whose operations are told from now on; ``None``: there is none."""
    global _state
    _state = _State(handle, rank)


def begin(what: str, of: Optional[Operation] = None) -> None:
    """Says what the operations of the next call belong to.

    :param what: what messages call it where no layer is known
    :param of: of backward; by default these are forward operations
    :raises sar.ScheduleError: another thread is in the middle of a model
    """
    if _state.handle is None:
        return
    _take_turn(what)
    if of is not None:
        library.call("sar_session_set_place", _state.handle, 0, of.number, of.name)
        return
    _warn_of_averages()
    layer, name = _layer() or (0, what)
    _state.last = Operation(library.call("sar_session_set_place", _state.handle, layer, 0, name), name)


def _warn_of_averages() -> None:
    """Tells the user of DistributedDataParallel around a model on split graphs, once for each, unless the script chose
    how it reduces gradients."""
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel._active_ddp_module
    if model is None or not model.training or model in _state.wrapped:
        return
    _state.wrapped.add(model)
    if not model._get_ddp_logging_data().get("comm_hook"):
        warn_user(
            "DistributedDataParallel averages the gradients of the workers, but those of a split graph add up. Call "
            "register_comm_hook(None, sar.sum_gradients) on the wrapped model, or leave the wrapper out and call "
            "sar.gather_grads(model) after backward()"
        )


def last() -> Operation:
    """The forward operation that began last."""
    return _state.last


# ---- layers ------------------------------------------------------------------


def fingerprint(model: nn.Module) -> bytes:
    """7 bytes that tell what :func:`number_layers` of a model would do."""
    names = ";".join(name for name, _ in model.named_parameters())
    return hashlib.sha256(f"{_state.models.get(model)};{names}".encode()).digest()[:7]


def number_layers(model: nn.Module) -> None:
    """Gives the modules with parameters numbers, once. Every worker calls it where all have the same
    :func:`fingerprint`."""
    if _state.handle is None or model in _state.models:
        return
    _state.models[model] = _state.numbered
    for path, module in model.named_modules():
        if next(module.parameters(), None) is not None:
            number = _state.numbered % _MOST_LAYERS + 1
            _state.numbered += 1
            name = f"{type(module).__name__} {path}".rstrip()
            _state.layers[module] = number, name
            library.call("sar_session_name_layer", _state.handle, number, name)


@functools.cache
def _call() -> Any:
    """The code that calls modules."""
    from torch import nn

    return getattr(nn.Module, "_wrapped_call_impl", nn.Module._call_impl).__code__


def _layer() -> Optional[Tuple[int, str]]:
    """The number and name of the innermost module that runs, of those that have parameters.

    That is the module of a call whose ``forward`` is on the stack as it was written. Compiled or traced code may leave
    out the calls of inner modules.
    """
    frame: Optional[FrameType] = sys._getframe(2)
    codes: List[Any] = []
    call = _call()
    while frame is not None:
        if frame.f_code is call:
            module = frame.f_locals["self"]
            if not any(code is own for code in codes for own in _forwards(module)):
                return None
            found = _state.layers.get(module)
            if found is not None or next(module.parameters(), None) is not None:
                return found or (0, type(module).__name__)
            codes = []
        else:
            codes.append(frame.f_code)
        frame = frame.f_back
    return None


def _forwards(module: nn.Module) -> Iterator[Any]:
    """The code of the functions that ``forward`` may stand for."""
    for space in (module.__dict__, *(vars(c) for c in type(module).__mro__)):
        function = space.get("forward")
        while function is not None:
            code = getattr(function, "__code__", None)
            function = getattr(function, "__wrapped__", None) or getattr(function, "__func__", None)
            if function is None:
                yield code


# ---- threads -----------------------------------------------------------------

_WAITING = ("threading", "queue", "concurrent.futures", "multiprocessing", "asyncio", "selectors")
_NOT_OF_PYTHON = (type(None), threading._DummyThread)
_WORKING = ("sar.autograd", "sar.graph", "sar.nn", "sar.integrations", "torch.autograd")


def _take_turn(what: str) -> None:
    """Operations pair in the order in which each worker runs them, so two threads may take turns, but not run models
    side by side."""
    me, other = threading.get_ident(), _state.thread
    if me == other or type(threading._active.get(me)) in _NOT_OF_PYTHON:  # type: ignore[attr-defined]
        return  # a thread that Python did not start is torch's, whose caller waits for it
    if other is not None and _in_a_model(sys._current_frames().get(other)):
        names = {t.ident: t.name for t in threading.enumerate()}
        message = (
            f"rank {_state.rank} runs models on split graphs in two threads at once: thread {names.get(me, me)!r} "
            f"begins {what} while thread {names.get(other, other)!r} is in the middle of a model. The workers' "
            "operations pair in the order in which each runs them: run one model after the other, for example with a "
            "lock that is held from the begin of forward to the end of backward"
        )
        library.call("sar_session_abort", _state.handle, message)
        raise errors.ScheduleError(message, _state.rank)
    _state.thread = me


def _in_a_model(frame: Optional[FrameType]) -> bool:
    """Whether the thread of a frame computes a module or a gradient, and does not wait for another thread."""
    if frame is not None and _of(frame, _WAITING):
        return False
    call = _call()
    while frame is not None:
        if frame.f_code is call or _of(frame, _WORKING):
            return True
        frame = frame.f_back
    return False


def _of(frame: FrameType, packages: Tuple[str, ...]) -> bool:
    name = frame.f_globals.get("__name__") or ""
    return any(name == p or name.startswith(p + ".") for p in packages)
