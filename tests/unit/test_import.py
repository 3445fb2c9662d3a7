"""Importing the package: quick, and without the libraries it can do without."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import sar
from sar.data.partition import book_of
from tests.support import graph_dirs
from tests.support.graphs import make
from tests.support.worker import build


def python(code: str) -> str:
    # with bytecode, as installed packages have it, whatever this process was told
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


BACKEND = """[
    sorted({"sar._api", "sar.distributed.process_group"} & set(sys.modules)), torch.distributed.Backend("sar"),
    torch.distributed.Backend.default_device_backend_map["cpu"], [f for f in sys.meta_path if "AfterImport" in str(f)],
]"""
"""The package's own modules wait for their first use, and its finder of modules ends with the first of torch's."""
KNOWN = [[], "sar", "gloo", []]

WATCHED = f"""
import json, os, sys, torch
def held():
    engines = {{line.split()[-1] for line in open("/proc/self/maps") if "_sar_engine" in line}}
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")), len(engines)
before, modules = held(), set(sys.modules)
import sar
backend = {BACKEND}
sar.initialize_comms
loaded = sorted(set(sys.modules) - modules)
from sar._engine import library
assert held() == before and before[-1] == 0 and not library.started()
library.call("sar_set_num_threads", 1)
after = held()
assert after[0] > before[0] and after[-1] == 1
print(json.dumps([loaded, backend]))
"""


def test_import_loads_and_starts_little() -> None:
    """Its own modules, hardly any other, no thread, no file, not the engine, which its first call loads once.
    `bench/import_time.py` times it."""
    loaded, backend = json.loads(python(WATCHED))
    assert backend == KNOWN
    own = [name for name in loaded if name.split(".")[0] == "sar"]
    others = sorted(set(loaded) - set(own))
    assert len(own) <= 197, f"{len(own)} names of modules of sar: import what few scripts use where it is used"
    assert len(others) <= 13 and not {"dgl", "scipy", "networkx", "pymetis", "setuptools"} & set(others), others
    for late in ("sar.integrations.dgl.patches.layers", "sar.cli", "sar._ext._sar_engine"):
        assert late not in own


def test_the_backend_is_known_where_torch_comes_later() -> None:
    assert json.loads(python(f"import json, sar, sys, torch; print(json.dumps({BACKEND}))")) == KNOWN


def test_import_alone_needs_no_torch() -> None:
    """Nor numpy: they come with the first name that needs them. What needs neither is there before."""
    code = """
import sys
def loaded(): return [name for name in ("torch", "numpy", "sar._engine") if name in sys.modules]
import sar, sar.config, sar.errors, sar.function
sar.Config.window_bytes, sar.ingest, sar.errors.BudgetError, sar.__version__
assert not hasattr(sar, "__wrapped__") and not hasattr(sar, "_misspelled")
print(loaded())
sar.rank
print(loaded())
assert {name for name in sar.__all__ if name in vars(sar)} == set(sar.__all__) == set(dir(sar))
try:
    sar.misspelled
except AttributeError as error:
    print(error)
try:
    import sar.misspelled
except ImportError as error:
    print(error)
"""
    assert python(code).splitlines() == [
        "[]",
        "['torch', 'numpy', 'sar._engine']",
        "module 'sar' has no attribute 'misspelled'",
        "No module named 'sar.misspelled'",
    ]


FIRST = [
    "from sar import *; rank, edge_softmax, core",
    "from sar import rank, edge_softmax",
    "from sar import nn; assert nn.SAGEConv is sar.nn.SAGEConv",
    "import sar.nn.batch_norm",
    "import sar.comm; sar.comm.rank, sar.rank",
    "import sar.core.sampling; sar.core.sampling.DataLoader, sar.graph.manager",
    "from sar.data_loading import suffix_key_lookup",
    "import pickle; assert pickle.loads(b'csar.core.graphshard\\nGraphShardManager\\n.') is sar.GraphShardManager",
    "from unittest import mock; mock.patch('sar.core.sampling.DataLoader').start()",
    "dir(sar)",
]


def test_whatever_is_used_first() -> None:
    """The names are the same whichever way leads to the first of them."""
    python(f"""
