"""Writes requirements-NAME.lock: all that requirements-NAME.txt needs, at exact versions, with the hashes of the files
that pip takes on this processor with this Python. ``make lock`` runs it after a change of those files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent.parent
NAMES = ("dev", "docs", "bench", "wheels")
HEAD = "# Written by `make lock` from {}, for Python {} on {}. pip checks the hashes.\n"


def resolved(name: str, known: list[str]) -> dict[str, Any]:
    """What pip would install into an empty environment, of no other versions than those that are known."""
    (bounds := HERE / "build" / "lock.txt").parent.mkdir(exist_ok=True)
    bounds.write_text("\n".join(known))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    files = ["--requirement", f"requirements-{name}.txt", "--constraint", str(bounds)]
    done = subprocess.run([*command, *files], cwd=HERE, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    known: list[str] = []
    for name in NAMES:
        report = resolved(name, known)
        lines = {}
        for one in report["install"]:
            sums = one["download_info"]["archive_info"]["hashes"]
            title = re.sub(r"[-_.]+", "-", one["metadata"]["name"]).lower()
            lines[f"{title}=={one['metadata']['version']}"] = sums["sha256"]
        known = known or list(lines)
        on = f"{sys.platform} {report['environment']['platform_machine']}"
        head = HEAD.format(f"requirements-{name}.txt", report["environment"]["python_version"], on)
        text = "".join(f"{line} \\\n    --hash=sha256:{lines[line]}\n" for line in sorted(lines))
        (HERE / f"requirements-{name}.lock").write_text(head + text)
        print(f"requirements-{name}.lock: {len(lines)} packages")


if __name__ == "__main__":
    main()
