"""The line about memory at the end of a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.command import run_sar

SCRIPT = """
import os, sys, time
import torch
import sar
sar.logging_setup("INFO")
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
sar.initialize_comms(rank, world, "127.0.0.1", "sar", master_port_number=int(os.environ["MASTER_PORT"]))
held = torch.ones((3 if rank == 1 else 1) << 18)
sar.comm.barrier()
case = sys.argv[1]
if case == "fails" and rank == 1:
    raise ValueError("on purpose")
if case == "fails":
    sar.comm.barrier()
if case == "twice":
    sar.comm.shutdown()
    sar.comm.shutdown()
"""


@pytest.mark.parametrize(("case", "lines"), [("ends", 1), ("twice", 1), ("fails", 0)])
def test_one_line(tmp_path: Path, case: str, lines: int) -> None:
    """Once, by rank 0, of the worker that held most; not after a failure."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = run_sar("launch", "-n", 2, "--allocator", "pool", script, case)
    assert (done.returncode == 0) == (case != "fails"), done.stderr
    found = re.findall(r"^\[(\d)\].* memory in MiB, (.*)$", done.stdout + done.stderr, re.MULTILINE)
    assert len(found) == lines, done.stdout + done.stderr
    for rank, text in found:
        assert rank == "0"
        assert "largest of 2 worker(s): " in text
        assert int(re.search(r"tensors (\d+)", text)[1]) == 3
        assert int(re.search(r"(\d+) in all", text)[1]) > 50
        assert int(re.search(r"window (\d+)", text)[1]) <= 16
