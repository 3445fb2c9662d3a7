"""A set of replacements in other modules: all or none, and reversible.

A replacement asks first whether it is concerned, by the types of its arguments. If not it calls the original, and both
of torch's compilers see that: torch.compile evaluates the question while it traces, and torch.jit.script compiles the
source of the original with the names of its module.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import sys
import types
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

_ABSENT: Any = object()

Concerned = Callable[[Tuple[Any, ...], Dict[str, Any]], bool]
"""Tells from the arguments and keyword arguments of a call whether it is for a replacement. torch.compile traces it."""


def given(*kinds: type) -> Concerned:
    """Whether an argument is of one of these types, or an item of a list, tuple or dictionary among them is."""

    def concerned(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> bool:
        for value in (*args, *kwargs.values()):
            if isinstance(value, kinds):
                return True
            if isinstance(value, (list, tuple, dict)):
                for item in value.values() if isinstance(value, dict) else value:
                    if isinstance(item, kinds):
                        return True
        return False

    return concerned


class Replaced(NamedTuple):
    """A name of another library that is replaced.

    :ivar owner: dotted name of the module or class
    :ivar name: of its attribute
    :ivar why: what it is replaced for
    """

    owner: str
    name: str
    why: str


_lists: List[Patches] = []
"""The lists whose replacements are made now."""


def replaced() -> List[Replaced]:
    """What SAR replaces at present in DGL and torch_geometric, name by name, in the order in which it was replaced.

    Nothing is replaced outside these libraries, nor before the first graph. Calls that concern no split graph go to the
    originals, which ``torch.compile`` and ``torch.jit.script`` also take. :func:`sar.unpatch_dgl` and
    :func:`sar.pyg.restore` take everything back.
    """
    return [one for patches in _lists for one in patches.listed()]


class _Change(NamedTuple):
    """``label``: the dotted name of the owner; ``own``: what the owner itself has, which is not what it inherits."""

    owner: Any
    name: str
    label: str
    own: Any
    new: Any
    why: str


class Patches:
    """What will be replaced where. Nothing changes before :meth:`apply`.

    Names are looked up while the list is made; those that do not exist are collected, so that the error can list all.

    :param library: the package whose names are replaced; no others are
    :param otherwise: what to do where a name is missing, for the error
    :param concerned: for which calls, unless a replacement says so itself
    """

    def __init__(self, library: str, otherwise: str, concerned: Concerned) -> None:
        self.library, self.otherwise, self._concerned = library, otherwise, concerned
        self.missing: List[str] = []
        self._changes: Dict[Tuple[int, str], _Change] = {}
        self._made: Dict[Tuple[Any, ...], Any] = {}
        self._applied: List[_Change] = []

    def look_up(self, path: str) -> Any:
        """The module, class or function of a dotted name; None where it is missing."""
        try:
            return pkgutil.resolve_name(path)
        except (ImportError, AttributeError):
            self.missing.append(path)
            return None

    def put(self, owner: str, name: str, new: Any, why: str) -> None:
        """Puts ``new`` in the place of a name of a module or class that there is."""
        if self.look_up(f"{owner}.{name}") is not None:
            self._plan(self.look_up(owner), name, owner, new, why)

    def wrap(
        self, owner: str, name: str, function: Callable[..., Any], why: str, concerned: Optional[Concerned] = None
    ) -> None:
        """Has ``owner.name(*args)`` call ``function(original, *args)``.

        :param owner: the dotted name of a module or class
        :param why: see :class:`Replaced`
        :param concerned: for which calls
        """
        original = self.look_up(f"{owner}.{name}")
        if original is None:
            return
        found = self.look_up(owner)
        if isinstance(found, type) and name not in vars(found):
            original = _inherited(found, name, original)
        new = self._wrapper(original, function, concerned)
        if inspect.ismodule(found):
            new.__module__ = owner  # where pickle finds it
        self._plan(found, name, owner, new, why)

    def wrap_within(
        self, package: str, path: str, function: Callable[..., Any], why: str, concerned: Optional[Concerned] = None
    ) -> None:
        """:meth:`wrap` for a function, in every loaded module of a package of the library that holds it.

        Where scripts find it elsewhere than in the module that defines it, that module keeps the original, so that both
        can be pickled.

        :param path: the dotted name of the function, where scripts find it
        """
        original = self.look_up(path)
        if original is None:
            return
        new = self._wrapper(original, function, concerned)
        home, defined = path.rpartition(".")[0], original.__module__
        if f"{home}.".startswith(f"{package}."):
            new.__module__ = home
        for label, module in list(sys.modules.items()):
            if f"{label}.".startswith(f"{package}.") and (label != defined or home == defined):
                for name, value in list(getattr(module, "__dict__", {}).items()):
                    if value is original:
                        self._plan(module, name, label, new, why)

    def _wrapper(self, original: Any, function: Callable[..., Any], concerned: Optional[Concerned]) -> Any:
        """One for all places."""
        key = original, function, concerned
        if key not in self._made:
            self._made[key] = _wrapped(original, function, concerned or self._concerned)
        return self._made[key]

    def _plan(self, owner: Any, name: str, label: str, new: Any, why: str) -> None:
        self._changes[id(owner), name] = _Change(owner, name, label, vars(owner).get(name, _ABSENT), new, why)

    def listed(self) -> List[Replaced]:
        """What is replaced, or will be, in the order in which it is."""
        return [Replaced(change.label, change.name, change.why) for change in self._changes.values()]

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
        _lists.append(self)

    @property
    def active(self) -> bool:
        """Whether the replacements are made."""
        return bool(self._applied)

    def undo(self) -> None:
        """Takes the replacements back, but for names that somebody else has replaced since. Modules that imported one
        of them while it was there get the original."""
        if self in _lists:
            _lists.remove(self)
        wrappers = {id(new): (new, key[0]) for key, new in self._made.items()}
        while self._applied:
            change = self._applied.pop()
            if vars(change.owner).get(change.name) is not change.new:
                continue
            if change.own is _ABSENT:
                delattr(change.owner, change.name)
            else:
                setattr(change.owner, change.name, change.own)
        for module in list(sys.modules.values()):
            for name, value in list(getattr(module, "__dict__", {}).items()):
                new, original = wrappers.get(id(value), (None, None))
                if new is not None and value is new:
                    setattr(module, name, original)


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


def _inherited(owner: Any, name: str, now: Callable[..., Any]) -> Callable[..., Any]:
    """A method that an owner inherits: the one that is there when it is called, since others replace it as well."""

    @functools.wraps(now)
    def original(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(super(owner, self), name)(*args, **kwargs)

    return original


def _wrapped(original: Callable[..., Any], function: Callable[..., Any], concerned: Concerned) -> Callable[..., Any]:
    def replaced(*args: Any, **kwargs: Any) -> Any:
        if concerned(args, kwargs):
            return function(original, *args, **kwargs)
        return original(*args, **kwargs)

    names = getattr(original, "__globals__", None)
    if names is None:
        return functools.wraps(original)(replaced)
    # torch.jit.script reads the source of what is wrapped, and looks its names up where the wrapper looks up its own
    made = functools.wraps(original)(
        types.FunctionType(replaced.__code__, names, replaced.__name__, None, replaced.__closure__)
    )
    _share_overloads(original, made)
    return made


def _share_overloads(original: Any, made: Any) -> None:
    """Gives a wrapper the overloads that torch.jit knows of the original. It finds them by name, and forgets them once
    it has compiled them for one function."""
    jit, state = sys.modules.get("torch._jit_internal"), sys.modules.get("torch.jit._state")
    if jit is None or state is None or not inspect.isfunction(original):
        return
    name = jit._qualified_name(original)
    overloads, compiled = jit._get_fn_overloads(name), state._try_get_jit_cached_overloads(original)
    if overloads or compiled:
        home, _, own = name.rpartition(".")
        made._jit_override_qualname = f"{home}.of_sar.{own}"
        if overloads:
            jit._overloaded_fns[made._jit_override_qualname] = list(overloads)
        if compiled:
            state._set_jit_overload_cache(made, compiled)
