"""When the main thread counts as being in the engine, which decides whether Ctrl-C ends the session."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from sar._engine import interrupts, library
from sar._engine.signatures import Prototype


def engine(monkeypatch: pytest.MonkeyPatch, **functions: Callable[[], int]) -> None:
    monkeypatch.setattr(library, "_function", lambda name: (None, functions[name], Prototype(int, [])))


def inside() -> bool:
    return interrupts._call > 0


def test_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    engine(monkeypatch, one=lambda: seen.append((inside(), interrupts._call)) or 0)
    library.call("one")
    library.call("one")
    assert [where for where, _ in seen] == [True, True] and seen[0] != seen[1]
    assert not inside()


def test_a_handler_that_raises_as_the_call_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    engine(monkeypatch, one=interrupted)
    with pytest.raises(KeyboardInterrupt):
        library.call("one")
    assert not inside()


def test_a_call_within_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions of Python that the engine calls may call it; then it goes on in the call that they came from."""
    seen: list[Any] = []

    def outer() -> int:
        seen.append(interrupts._call)
        library.call("inner")
        seen.append(interrupts._call)
        return 0

    engine(monkeypatch, outer=outer, inner=lambda: seen.append(interrupts._call) or 0)
    library.call("outer")
    assert min(seen) > 0 and len(set(seen)) == 3
    assert not inside()
