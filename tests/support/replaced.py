"""The tables of docs/process.md: what is replaced in DGL and torch_geometric.

``python -m tests.support.replaced`` writes them.
"""

from __future__ import annotations

import re
from collections import defaultdict

from tests.support import ROOT, warm

PAGE = ROOT / "docs" / "process.md"

LIST = """
import inspect, pkgutil
import dgl.nn, torch_geometric
import sar
from sar.integrations.dgl.patches import layers
from sar.integrations.pyg import patches
layers.adapt()
patches.adapt()
for one in sar.replaced():
    original = inspect.unwrap(getattr(pkgutil.resolve_name(one.owner), one.name))
    print(*one, f"{original.__module__}.{original.__qualname__}", sep="\\t")
"""


def listed() -> list[list[str]]:
    """Owner, name, reason and original of all that a process replaces that has graphs of both libraries."""
    done = warm.run(["-c", LIST])
    done.check_returncode()
    return [line.split("\t") for line in done.stdout.splitlines() if "\t" in line]


def table(library: str, names: list[list[str]]) -> str:
    """Markdown: a row for each reason."""
    rows: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for owner, name, why, _ in names:
        if owner.split(".")[0] == library:
            rows[why][name].add(owner)
    lines = ["| for | replaced |", "| --- | --- |"]
    for why in sorted(rows):
        cells = [f"`{name}` of {', '.join(f'`{o}`' for o in sorted(rows[why][name]))}" for name in sorted(rows[why])]
        lines.append(f"| {why} | {'; '.join(cells)} |")
    return "\n".join(lines)


def written(page: str, names: list[list[str]]) -> str:
    """The page with both tables as they should be."""
    for library in ("dgl", "torch_geometric"):
        pattern = rf"(<!-- replaced in {library} -->\n).*?(\n<!-- end -->)"
        page, found = re.subn(pattern, lambda m: m[1] + table(library, names) + m[2], page, flags=re.DOTALL)  # noqa: B023
        assert found == 1, library
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(), listed()))
