"""Importing the package: quick, and without the libraries it can do without."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest
import torch

import sar
from sar.data.partition import PartitionBookMaker, made
from tests.support.graphs import make
from tests.support.worker import build


def python(code: str) -> str:
    # with bytecode, as installed packages have it, whatever this process was told
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


WATCHED = """
import json, os, sys, torch
def held():
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")), set(sys.modules)
threads, files, modules = held()
import sar
more_threads, more_files, loaded = held()
engine = "_sar_engine" in open("/proc/self/maps").read()
print(json.dumps([sorted(loaded - modules), more_threads - threads, more_files - files, engine]))
"""


def test_import_loads_and_starts_little() -> None:
    """Its own modules, hardly any other, no thread, no file, not the engine. `bench/import_time.py` times it."""
    loaded, threads, files, engine = json.loads(python(WATCHED))
    assert (threads, files, engine) == (0, 0, False)
    own = [name for name in loaded if name.split(".")[0] == "sar"]
    others = sorted(set(loaded) - set(own))
    assert len(own) <= 150, f"{len(own)} names of modules of sar: import what few scripts use where it is used"
    assert len(others) <= 10 and not {"dgl", "scipy", "networkx", "pymetis", "setuptools"} & set(others), others
    for late in ("sar.integrations.dgl.patches.layers", "sar.cli", "sar._ext._sar_engine"):
        assert late not in own


def test_every_public_name_is_there_and_documented() -> None:
    for module in (sar, sar.comm, sar.function):
        for name in module.__all__:
            thing = getattr(module, name)
            if callable(thing):
                assert thing.__doc__ and len(thing.__doc__) > 10, f"{module.__name__}.{name} has no docstring"


def test_a_broken_dgl_is_no_hindrance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where DGL is missing, or is there and cannot be imported, the partition book is SAR's own."""
    maker = PartitionBookMaker.__new__(PartitionBookMaker)
    maker._path, maker._part = "nowhere.json", 0
    maker._ranges = {"_N": [[0, 4], [4, 9]]}, {("_N", "_E", "_N"): [[0, 3], [3, 8]]}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None)
    assert made(maker).partid2nids(1, "_N").tolist() == [4, 5, 6, 7, 8]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: object())
    monkeypatch.setitem(sys.modules, "dgl", None)
    monkeypatch.delitem(sys.modules, "sar.integrations.dgl.fallback", raising=False)
    monkeypatch.delattr(sar.integrations.dgl, "fallback", raising=False)
    assert made(maker).nid2partid(torch.tensor([3, 4])).tolist() == [0, 1]


def test_a_graph_is_freed_with_its_last_user() -> None:
    """The engine's memory goes with the graph object, not with the session."""
    import gc

    from sar.distributed.network import free_port

    sar.initialize_comms(0, 1, "127.0.0.1", "sar", master_port_number=free_port())
    try:
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
