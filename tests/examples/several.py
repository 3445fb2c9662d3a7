"""Runs scripts one after the other in the same workers, which import torch once.

``several.py '[["23456", "script.py", "--option"], ...]'``: of each the master's port, and its command line.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import sys
from pathlib import Path
from typing import Any

from sar.distributed.network import free_port


def command(*jobs: tuple[Path, list[Any]]) -> list[str]:
    """What ``sar launch`` is told for scripts and their arguments."""
    return [__file__, json.dumps([list(map(str, [free_port(), script, *words])) for script, words in jobs])]


def shorter(script: Path, copy: Path, epochs: int, every: int) -> None:
    """Writes a script to copy so that it trains for so many epochs, and shows its accuracy after each ``every``."""
    text = re.sub(r"(?<=for epoch in range\(1, )\d+", str(epochs + 1), script.read_text())
    copy.write_text(re.sub(r"(?<=if epoch % )\d+", str(every), text))


if __name__ == "__main__":
    import sar

    for port, *words in json.loads(sys.argv[1]):
        os.environ["MASTER_PORT"], sys.argv = port, words
        sys.path[0] = str(Path(sys.argv[0]).parent)  # as for a script that is run by itself
        print("==", sys.argv[0], flush=True)
        runpy.run_path(sys.argv[0], run_name="__main__")
        sar.comm.shutdown()
