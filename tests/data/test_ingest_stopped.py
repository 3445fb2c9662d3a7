"""Ingest that is stopped: nothing half-written, and a second run goes through."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import sar
from tests.data.graphs import edges_of, expected_edges, one_type, write_table

# holds the run at its last step, when most of the files are written
PAUSE = """
import sys, time
import sar.cli  # from sar import cli would import torch
from sar.data.ingest import make as package
def pause(*arguments, **more):
    print("here", flush=True)
    time.sleep(300)
package.write_description = pause
sys.exit(sar.cli.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda n: n.name)
@pytest.mark.parametrize("scratch", [False, True], ids=["beside", "scratch"])
def test_stopped_in_the_middle(tmp_path: Path, number: signal.Signals, scratch: bool) -> None:
    rng = np.random.default_rng(0)
    source, target = rng.integers(0, 50, (2, 500))
    source[:50] = np.arange(50)
    write_table(tmp_path / "e.parquet", source=source, target=target)
    (tmp_path / "scratch").mkdir()
    words = ["ingest", "--edges", str(tmp_path / "e.parquet"), "--out", str(tmp_path / "out")]
    words += ["--scratch", str(tmp_path / "scratch")] if scratch else []
    process = subprocess.Popen(
        [sys.executable, "-c", PAUSE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "here\n"
    assert (tmp_path / "out.partial" / "graph" / "edges").is_dir() and not (tmp_path / "out").exists()
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert not (tmp_path / "out").exists()
    if number == signal.SIGINT:
        assert process.returncode == 130 and said.splitlines()[-1] == "sar ingest: interrupted"
        assert not (tmp_path / "out.partial").exists() and not os.listdir(tmp_path / "scratch")
    done = subprocess.run(
        [sys.executable, "-m", "sar", *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    if number == signal.SIGKILL:
        assert "an interrupted run left" in done.stderr and "removed, beginning anew" in done.stderr
    assert not (tmp_path / "out.partial").exists() and not os.listdir(tmp_path / "scratch")
    s, t, _ = expected_edges(source, target, 50)
    graph = sar.data.graph_directory.GraphDirectory(tmp_path / "out")
    assert [*map(np.ndarray.tolist, edges_of(graph))] == [s.tolist(), t.tolist()]


def test_two_at_once(tmp_path: Path) -> None:
    table = write_table(tmp_path / "e.parquet", source=[0], target=[0])
    partial = tmp_path / "out.partial"
    partial.mkdir()
    with open(partial / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(FileExistsError, match="another process is writing to .*/out.partial: wait for it"):
            sar.ingest(one_type(str(table)), tmp_path / "out")
    assert partial.exists()
    sar.ingest(one_type(str(table)), tmp_path / "out")


def test_interrupted_in_duckdb(tmp_path: Path) -> None:
    """Ctrl-C while DuckDB works."""
    code = """
import sys
from pathlib import Path
from sar.data.ingest.engine import Engine
with Engine(Path(sys.argv[1]), 1 << 30, 1) as engine:
    print("here", flush=True)
    engine.run("SELECT sum(sqrt(a.range * b.range)) FROM range(10000000) a, range(10000000) b")
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.readline() == b"here\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT and b"KeyboardInterrupt" in said
