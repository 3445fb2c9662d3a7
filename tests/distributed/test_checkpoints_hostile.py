"""Checkpoints that somebody else has made up: refused by name, before anything is opened or believed."""

from __future__ import annotations

import copy
import json
import os
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import sar
from sar.checkpoints import load
from sar.checkpoints.files import Reader
from sar.checkpoints.tree import decode
from tests.distributed import cases_checkpoints
from tests.support.partitions import partition
from tests.support.pool import Pool
from tests.support.sessions import Workers


class Made:
    """A checkpoint of two workers, and what may be changed in it."""

    def __init__(self, folder: Path, json_file: str) -> None:
        self.folder, self.json_file = folder, json_file
        self.path = folder / "checkpoint.json"
        self.good = self.path.read_bytes()
        self.description = json.loads(self.good.split(b"\n")[2])

    def put(self, text: str) -> None:
        """A description with the checksum that it needs."""
        self.path.write_text(f'{{"crc": {zlib.crc32(text.encode())},\n"checkpoint":\n{text}\n}}\n')

    def read(self) -> None:
        """Reads all of it, as a worker of the same job and one of another do."""
        reader = Reader(str(self.folder))
        for world in (2, 1):
            loaded = load._Loaded(reader, 0, world, {})
            for one in reader.tensors.values():
                reader.tensor(one, loaded.origin)
            trees = reader.description["trees"]
            for one in (*loaded._tree(trees["model"]).values(), loaded._tree(trees["extra"])):
                decode(one, lambda name: name)
            loaded._random(reader.description["trees"]["random"])


