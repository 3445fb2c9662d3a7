"""Checkpoints: what goes on from them, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from sar.checkpoints import placement, tree
from sar.inference.model import load
from tests.distributed import cases_checkpoints, cases_checkpoints_killed
from tests.support.partitions import partition
from tests.support.pool import Pool
from tests.support.sessions import Workers


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """The same graph in so many parts."""
    folder = tmp_path_factory.mktemp("graphs")
    found = {}
    for world in (1, 2, 3, 4, 8):
        (folder / str(world)).mkdir()
        found[world] = str(partition(folder / str(world), world))
    return found


def names(folder: Path) -> list[str]:
    return sorted(re.sub("-[0-9a-f]{8}$", "", p.name) for p in folder.iterdir())


def trained(workers: Workers, parts: dict[int, str], folder: Path, until: int, **more: Any) -> list[dict[str, Any]]:
    return workers.run(cases_checkpoints.train, json=parts[workers.world], folder=str(folder), until=until, **more)


@pytest.mark.parametrize("background", [True, False])
def test_goes_on_to_the_same_bits(workers: Workers, tmp_path: Path, parts: dict[int, str], background: bool) -> None:
    """Dropout of nodes and edges, running statistics of each rank, Adam, and random numbers of all three kinds."""
    whole = trained(workers, parts, tmp_path, 5, background=background)
    again = trained(workers, parts, tmp_path, 5, step=2, background=background)
    for rank, (before, after) in enumerate(zip(whole, again)):
        assert after["begin"] == 2
        assert after["extra"] == {"losses": list(before["losses"].values())[:2], "rank": rank, "pair": (1, None)}
        assert after["losses"] == {k: v for k, v in before["losses"].items() if k > 2}
        assert after["drawn"] == before["drawn"]
        np.testing.assert_array_equal(after["learned"], before["learned"])
        np.testing.assert_array_equal(after["moments"], before["moments"])
    assert before["latest"].startswith("step-000000000005-") and after["latest"] != before["latest"]


@pytest.mark.parametrize(("saved_by", "loaded_by"), [(4, 3), (4, 8), (1, 4), (4, 1)])
def test_goes_on_with_other_workers(
    pool: Pool, tmp_path: Path, parts: dict[int, str], saved_by: int, loaded_by: int
) -> None:
    """The curve, and the rows that belong to each node, do not depend on how many workers there are."""
    whole = trained(Workers(pool, saved_by, "shm"), parts, tmp_path, 6, dropout=0.0)
    again = trained(Workers(pool, loaded_by, "shm"), parts, tmp_path, 6, dropout=0.0, step=3)
    expected = [float.fromhex(loss) for epoch, loss in whole[0]["losses"].items() if epoch > 3]
    for after in again:
        found = [float.fromhex(loss) for loss in after["losses"].values()]
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    for key in ("learned", "moments"):
        tables = []
        for run in (whole, again):
            table = np.full((30, cases_checkpoints.WIDTH), np.nan)
            for rank in run:
                table[rank["numbers"]] = rank[key]
            tables.append(table)
        np.testing.assert_allclose(tables[1], tables[0], rtol=1e-6, atol=1e-9)


def test_pieces(two: Workers, tmp_path: Path, parts: dict[int, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What each rank writes covers every tensor once, also in pieces of a row or two."""
    tensors = {"weight": torch.ones(6, 2), "number": torch.tensor(3), "none": torch.empty(0, 2)}
    placed = [
        placement.Placed("weight", placement.SAME, torch.float32, [[6, 2]] * 3),
        placement.Placed("rows", placement.ROWS, torch.float32, [[4, 5], [0, 5], [2, 5]], "_N"),
        placement.Placed("number", placement.RANK, torch.int64, [[]] * 3),
        placement.Placed("none", placement.SAME, torch.float32, [[0, 2]] * 3),
    ]
    for limit in (1, 20, 1 << 20):
        monkeypatch.setattr(placement, "PIECE_BYTES", limit)
        covered: dict[str, list[int]] = {}
        for rank in range(3):
            mine = {**tensors, "rows": torch.zeros(placed[1].shapes[rank])}
            for piece in placement.pieces(placed, mine, rank):
                rows = 1 if piece.first is None else len(piece.values)
                covered.setdefault(piece.name, []).extend(range(piece.first or 0, (piece.first or 0) + rows))
        assert {name: sorted(rows) for name, rows in covered.items()} == {
            "weight": list(range(6)),
            "rows": list(range(6)),
            **{f"rank-0000{rank}/number": [0] for rank in range(3)},
        }


