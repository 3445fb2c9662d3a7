"""What owns something of the engine, and frees it when the last reference goes."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, Callable, NoReturn, Type, TypeVar

T = TypeVar("T")


def shared(cls: Type[T]) -> Type[T]:
    """Makes ``copy.copy`` and ``copy.deepcopy`` of an object the object itself. It must not change."""
    cls.__copy__ = lambda self: self  # type: ignore[attr-defined]
    cls.__deepcopy__ = lambda self, memo: self  # type: ignore[attr-defined]
    return cls


def refuse_pickle(what: str) -> NoReturn:
    """:raises TypeError: always"""
    raise TypeError(
        f"{what} is in the memory of this process and its engine, so it cannot be pickled, saved (torch.save) or sent "
        "to another process. Save the tensors that are needed by themselves, as data.x or graph.ndata['h'], and have "
        "each process load its partition: sar.construct_full_graph, or sar.pyg.load"
    )


def _free(free: Callable[[int], None], handle: int, *alive: Any) -> None:
    with contextlib.suppress(Exception):  # the session was closed, which frees all of it, or this is a forked child
        free(handle)


@shared
class Native:
    """Owns a handle of the engine. Copies are the object itself; it is not pickled.

    :ivar what: what errors call it
    """

    what = "what SAR's engine holds"

    def _own(self, free: Callable[[int], None], handle: int, *alive: Any) -> Callable[[], Any]:
        """Has ``free`` called with the handle when the object goes, but not at the end of the process, when the engine
        may be gone.

        :param alive: what has to be there until then
        :returns: what frees it before
        """
        release = weakref.finalize(self, _free, free, handle, *alive)
        release.atexit = False
        return release

    def __reduce_ex__(self, protocol: Any) -> Any:
        refuse_pickle(self.what)
