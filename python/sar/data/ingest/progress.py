"""How long work tells what it does: in steps, each of which may say how far it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Callable, Protocol


class Step(Protocol):
    """A step that is under way. ``note`` is shown with its name when it is over."""

    note: str

    def progress(self, done: int, total: int, unit: str = "") -> None:
        """Says how far the step is, in ``unit`` where that is given."""

    def announce(self) -> None:
        """Says that a step begins which holds the interpreter, and cannot say how far it is."""


Stages = Callable[[str], AbstractContextManager[Step]]


class _Silent:
    note = ""

    def progress(self, done: int, total: int, unit: str = "") -> None:
        pass

    def announce(self) -> None:
        pass


@contextmanager
def silent(_what: str) -> Iterator[Step]:
    """A step that is not shown."""
    yield _Silent()
