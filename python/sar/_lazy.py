"""Imports the public names of the package, and torch with them, when the first of them is used.

Every ``sar`` command imports the package, and many need no torch, whose import takes two seconds.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable, List, Optional

LATE = frozenset(["transforms"])
"""Public packages that few scripts use: each is imported when its own name is used."""


class LazyPackage(ModuleType):
    """A package whose public names are those of its module ``_api``."""

    def __getattr__(self, name: str) -> Any:
        if name in LATE:
            return importlib.import_module(f"{self.__name__}.{name}")
        if name == "__all__" or not name.startswith("_"):
            self._import_all()
            if name in self.__dict__:
                return self.__dict__[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __dir__(self) -> List[str]:
        return sorted(self.__all__)

    def __setattr__(self, name: str, value: Any) -> None:
        """Python sets ``sar.edge_softmax`` to the module of that name when it has imported it. The name stays the
        function that it is."""
        known = self.__dict__.get(name)
        if known is None or isinstance(known, ModuleType) or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def _import_all(self) -> None:
        """Imports all public names."""
        api = importlib.import_module(f"{self.__name__}._api")
        if hasattr(api, "__all__"):  # otherwise this is called while it is being imported
            self.__dict__.update({name: getattr(api, name) for name in api.__all__}, __all__=api.__all__)


def list_names(module: str) -> None:
    """Sets ``__all__`` of a module of nothing but names for users: all that it has."""
    names = vars(sys.modules[module])
    names["__all__"] = sorted(name for name in names if not name.startswith("_"))


class _OldPaths:
    """Finds modules that are known by names only since all public names were imported (see ``sar.compat``)."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Optional[ModuleSpec]:
        if not fullname.startswith(f"{self._package}.") or fullname.startswith(f"{self._package}._"):
            return None
        sys.modules[self._package]._import_all()
        return ModuleSpec(fullname, self) if fullname in sys.modules else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = sys.modules[spec.name]
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It has been executed under its own name, and keeps the spec of that."""
        spec = module.__spec__
        assert spec is not None
        module.__spec__ = spec.loader_state


class _AfterImport:
    """Finds one module as it would be found, and has something done when it has been imported."""

    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        self.name, self._act = name, act

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Optional[ModuleSpec]:
        if fullname != self.name:
            return None
        import importlib.util

        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        loader: Any = spec and spec.loader
        if loader is not None:
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                try:
                    execute(module)
                    self._act(module)
                except BaseException:
                    sys.meta_path.insert(0, self)  # the next import fails in the same way, rather than go unnoticed
                    raise

            loader.exec_module = exec_module
        return spec


def after_import(name: str, act: Callable[[ModuleType], None]) -> None:
    """Has a function called with a module that is not there yet, once it has been imported. Asked for a module that it
    waits for already, it does nothing."""
    if not any(isinstance(finder, _AfterImport) and finder.name == name for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterImport(name, act))


def make_lazy(package: str) -> None:
    """Has names of a package imported at the first use of one of them."""
    sys.modules[package].__class__ = LazyPackage
    sys.meta_path.append(_OldPaths(package))  # importlib.abc takes longer than all of this
