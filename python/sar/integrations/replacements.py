"""A set of replacements in other modules: all or none, and reversible."""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

__all__ = ["Patches", "apply_together"]

_ABSENT: Any = object()


class _Change(NamedTuple):
    """``label``: the dotted name for errors; ``own``: what the owner itself has, which is not what it inherits."""

    owner: Any
    name: str
    label: str
    own: Any
    new: Any


class Patches:
    """What will be replaced where. Nothing changes before :meth:`apply`.

    Names are looked up while the list is made; those that do not exist are collected, so that the error can list all.

    :param library: the package whose names are replaced
    :param otherwise: what to do where a name is missing, for the error
    """

    def __init__(self, library: str, otherwise: str) -> None:
        self.library, self.otherwise = library, otherwise
        self.missing: List[str] = []
        self._changes: Dict[Tuple[int, str], _Change] = {}
        self._applied: List[_Change] = []

    def look_up(self, path: str) -> Any:
        """The module, class or function of a dotted name; None where it is missing."""
        parts = path.split(".")
        for end in range(len(parts), 0, -1):
            try:
                found: Any = importlib.import_module(".".join(parts[:end]))
            except ImportError:
                continue
            for name in parts[end:]:
                found = getattr(found, name, _ABSENT)
            if found is not _ABSENT:
                return found
            break
        self.missing.append(path)
        return None

    def put(self, owner: str, name: str, new: Any) -> None:
        """Puts ``new`` in the place of a name of a module or class that there is."""
        if self.look_up(f"{owner}.{name}") is not None:
            self._plan(self.look_up(owner), name, f"{owner}.{name}", new)

    def wrap(self, owner: Any, name: str, function: Callable[..., Any]) -> None:
        """Has ``owner.name(*args)`` call ``function(original, *args)``. Of several, the last one is called first.

        :param owner: a module or class, or the dotted name of one
        """
        label = f"{owner if isinstance(owner, str) else _label(owner)}.{name}"
        found = self.look_up(owner) if isinstance(owner, str) else owner
        if found is None:
            return
        planned = self._changes.get((id(found), name))
        original = getattr(found, name, None) if planned is None else planned.new
        if original is None:
            self.missing.append(label)
            return
        self._plan(found, name, label, _wrapped(original, function))

    def wrap_everywhere(self, path: str, function: Callable[..., Any], package: Optional[str] = None) -> None:
        """:meth:`wrap` for a function, in every module that holds it under any name.

        :param path: the dotted name of the function
        :param package: only modules of this package
        """
        original = self.look_up(path)
        if original is None:
            return
        new = _wrapped(original, function)
        for label, module in list(sys.modules.items()):
            if package is not None and label.split(".")[0] != package:
                continue
            for name, value in list(getattr(module, "__dict__", {}).items()):
                if value is original:
                    self._plan(module, name, f"{label}.{name}", new)

    def _plan(self, owner: Any, name: str, label: str, new: Any) -> None:
        self._changes[id(owner), name] = _Change(owner, name, label, vars(owner).get(name, _ABSENT), new)

    def apply(self) -> None:
        """Makes all replacements.

        :raises RuntimeError: names are missing, or cannot be set; nothing is replaced then
        """
        if self.missing:
            version = getattr(importlib.import_module(self.library), "__version__", "of unknown version")
            raise RuntimeError(
                f"{self.library} {version} has no {', no '.join(dict.fromkeys(self.missing))}, which SAR replaces so "
                f"that its layers run on graphs split over workers. Nothing was replaced. {self.otherwise}"
            )
        try:
            for change in self._changes.values():
                setattr(change.owner, change.name, change.new)
                self._applied.append(change)
        except BaseException:
            self.undo()
            raise

    @property
    def active(self) -> bool:
        """Whether the replacements are made."""
        return bool(self._applied)

    def undo(self) -> None:
        """Takes the replacements back, but for names that somebody else has replaced since."""
        while self._applied:
            change = self._applied.pop()
            if vars(change.owner).get(change.name) is not change.new:
                continue
            if change.own is _ABSENT:
                delattr(change.owner, change.name)
            else:
                setattr(change.owner, change.name, change.own)


def apply_together(lists: Sequence[Patches]) -> None:
    """Makes the replacements of all lists, or of none."""
    done: List[Patches] = []
    try:
        for patches in lists:
            patches.apply()
            done.append(patches)
    except BaseException:
        for patches in reversed(done):
            patches.undo()
        raise


def _label(owner: Any) -> str:
    return f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else str(owner.__name__)


def _wrapped(original: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return function(original, *args, **kwargs)

    return replaced
