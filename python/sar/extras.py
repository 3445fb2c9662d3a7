"""Libraries that only some functions need: those of the extras of the package."""

from __future__ import annotations

import importlib
from typing import Any

DISTRIBUTION = "sar-gnn"
"""What pip installs this package by; on the package index ``sar`` is another one."""


class MissingLibraryError(ImportError):
    """A library of an extra is not installed, or does not work. The message says how to get it."""


def need(name: str, extra: str, purpose: str, otherwise: str = "") -> Any:
    """Imports a module of a library.

    :param extra: of this package, which brings the library
    :param purpose: what needs it, for the message
    :param otherwise: what can be done without it, for the message
    :raises MissingLibraryError: it cannot be imported
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        library, hint = name.partition(".")[0], f", or {otherwise}" if otherwise else ""
        install = f"pip install '{DISTRIBUTION}[{extra}]'{hint}"
        raise MissingLibraryError(f"{purpose} needs {library} ({error}): {install}") from None
