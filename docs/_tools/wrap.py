"""Wraps prose of Markdown files at 120 columns: ``wrap.py FILES``. ``wrap.py --check FILES`` names the lines instead.

A paragraph or an item of a list is wrapped anew where a line of it is too long. Tables, code, headings and lines that
cannot be broken stay.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path
from typing import List

WIDTH = 120
ITEM = re.compile(r" *(?:[-*+]|\d+[.)]) +")
BLOCK = re.compile(r" *(?:#|>|\||<|!\[|!!!|\?\?\?|\[[^\]]+\]:|---|\*\*\*$|$)")
"""What begins, or is, something else than prose."""


def wrapped(text: str) -> str:
    """The text of a file with its prose wrapped."""
    out: List[str] = []
    paragraph: List[str] = []
    fence = ""

    def end() -> None:
        out.extend(fitted(paragraph))
        paragraph.clear()

    for line in text.split("\n"):
        mark = re.match(r" *(```+|~~~+)", line)
        if fence or mark or BLOCK.match(line):
            end()
            out.append(line)
            if mark and not fence:
                fence = mark[1]
            elif mark and line.strip() == fence:
                fence = ""
            continue
        if ITEM.match(line):
            end()
        paragraph.append(line)
    end()
    return "\n".join(out)


def fitted(lines: List[str]) -> List[str]:
    """The lines of a paragraph, wrapped where one is too long."""
    if all(len(line) <= WIDTH for line in lines) or any(line.endswith(("  ", "\\")) for line in lines):
        return list(lines)
    item = ITEM.match(lines[0])
    first = item[0] if item else re.match(" *", lines[0])[0]  # type: ignore[index]
    words = " ".join(line.strip() for line in lines)[len(first.strip()) :].strip()
    for width in range(WIDTH, WIDTH // 2, -1):
        made = textwrap.wrap(
            words,
            width,
            initial_indent=first,
            subsequent_indent=" " * len(first),
            break_long_words=False,
            break_on_hyphens=False,
        )
        if not any(ITEM.match(line) or BLOCK.match(line) for line in made[1:]):  # it would be read as something else
            return made
    return list(lines)


def main() -> int:
    check, names = "--check" in sys.argv, [name for name in sys.argv[1:] if name != "--check"]
    wrong = []
    for path in map(Path, names):
        text = path.read_text(encoding="utf-8")
        made = wrapped(text)
        kept = set(made.split("\n"))  # among them what cannot be broken
        for number, line in enumerate(text.split("\n"), 1):
            if len(line) > WIDTH and line not in kept:
                wrong.append(f"{path}:{number}: {len(line)} columns")
        if made != text and not check:
            path.write_text(made, encoding="utf-8")
    if check and wrong:
        print(*wrong, f"prose is wrapped at {WIDTH} columns: python docs/_tools/wrap.py FILES does it", sep="\n")
    return int(check and bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
