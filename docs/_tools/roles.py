"""Makes Markdown of the reStructuredText in the package's docstrings, for mkdocstrings."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:py:)?(?:func|class|meth|mod|attr|data|exc|ref):`~?\.?([^`]+)`")
LITERAL_BLOCK = re.compile(r"::$", re.MULTILINE)
RAISES = re.compile(r"^([ ]*):raises ([\w., ]+),\s*([\w.]+):", re.MULTILINE)


class Roles(griffe.Extension):
    """``:func:`sar.remat``` becomes ``sar.remat`` in code, the ``::`` before an indented block becomes ``:``, and of
    several exceptions with one description the first is the name."""

    def on_instance(self, *, obj: griffe.Object | griffe.Alias, **_: Any) -> None:
        if not obj.is_alias and obj.docstring:
            text = LITERAL_BLOCK.sub(":", ROLE.sub(r"`\1`", obj.docstring.value))
            obj.docstring.value = RAISES.sub(_first, text)


def _first(found: re.Match[str]) -> str:
    first, *others = [name.strip() for name in [*found[2].split(","), found[3]]]
    return f"{found[1]}:raises {first}: or {', '.join(others)}:"