@pytest.fixture(scope="module")
def made(pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> Made:
    place = tmp_path_factory.mktemp("hostile")
    json_file = str(partition(place, 2))
    Workers(pool, 2, "shm").run(cases_checkpoints.train, json=json_file, folder=str(place / "run"), until=1)
    (folder,) = (place / "run").glob("step-*")
    found = Made(folder, json_file)
    found.read()
    return found


def nested(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


def change(*path: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    def act(found: Any) -> None:
        for key in path[:-1]:
            found = found[key]
        found[path[-1]] = to

    return act


WEIGHT = ("tensors", "model.second.weight")
WRONG = {
    "no number of ranks": (change("world", to="2"), "expected int, found '2'"),
    "no ranks": (change("world", to=0), "at least one rank"),
    "true for a number": (change("step", to=True), "expected int, found True"),
    "a number below 0": (change("step", to=-1), "expected int, found -1"),
    "a number of 70 bits": (change("step", to=1 << 70), "expected int, found 1180591620717411303424"),
    "a list for names": (change("tensors", to=[]), "no description of a checkpoint"),
    "a place": (change(*WEIGHT, "place", to="elsewhere"), "a place and a dtype of model.second.weight"),
    "a dtype": (change(*WEIGHT, "dtype", to="load"), "a place and a dtype of model.second.weight"),
    "a smaller dtype": (change(*WEIGHT, "dtype", to="int8"), "should be torch.int8"),
    "a shape of text": (change(*WEIGHT, "shapes", to="33"), "expected list, found '33'"),
    "a shape of parts": (change(*WEIGHT, "shapes", 0, 0, to=3.5), "expected int, found 3.5"),
    "a shape without end": (change(*WEIGHT, "shapes", 0, to=[1 << 40, 1 << 40]), "fits into memory"),
    "a larger shape": (change(*WEIGHT, "shapes", 0, 1, to=1 << 30), "should have the shape"),
    "shapes of three": (change(*WEIGHT, "shapes", to=[[3, 8]] * 3), "a shape of model.second.weight for each"),
    "rows of no type": (change("tensors", "learned.node", "ntype", to="author"), "rows of a type of nodes"),
    "rows of other ids": (change("tensors", "ids._N", "shapes", 0, 0, to=29), "an id of a node for each row"),
    "no trees": (change("trees", to={}), "expected 'model'"),
    "three trees": (change("trees", "extra", to=[1, 2, 3]), "trees.extra of one rank or of 2"),
    "a tensor of no name": (change("trees", "extra", to=[{"tensor": "away"}]), "the name of a tensor"),
    "a tensor named by a list": (change("trees", "extra", to=[{"tensor": ["a"]}]), "the name of a tensor"),
    "another object": (change("trees", "extra", to=[{"call": "os.system"}]), "one of tensor, tuple and dict"),
    "a key twice": (change("trees", "extra", to=[{"dict": [["a", 1], ["a", 2]]}]), "keys that differ"),
    "a key that is a list": (change("trees", "extra", to=[{"dict": [[["a"], 1]]}]), "keys that differ"),
    "nested 101 times": (change("trees", "extra", to=[nested(101)]), "at most 100 levels"),
    "no state dict": (change("trees", "model", 0, "model", to=[1]), "no description"),
    "random states": (change("trees", "random", to=[{"dict": [["torch", 3]]}]), "states of random generators"),
    "pieces of text": (change("pieces", 0, to="piece"), "no description"),
    "a piece of a rank of none": (change("pieces", 0, 3, to=2), "in a rank's file"),
    "a piece of no tensor": (change("pieces", 0, 0, to="away"), "pieces of"),
    "a piece of no rows": (change("pieces", 0, 2, to=0), "next, in a rank's file"),
    "a piece of fewer rows": (change("pieces", 0, 2, to=1), "next|with all rows"),
    "no pieces": (change("pieces", to=[]), "with all rows"),
    "overlapping pieces": (lambda d: d["pieces"].append(d["pieces"][0]), "next, in a rank's file"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_description_that_is_made_up(made: Made, wrong: str) -> None:
    act, says = WRONG[wrong]
    description = copy.deepcopy(made.description)
    description["pieces"].sort(key=lambda piece: -piece[2])  # the first has more than a row
    act(description)
    made.put(json.dumps(description))
    with pytest.raises(sar.FormatError, match=says) as caught:
        made.read()
    name = "rank-0000" if wrong in ("a smaller dtype", "a larger shape") else "checkpoint.json"
    assert str(made.folder) in str(caught.value) and name in caught.value.file


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[" * 100000, "recursion"),
        ('{"a": ' + "9" * 5000 + "}", "digits|expected 'version'"),
        ('{"version": 2, "version": 2}', "each name once"),
        ("[2]", "no description"),
        ("null", "no description"),
        ("{", "Expecting"),
        ('{"version": 1}', "has version 1, and this package reads version 2"),
    ],
    ids=["deep", "a long number", "names twice", "a list", "null", "half", "an old one"],
)
def test_text_that_is_made_up(made: Made, text: str, says: str) -> None:
    made.put(text)
    with pytest.raises(sar.FormatError, match=f"{made.path}.*({says})"):
        made.read()


def test_random_changes(made: Made) -> None:
    """Whatever stands in the description: read, or refused by name."""
    junk = [None, True, -1, 0, 1 << 64, 0.5, "", "x", [], {}, [[]], {"tensor": "x"}, {"dict": [[1]]}, float("nan")]
    told = {"read": 0, "refused": 0}
    for seed in range(400):
        draw = random.Random(seed)
        found = description = copy.deepcopy(made.description)
        while True:
            keys = list(found) if isinstance(found, dict) else list(range(len(found)))
            key = draw.choice(keys)
            if not (isinstance(found[key], (dict, list)) and found[key] and draw.random() < 0.9):
                break
            found = found[key]
        found[key] = draw.choice(junk)
        made.put(json.dumps(description))
        try:
            made.read()
            told["read"] += 1
        except (sar.FormatError, ValueError) as error:
            assert isinstance(error, sar.FormatError) or "rank 0" in str(error), (seed, error)
            told["refused"] += 1
    assert min(told.values()) > 5, told


def test_files_that_are_none(made: Made, two: Workers, tmp_path: Path) -> None:
    """A pipe, a device, a link out of the directory, a directory in place of any file; no worker waits or opens it."""
    made.path.write_bytes(made.good)
    (tmp_path / "other").write_bytes((made.folder / "rank-00000.safetensors").read_bytes())
    latest = made.folder.parent / "latest"
    for path in (made.folder / "rank-00001.safetensors", made.path, latest):
        good = path.read_bytes()
        for kind, make in (
            ("pipe", os.mkfifo),
            ("directory", os.mkdir),
            ("link", lambda p: os.symlink(tmp_path / "other", p)),
            ("device", lambda p: os.symlink("/dev/zero", p)),
        ):
            if path == latest and kind == "link":
                continue  # what it leads to does not name a checkpoint
            path.unlink()
            make(str(path))
            said = two.run(cases_checkpoints.refused, json=made.json_file, folder=str(latest.parent))
            os.rmdir(path) if kind == "directory" else path.unlink()
            path.write_bytes(good)
            if path == made.path and kind != "link":
                assert "is not there" in said[0], said  # no regular file of that name
                continue
            assert any(s.startswith("FormatError") and str(path) in s and "a regular file" in s for s in said), said
    assert two.run(cases_checkpoints.refused, json=made.json_file, folder=str(latest.parent)) == ["loaded"] * 2


def test_tensors_that_are_made_up(made: Made) -> None:
    """Headers of every wrong kind, and one bit changed in each of them."""
    made.path.write_bytes(made.good)
    path = made.folder / "rank-00000.safetensors"
    good = path.read_bytes()
    length = int.from_bytes(good[:8], "little")
    header, data = json.loads(good[8 : 8 + length]), good[8 + length :]
    name = max((n for n in header if n != "__metadata__"), key=lambda n: header[n]["data_offsets"][1])
    try:
        for field, value in (
            ("data_offsets", [0, 1 << 62]),
            ("data_offsets", [8, 0]),
            ("data_offsets", [-8, 0]),
            ("shape", [1 << 62, 4]),
            ("shape", [-1]),
            ("dtype", "F3"),
            ("dtype", "C64"),
        ):
            text = json.dumps({**header, name: {**header[name], field: value}}).encode()
            path.write_bytes(len(text).to_bytes(8, "little") + text + data)
            with pytest.raises(sar.FormatError, match=f"{path} is damaged: expected a file of safetensors: "):
                made.read()
        for bad in (b"", b"\xff" * 8 + good[8:], (1 << 40).to_bytes(8, "little") + good[8:], good + b"x", good[:-1]):
            path.write_bytes(bad)
            with pytest.raises(sar.FormatError, match=f"{path} is damaged"):
                made.read()
        for seed in range(200):
            at = random.Random(seed).randrange(8 * (8 + length))
            path.write_bytes(good[: at // 8] + bytes([good[at // 8] ^ 1 << at % 8]) + good[at // 8 + 1 :])
            try:
                made.read()
            except sar.FormatError as error:
                assert error.file == str(path)
    finally:
        path.write_bytes(good)
    made.read()


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32"]
    + ["float64", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2"],
)
def test_every_dtype(tmp_path: Path, dtype: str) -> None:
    from sar.checkpoints.tensor_files import TensorFile, write_tensors

    kind = getattr(torch, dtype, None)
    if kind is None:
        pytest.skip(f"this torch has no {dtype}")
    try:
        torch.empty(1, dtype=kind).fill_(0)
    except RuntimeError:
        pytest.skip(f"this torch does not fill tensors of {dtype}")
    path = str(tmp_path / "t.safetensors")
    tensors = {"some": torch.arange(24).view(2, 3, 4).to(kind), "one": torch.tensor(1).to(kind)}
    tensors["none"] = torch.empty(3, 0, dtype=kind)
    sums = write_tensors(path, tensors)
    for name, value in tensors.items():
        found = TensorFile(path).read(name, list(value.shape), kind, sums[name])
        assert found.dtype == kind and found.shape == value.shape
        assert torch.equal(found.reshape(-1).view(torch.uint8), value.reshape(-1).view(torch.uint8))
    assert set(safetensors.torch.load_file(path)) == set(tensors)
