"""Hooks of MkDocs: help texts of the ``sar`` command, and a check that the API reference is complete."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

HELP = re.compile(r"^<!-- help:(.*)-->$", re.MULTILINE)
ANCHOR = re.compile(r'\bid="(sar[.\w]*)"')


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Puts the help text of a command in the place of ``<!-- help: partition -->``, and a table of the built-in
    messages in the place of ``<!-- binary messages -->``."""
    markdown = HELP.sub(lambda found: f"```text\n{help_text(found[1].split())}```", markdown)
    return markdown.replace("<!-- binary messages -->", binary_messages())


def binary_messages() -> str:
    """They are made by a function, which readers of source code do not run."""
    import sar.function

    rows = ["| name | message on an edge |", "| --- | --- |"]
    for name in sar.function.__all__:
        if re.fullmatch("[uve]_[a-z]{3}_[uve]", name):
            text = (getattr(sar.function, name).__doc__ or "").split("``")[1]
            rows.append(f'| <span id="sar.function.{name}"></span>`{name}(lhs_field, rhs_field, out)` | `{text}` |')
    return "\n".join(rows)


def help_text(words: list[str]) -> str:
    from sar.cli import parser

    os.environ.update(COLUMNS="100", NO_COLOR="1")
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        parser().parse_args([*words, "--help"])
    return shown.getvalue()


def public_names() -> list[str]:
    """Names that the reference has to have."""
    names = []
    for module in ("sar", "sar.comm", "sar.nn", "sar.nn.functional", "sar.function", "sar.errors"):
        found = importlib.import_module(module)
        public = getattr(found, "__all__", None) or [n for n in vars(found) if not n.startswith("_")]
        of_module = {n: getattr(found, n) for n in public if n != "annotations"}
        own = [n for n, x in of_module.items() if getattr(x, "__module__", "sar").startswith("sar")]
        names += [f"{module}.{name}" for name in own if not inspect.ismodule(of_module[name])]
    return names


def on_post_build(config: Any, **_: Any) -> None:
    """Fails where a public name has no entry in the reference."""
    anchors = set()
    for page in Path(config["site_dir"], "reference").rglob("*.html"):
        anchors |= set(ANCHOR.findall(page.read_text(encoding="utf-8")))
    # what has two names, as sar.rank and sar.comm.rank, is described under the shorter one
    missing = [name for name in public_names() if not {name, f"sar.{name.rsplit('.', 1)[1]}"} & anchors]
    if missing:
        raise PluginError(f"the API reference lacks {', '.join(missing)}: add them to a page of docs/reference")