def test_safetensors_reads_them(two: Workers, tmp_path: Path, parts: dict[int, str]) -> None:
    """Tools of others take a rank's file for one of theirs, by the library and by its published layout."""
    trained(two, parts, tmp_path / "run", 1)
    (folder,) = (tmp_path / "run").glob("step-*")
    found = {}
    for path in sorted(folder.glob("rank-*.safetensors")):
        found.update(safetensors.torch.load_file(path))
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        assert set(json.loads(data[8 : 8 + length])) - {"__metadata__"} <= set(found)
        assert path.stat().st_mode & 0o777 == folder.stat().st_mode & 0o666
    assert found["model.second.weight"].shape == (3, 8)
    assert found["rank-00001/model.norm.running_mean"].shape == (8,)
    rows = [found[name] for name in sorted(found) if name.startswith("learned.node")]
    assert sum(map(len, rows)) == 30 and rows[0].shape[1] == cases_checkpoints.WIDTH
    ids = torch.cat([found[name] for name in found if name.startswith("ids._N")])
    assert sorted(ids.tolist()) == list(range(30))


def test_a_model_alone(two: Workers, tmp_path: Path, parts: dict[int, str]) -> None:
    """What `sar infer` loads: the directory of checkpoints, or of one."""
    trained(two, parts, tmp_path, 1)
    (folder,) = tmp_path.glob("step-*")
    models = [cases_checkpoints.Model(0.3).double() for _ in range(2)]
    for model, path in zip(models, (tmp_path, folder)):
        load(model, str(path))
    saved, again = (model.state_dict() for model in models)
    assert all(torch.equal(value, again[name]) for name, value in saved.items())
    assert saved["norm.num_batches_tracked"] == 1 and saved["norm.running_mean"].abs().min() > 0
    with pytest.raises(ValueError, match="does not fit the model Model: shapes differ: first"):
        load(cases_checkpoints.Model(0.3, heads=4), str(tmp_path))
    with pytest.raises(FileNotFoundError, match="holds no checkpoint"):
        load(models[0], str(tmp_path.parent))


def test_damage_is_refused_by_name(two: Workers, tmp_path: Path, parts: dict[int, str]) -> None:
    """One byte of any file that is read, or its end, or all of it."""
    trained(two, parts, tmp_path, 1)
    (folder,) = tmp_path.glob("step-*")
    assert names(folder) == ["checkpoint.json", "rank-00000.safetensors", "rank-00001.safetensors"]
    for path in [*folder.iterdir(), tmp_path / "latest"]:
        good = path.read_bytes()
        half = len(good) // 2
        for bad in (good[:half] + bytes([good[half] ^ 1]) + good[half + 1 :], good[:half], b"", None):
            if bad is None:
                path.unlink()
            else:
                path.write_bytes(bad)
            said = two.run(cases_checkpoints.refused, json=parts[2], folder=str(tmp_path))
            if bad is None and path.name == "latest":
                assert said == ["loaded", "loaded"]  # no checkpoint yet
                path.write_bytes(good)
                continue
            assert all(path.name in text or path.name == "checkpoint.json" for text in said), said
            first = "FileNotFoundError|FormatError" if bad is None else "FormatError"
            assert any(re.match(first, text) for text in said) and "loaded" not in said, said
            path.write_bytes(good)
    assert two.run(cases_checkpoints.refused, json=parts[2], folder=str(tmp_path)) == ["loaded"] * 2


def test_what_does_not_fit(two: Workers, pool: Pool, tmp_path: Path, parts: dict[int, str]) -> None:
    trained(two, parts, tmp_path, 2)
    where = {"json": parts[2], "folder": str(tmp_path)}
    said = two.run(cases_checkpoints.refused, heads=4, **where)
    assert all(r.startswith("ValueError") and "does not fit model (Model): shapes differ: first." in r for r in said)
    said = two.run(cases_checkpoints.refused, graph=None, **where)
    assert all("learned.node for each node of type '_N': give graph=" in r for r in said)
    said = two.run(cases_checkpoints.refused, step=7, **where)
    assert "has no checkpoint of step 7; there are: 1, 2" in said[0] and said[1].startswith("RemoteError")
    said = two.run(cases_checkpoints.refused, step=1, **{**where, "folder": str(tmp_path / "none")})
    assert "there are: none" in said[0]
    said = two.run(cases_checkpoints.other_optimizer, **where)
    assert all("does not fit optimizer: loaded state dict" in r for r in said)


