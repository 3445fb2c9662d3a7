"""``sar partition`` ends early: interrupted, killed; and is run again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.command import exit_code
from tests.support.communities import NODES, parts_of
from tests.support.processes import is_gone, wait_until

DEADLINE = 120.0


SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
CASES = [(where, number) for where in ("fennel", "kaminpar", "write") for number in SIGNALS]
CASES += [(where, number) for where in ("assignment", "convert") for number in (signal.SIGINT, signal.SIGKILL)]
CASES += [("late", signal.SIGKILL)]


@pytest.mark.parametrize(("where", "number"), CASES)
def test_interrupted(graph: Path, tmp_path: Path, where: str, number: signal.Signals) -> None:
    """A command that ends early leaves no description and no child; run again, it leaves parts and nothing else."""
    out = tmp_path / "parts"
    words = ["partition", graph, "-n", 3, "--out", out, "--method", "kaminpar" if where == "kaminpar" else "fennel"]
    if where == "assignment":
        parquet = pytest.importorskip("pyarrow.parquet")
        columns = {"id": np.arange(NODES), "part": np.arange(NODES) % 3}
        parquet.write_table(pytest.importorskip("pyarrow").table(columns), tmp_path / "given.parquet")
        words = [*words[:6], "--assignment", tmp_path / "given.parquet"]
    elif where == "convert":
        assert exit_code(*words) == 0
        words, out = ["convert", out, "--to", "dgl", "--out", tmp_path / "dgl"], tmp_path / "dgl"
    command = [sys.executable, "-c", STOPS, where, *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())  # it is in the middle now
        second = exit_code(*words) if where in ("write", "late", "convert") else 1  # two at once would mix their parts
        process.send_signal(number)
        _, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode != 0 and second == 1
    if number == signal.SIGINT:
        assert process.returncode == 130 and "interrupted" in errors and "Traceback" not in errors
    if child:
        wait_until(lambda: is_gone(child), DEADLINE)
    assert not (out / "graph.json").exists()
    if number == signal.SIGINT:
        assert not out.exists() or not list(out.iterdir())
    assert exit_code(*words) == 0
    parts_of(out, 3)
    assert sorted(os.listdir(out)) == ["graph.json", "part0", "part1", "part2"]


# Stays where it is told to, and says so.
STOPS = """
import sys, time
import sar.cli  # from sar import cli would import torch
from sar.cli.output import Stage

where, words = sys.argv[1], sys.argv[2:]
at = {"fennel": "assigning", "kaminpar": "nothing"}.get(where, "writing")

def progress(self, done, total):
    if self.what.startswith(at) and (where != "late" or done > 0.9 * total):
        print(0, flush=True)
        while True:
            time.sleep(0.01)

CHILD = '''
import ctypes, os, sys, time
ctypes.CDLL(None).prctl(1, 9)
while os.getppid() == int(sys.argv[1]):
    time.sleep(0.05)
'''
Stage.progress = progress
if where == "assignment":
    from sar.partitioning import assignment
    assignment._dictionaries = lambda graph: progress(Stage("writing"), 1, 1)
if where == "kaminpar":
    from sar.partitioning import apart
    apart.Path.read_text = lambda *_, **__: CHILD
    def resident(pid):
        print(pid, flush=True)
        apart._resident = lambda pid: 0
        return 0
    apart._resident = resident
sys.exit(sar.cli.main(words))
"""
