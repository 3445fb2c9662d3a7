"""Runs scripts one after the other in the same workers, which import torch once.

``several.py '[["script.py", "--option"], ...]'``
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import sar

for script, *words in json.loads(sys.argv[1]):
    sys.argv = [script, *words]
    sys.path[0] = str(Path(script).parent)  # as for a script that is run by itself
    print(script, flush=True)
    runpy.run_path(script, run_name="__main__")
    sar.comm.shutdown()