@pytest.mark.parametrize(
    ("wrong", "first", "second"),
    [
        ("extra", "TypeError: extra.graph.0 is a GraphShardManager", "RemoteError"),
        ("left out", "ValueError: the optimizer has a parameter of shape (15, 6) that is not in the", "ValueError"),
        ("step", "ValueError: step='1'", "ValueError"),
        ("tensors", "ValueError: rank 0 and rank 1 have other tensors to save: extra (torch.float32)", "ValueError"),
        ("per_node", "ValueError: per_node: model.second.weight", "ValueError"),
        ("elsewhere", "RemoteError: save_checkpoint failed on rank 1", "FileNotFoundError"),
    ],
    ids=lambda value: value.split(":")[0],
)
def test_what_cannot_be_saved(
    two: Workers, tmp_path: Path, parts: dict[int, str], wrong: str, first: str, second: str
) -> None:
    said = two.run(cases_checkpoints.cannot_save, json=parts[2], folder=str(tmp_path / "run"), wrong=wrong)
    assert said[0].startswith(first) and said[1].startswith(second), said
    assert not list(tmp_path.glob("run/step-*"))
    said = two.run(cases_checkpoints.cannot_save, json=parts[2], folder=str(tmp_path / "run"), wrong="")
    assert said == ["saved"] * 2
    assert names(tmp_path / "run") == ["latest", "step-000000000001"]


@pytest.mark.parametrize("when", ["step", "close"])
@pytest.mark.parametrize("background", [True, False])
def test_all_are_told_what_one_cannot_write(
    few: Workers, tmp_path: Path, parts: dict[int, str], background: bool, when: str
) -> None:
    said = few.run(
        cases_checkpoints.fails_on_one, json=parts[few.world], folder=str(tmp_path), background=background, when=when
    )
    failing = min(1, few.world - 1)
    call = when if background else "step"
    for rank, (told, latest) in enumerate(said):
        kind = "OSError" if rank == failing else "RemoteError"
        assert told.startswith(f"{call}: {kind}: ") and "No space left on device" in told
        assert f"failed on rank {failing}" in told or rank == failing
        assert re.match(r"latest: step-00000000000[13]-", latest)
    kept = 3 if when == "step" and not background else 1
    assert names(tmp_path) == ["latest", f"step-00000000000{kept}", "step-000000000004"]


def test_full_disk(two: Workers, small_disk: Path, parts: dict[int, str]) -> None:
    """Too little room is seen before anything is written, a limit of one rank when it is met. All are told."""
    where = {"json": parts[2], "folder": str(small_disk / "run")}
    said = two.run(cases_checkpoints.fills_disk, **where, numbers=1 << 16, limit=0)
    says = rf"No space left on device: \d+\.\d KiB are needed, \d+\.\d KiB are free: '{small_disk}/run'"
    assert all(re.search(says, text) for text in said), said
    said = two.run(cases_checkpoints.fills_disk, **where, numbers=8, limit=512)
    says = rf"File too large: \d+\.\d KiB are needed, a file may have 512 B \(ulimit -f\): '{small_disk}/run/.step-.*'"
    assert all(re.search(says, text) for text in said), said
    assert list((small_disk / "run").iterdir()) == []
    said = two.run(cases_checkpoints.fills_disk, **where, numbers=8, limit=0)
    assert said == ["saved"] * 2


def test_at_intervals(two: Workers, tmp_path: Path, parts: dict[int, str]) -> None:
    assert two.run(cases_checkpoints.at_intervals, json=parts[2], folder=str(tmp_path)) == [[3, 6, 7]] * 2
    assert names(tmp_path) == ["latest", "step-000000000006", "step-000000000007"]


def test_trees() -> None:
    value = {"a": [1, 2.5, (True, None)], 3: {"t": torch.ones(2)}, "np": np.float32(0.5), "inf": float("inf")}
    tensors: dict[str, torch.Tensor] = {}
    text = json.dumps(tree.encode(value, "x", tensors))
    assert tree.decode(json.loads(text), {"x.3.t": 7}.__getitem__) == {**value, 3: {"t": 7}, "np": 0.5}
    assert list(tensors) == ["x.3.t"]
    for bad, said in (
        ({"s": {1, 2}}, "x.s is a set"),
        ({(1, 2): 3}, "x has a key of type tuple"),
        ([torch.ones(2).to_sparse()], "x.0 is torch.sparse_coo: give a dense"),
        (np.ones(2), "x is a ndarray"),
    ):
        with pytest.raises(TypeError, match=said):
            tree.encode(bad, "x", {})


@pytest.mark.parametrize("victim", [0, 1])
def test_killed_while_it_writes(two: Workers, tmp_path: Path, parts: dict[int, str], victim: int) -> None:
    """Before whichever step a worker is killed, the last checkpoint is the one before or the new one, as a whole; and
    the next one leaves nothing else behind."""
    found, other = two.run(cases_checkpoints_killed.killed, json=parts[2], folder=str(tmp_path), victim=victim)
    assert found == other
    *kills, (died, step, _) = found
    assert not died and step == 2 and len(kills) > (19 if victim == 0 else 2)
    steps = [loaded for _, loaded, _ in kills]
    if victim == 0:
        assert steps == sorted(steps) and set(steps) == {1, 2}
    else:  # once rank 1 has written its part, rank 0 may complete the checkpoint without it
        assert steps[0] == 1 and set(steps) <= {1, 2}
    assert {tuple(names) for _, _, names in found} == {("latest", "step-000000000003")}