import os, torch
for first in {FIRST!r}:
    if not os.fork():
        import sar
        exec(first)
        for name in sar.__all__:
            assert hasattr(sar, name), (first, name)
        for name in ("edge_softmax", "patch_dgl", "logging_setup"):
            exec(f"import sar.{{name}}")
            assert callable(getattr(sar, name)), (first, name)
        os._exit(0)
    assert os.wait()[1] == 0, first
""")


def test_commands_that_need_no_torch(tmp_path: Path) -> None:
    """They start in a tenth of a second rather than in two, and take less memory."""
    rng = np.random.default_rng(0)
    features = {"features": np.ones((60, 4), np.float32)}
    edges = rng.integers(0, 60, (2, 300))
    graph_dirs.write(tmp_path / "graph", {"_N": (60, features)}, {("_N", "_E", "_N"): (*edges, {})})
    (tmp_path / "script.py").write_text("import sys; assert 'torch' not in sys.modules")
    commands = [
        ["--help"],
        *([command, "--help"] for command in ("convert", "doctor", "gather", "ingest", "launch", "report")),
        ["launch", "-n", "2", "script.py"],
        ["info", "graph"],
        *(["partition", "graph", "-n", "2", "--method", m, "--out", m] for m in ("fennel", "random")),
        ["info", "fennel"],
        ["info", "--verify", "fennel"],
        ["convert", "fennel", "--to", "dgl", "--out", "other"],
        ["plan", "fennel", "--layers", "sage:4,bn,relu,gat:2x2"],
    ]
    code = f"""
import os, sys
import sar.results.gather, sar.report.page, sar.data.ingest.make
from sar.cli import main
os.chdir({str(tmp_path)!r})
for command in {commands!r}:
    try:
        code = main(command)
    except SystemExit as end:
        code = end.code
    assert not code, command
    assert "torch" not in sys.modules, command
"""
    python(code)


def test_every_public_name_is_there_and_documented() -> None:
    for module in (sar, sar.comm, sar.function):
        for name in module.__all__:
            thing = getattr(module, name)
            if callable(thing):
                assert thing.__doc__ and len(thing.__doc__) > 10, f"{module.__name__}.{name} has no docstring"


def test_a_broken_dgl_is_no_hindrance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where DGL is missing, or is there and cannot be imported, the partition book is SAR's own."""
    ranges = {"_N": [[0, 4], [4, 9]]}, {("_N", "_E", "_N"): [[0, 3], [3, 8]]}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None)
    assert book_of("nowhere.json", 0, *ranges).partid2nids(1, "_N").tolist() == [4, 5, 6, 7, 8]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: object())
    monkeypatch.setitem(sys.modules, "dgl", None)
    monkeypatch.delitem(sys.modules, "sar.integrations.dgl.fallback", raising=False)
    monkeypatch.delattr(sar.integrations.dgl, "fallback", raising=False)
    assert book_of("nowhere.json", 0, *ranges).nid2partid(torch.tensor([3, 4])).tolist() == [0, 1]


def test_a_graph_is_freed_with_its_last_user() -> None:
    """The engine's memory goes with the graph object, not with the session."""
    import gc

    from sar.distributed.network import free_port

    sar.initialize_comms(0, 1, "127.0.0.1", "sar", master_port_number=free_port())
    try:
        gc.collect()  # what tests before have left
        before = sar.memory_stats()["structure"]["live"]
        graph = build(make("random", 1).part(0))
        slice_of_it = graph["_E"]
        del graph
        gc.collect()
        assert sar.memory_stats()["structure"]["live"] > before
        slice_of_it.in_degrees()
        del slice_of_it
        gc.collect()
        assert sar.memory_stats()["structure"]["live"] == before
    finally:
        sar.comm.shutdown()
