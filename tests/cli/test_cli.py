"""The ``sar`` command as a user meets it: output, exit codes, and that no process is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sar
from sar import cli
from sar.cli import doctor
from tests.cli.conftest import script
from tests.support.command import exit_code, launch_fresh, run_sar
from tests.support.processes import is_gone, wait_until

DEADLINE = 120.0


# ---- sar launch -------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "script", "module"),
    [
        ("-n 4 train.py --lr 0.1 -n 9", "train.py --lr 0.1 -n 9", ""),
        ("-n4 --threads=2 train.py -m x --help", "train.py -m x --help", ""),
        ("-n 2 -m pkg.mod --lr 1 -m x --version", "", "pkg.mod --lr 1 -m x --version"),
        ("-n 2 --no-prefix train.py -- a", "train.py -- a", ""),
        ("-n 2 -- --odd.py a", "-- --odd.py a", ""),
        ("-n 2", "", ""),
    ],
)
def test_script_arguments_are_the_scripts(words: str, script: str, module: str) -> None:
    found = cli.parser().parse_args(["launch", *words.split()])
    assert found.workers in (2, 4) and (found.script, found.module or []) == (script.split(), module.split())


def test_workers_find_their_place(tmp_path: Path) -> None:
    names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR OMP_NUM_THREADS SAR_NUM_THREADS MASTER_PORT"
    path = script(tmp_path, f"print(*(os.environ[k] for k in '{names}'.split()), *sys.argv[1:])")
    done = launch_fresh("-n", 3, "--threads", 2, path, "-n", "x y")
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.splitlines())
    ports = {line.split()[8] for line in lines}
    assert len(ports) == 1
    assert lines == [f"[{r}] {r} 3 {r} 3 127.0.0.1 2 2 {port} -n x y" for r in range(3) for port in ports]


def test_several_machines(tmp_path: Path) -> None:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT", "SAR_JOB_TOKEN")
    path = script(tmp_path, f"print(*(os.environ.get(k) for k in {names}))")
    place = ["--nodes", 2, "--node-rank", 1, "--master-addr", "10.0.0.1", "--master-port", 4711]
    done = launch_fresh("-n", 2, *place, path, SAR_JOB_TOKEN="one secret of both")
    lines = ["[2] 2 4 0 4711 one secret of both", "[3] 3 4 1 4711 one secret of both"]
    assert sorted(done.stdout.splitlines()) == lines
    without = {"SAR_JOB_TOKEN": "", "SLURM_JOB_ID": ""}
    done = launch_fresh("-n", 2, *place, path, **without)
    assert done.returncode == 2 and re.search(r"export SAR_JOB_TOKEN=[0-9a-f]{64}\n", done.stderr), done.stderr
    # workers derive one of a scheduler's number
    done = launch_fresh("-n", 2, *place, path, **{**without, "SLURM_JOB_ID": "71"})
    assert done.returncode == 0 and "[2] 2 4 0 4711 \n" in done.stdout


def test_a_token_for_each_launch(tmp_path: Path) -> None:
    path = script(tmp_path, "print(os.environ['SAR_JOB_TOKEN'])")
    tokens = [launch_fresh("-n", 2, "--no-prefix", path, SAR_JOB_TOKEN="").stdout.split() for _ in range(2)]
    assert all(len(t) == 2 and len(t[0]) == 64 and t[0] == t[1] for t in tokens) and tokens[0] != tokens[1]
    # also of two that inherit one environment
    assert len(launch_fresh("-n", 1, "--no-prefix", path, SAR_JOB_TOKEN="mine").stdout) == 65


def test_module_and_raw_output(tmp_path: Path) -> None:
    (tmp_path / "some_module.py").write_text("import sys; print('args', sys.argv[1:])")
    done = launch_fresh("-n", 1, "--no-prefix", "-m", "some_module", "--flag", PYTHONPATH=str(tmp_path))
    assert done.stdout == "args ['--flag']\n"


def test_lines_stay_whole(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        "for i in range(200): sys.stdout.write(f'{rank}:{i}'); sys.stdout.flush(); sys.stdout.write('.' * 50 + '\\n')\n"
        "sys.stdout.write('10%\\r100%\\nno newline at the end')",
    )
    lines = launch_fresh("-n", 2, path).stdout.splitlines()
    for rank in range(2):
        own = [line for line in lines if line.startswith(f"[{rank}] ")]
        assert own[:200] == [f"[{rank}] {rank}:{i}{'.' * 50}" for i in range(200)]
        assert own[200:] == [f"[{rank}] 100%", f"[{rank}] no newline at the end"]
    assert len(lines) == 2 * 202


def test_a_failing_worker_ends_the_others(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        "print('pid', os.getpid())\n"
        "if rank == 1:\n    print('dying of it', file=sys.stderr); sys.exit(7)\ntime.sleep(300)",
    )
    begin = time.monotonic()
    done = launch_fresh("-n", 3, "--grace", 0.5, path)
    assert time.monotonic() - begin < 60
    assert done.returncode == 7
    assert "[1] dying of it" in done.stderr
    assert "rank 1 ended with exit code 7" in done.stderr.splitlines()[-2]
    pids = [int(line.split()[-1]) for line in done.stdout.splitlines()]
    assert len(pids) == 3 and all(map(is_gone, pids))


def test_others_may_report_before_they_are_stopped(tmp_path: Path) -> None:
    path = script(tmp_path, "if rank: sys.exit(3)\ntime.sleep(1.5); print('saw it')")
    done = launch_fresh("-n", 2, path)
    assert done.returncode == 3
    assert "[0] saw it" in done.stdout


def test_the_cause_is_named_not_its_echo(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        "class RemoteError(Exception): pass\n"
        f"there = {str(tmp_path / 'there')!r}\n"
        "while rank == 0 and not os.path.exists(there): time.sleep(0.01)\n"
        "if rank == 0: raise RemoteError('rank 1 failed')\n"
        "if rank == 2: time.sleep(300)\n"
        "open(there, 'w').close(); time.sleep(0.7); raise ValueError('the cause')",
    )
    done = launch_fresh("-n", 3, "--grace", 3, path)
    assert done.returncode == 1
    closing = done.stderr[done.stderr.rindex("sar launch: ") :]
    assert closing.startswith("sar launch: rank 1 ended with exit code 1") and "ValueError: the cause" in closing
    assert "RemoteError" not in closing


def test_the_cause_is_named_where_torch_repeats_tracebacks(tmp_path: Path) -> None:
    """torch.distributed writes an exception once more, each line behind the rank."""
    path = script(
        tmp_path,
        "def say(text): print(f'[rank{rank}]: ' + text, file=sys.stderr)\n"
        "if rank == 1: time.sleep(1)\n"
        "say('Traceback (most recent call last):')\n"
        "say('ValueError: the cause' if rank else 'sar.errors.RemoteError: rank 1 on host failed')\n"
        "sys.exit(1)",
    )
    done = launch_fresh("-n", 2, path)
    closing = done.stderr[done.stderr.rindex("sar launch: ") :]
    assert closing.startswith("sar launch: rank 1 ended with exit code 1")
    assert "    Traceback (most recent call last):\n    ValueError: the cause" in closing
    assert "[0] [rank0]: sar.errors.RemoteError" in done.stderr


def test_death_by_signal(tmp_path: Path) -> None:
    done = launch_fresh("-n", 2, script(tmp_path, "if rank: os.kill(os.getpid(), signal.SIGKILL)\n"))
    assert done.returncode == 128 + signal.SIGKILL
    assert "rank 1 was killed by signal 9" in done.stderr


def test_restarts_end_with_the_first_success(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        "life = int(os.environ['SAR_RESTART_COUNT'])\n"
        "print(life, rank, os.environ['MASTER_PORT'], os.environ['SAR_JOB_TOKEN'], os.getpid())\n"
        "if life < 2:\n    if rank: os.kill(os.getpid(), signal.SIGKILL)\n    time.sleep(300)",
    )
    done = launch_fresh("-n", 2, "--max-restarts", 3, "--grace", 0.1, "--no-prefix", path)
    assert done.returncode == 0, done.stderr
    said = [line.split() for line in done.stdout.splitlines()]
    assert sorted(words[:2] for words in said) == [[str(life), str(rank)] for life in range(3) for rank in range(2)]
    for column in (2, 3):  # one port and one token for both workers of a life, others in each life
        assert len({words[column] for words in said}) == 3
        assert len({(words[0], words[column]) for words in said}) == 3
    assert all(is_gone(int(words[4])) for words in said)
    assert re.findall("restart . of 3", done.stderr) == ["restart 1 of 3", "restart 2 of 3"]


def test_restarts_are_limited(tmp_path: Path) -> None:
    path = script(tmp_path, "sys.exit(10 + int(os.environ['SAR_RESTART_COUNT']))")
    done = launch_fresh("-n", 1, "--max-restarts", 1, path)
    assert done.returncode == 11 and "restart 1 of 1" in done.stderr
    several = ["--nodes", 2, "--master-addr", "a", "--master-port", 4711]
    done = launch_fresh("-n", 1, "--max-restarts", 1, *several, path)
    assert done.returncode == 2 and "torchrun" in done.stderr


def test_an_interrupted_job_does_not_restart(tmp_path: Path) -> None:
    path = script(tmp_path, "print('alive', flush=True); time.sleep(300)")
    launcher = subprocess.Popen(
        [sys.executable, "-m", "sar", "launch", "-n", "1", "--max-restarts", "5", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert launcher.stdout is not None and "alive" in launcher.stdout.readline()
        launcher.terminate()
        _, errors = launcher.communicate(timeout=DEADLINE)
        assert launcher.returncode == 128 + signal.SIGTERM and "restart" not in errors
    finally:
        launcher.kill()
        launcher.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_the_launcher(tmp_path: Path, number: signal.Signals) -> None:
    path = script(
        tmp_path,
        f"child = subprocess.Popen(['sleep', '300'])\n"
        f"open(f'{tmp_path}/{{rank}}.tmp', 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        f"os.rename(f'{tmp_path}/{{rank}}.tmp', f'{tmp_path}/{{rank}}.pid')\n"
        "time.sleep(300)",
    )
    launcher = subprocess.Popen(
        [sys.executable, "-m", "sar", "launch", "-n", "2", "--grace", "1", str(path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
        workers, children = zip(*(map(int, p.read_text().split()) for p in tmp_path.glob("*.pid")))
        launcher.send_signal(number)
        _, errors = launcher.communicate(timeout=DEADLINE)
        wait_until(lambda: all(map(is_gone, workers)))
        if number == signal.SIGKILL:  # nobody is left to end the workers' own children
            for child in children:
                os.kill(child, signal.SIGKILL)
        else:
            assert launcher.returncode == 128 + number, errors
            wait_until(lambda: all(map(is_gone, children)))
    finally:
        launcher.kill()
        launcher.wait()


@pytest.mark.parametrize(
    "words",
    ["", "launch", "launch -n 2", "launch -n 0 x.py", "launch -n 2 nowhere.py", "nonsense", "partition", "info"]
    + ["launch -n 2 --nodes 2 --node-rank 2 x.py", "launch -n x y.py", "partition g.npz --out d --parts 0"],
)
def test_wrong_usage_is_exit_code_2(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(*words.split()) == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize("words", ["--help", "partition --help", "info --help", "launch --help", "doctor --help"])
def test_help(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(*words.split()) == 0
    assert "usage: sar" in capsys.readouterr().out


def test_version() -> None:
    done = subprocess.run([sys.executable, "-m", "sar", "--version"], capture_output=True, text=True, timeout=DEADLINE)
    assert done.stdout.startswith(f"sar {sar.__version__}, engine ")


# ---- sar partition, sar info -----------------------------------------------


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """70 nodes, 400 edges, some of them self loops, a feature and a label."""
    rng = np.random.default_rng(0)
    path = tmp_path / "little.npz"
    x = rng.random((70, 5), dtype=np.float32)
    ends = rng.integers(0, 70, (2, 400)).astype(np.int32)
    np.savez(path, edge_index=ends, x=x, y=np.arange(70) % 3, train_mask=rng.random(70) < 0.5)
    return path


def test_ids_of_an_earlier_run_are_gone(graph: Path, tmp_path: Path) -> None:
    """Where a graph with ids of its users is replaced by one without, under the same name."""
    pytest.importorskip("duckdb")
    (tmp_path / "e.csv").write_text("a,b\nx,y\ny,z\nz,w\nw,x\n")
    assert run_sar("ingest", "--edges", tmp_path / "e.csv", "--out", tmp_path / "little").returncode == 0
    out, words = tmp_path / "parts", ["--parts", 2, "--method", "random", "--format", "dgl"]
    for source, ids in ((tmp_path / "little", ["ids__N.parquet"]), (graph, [])):
        done = run_sar("partition", source, *words, "--out", out)
        assert done.returncode == 0, done.stderr
        for part in range(2):
            assert [file.name for file in (out / f"part{part}").glob("ids*")] == ids


def test_partition_leaves_the_parts_of_another_graph_alone(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["partition", str(graph), "--parts", "2", "--out", str(tmp_path / "parts"), "--method", "random"]
    assert exit_code(*words) == 0
    assert exit_code(*words) == 0  # the same graph again
    before = (tmp_path / "parts" / "part0" / "node_feat.dgl").read_bytes()
    assert exit_code(*words, "--name", "other") == 2
    assert "holds the parts of another graph (little.json)" in capsys.readouterr().err
    assert (tmp_path / "parts" / "part0" / "node_feat.dgl").read_bytes() == before


def test_the_directory_in_place_of_its_json_file(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, device = tmp_path / "parts", torch.device("cpu")
    assert exit_code("partition", str(graph), "--parts", "2", "--out", str(out), "--method", "random") == 0
    capsys.readouterr()
    for words in (["info"], ["plan", "--layers", "gcn:4"]):
        shown = []
        for path in (out, out / "little.json"):
            assert exit_code(*words, str(path)) == 0
            shown.append(capsys.readouterr().out)
        assert shown[0] == shown[1] and shown[0]
    features = [sar.load_dgl_partition_data(path, 1, device).node_features for path in (out, out / "little.json")]
    assert all(torch.equal(features[0][name], value) for name, value in features[1].items())

    (out / "another.json").write_text("{}")
    with pytest.raises(ValueError, match="several JSON files, another.json, little.json"):
        sar.load_dgl_partition_data(out, 1, device)
    assert exit_code("info", str(tmp_path / "parts" / "part0")) == 1
    assert "part0 holds no JSON file" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["metis", "random", pytest.param("contiguous", marks=pytest.mark.full)])
def test_partition_and_info(graph: Path, tmp_path: Path, method: str) -> None:
    if method == "metis":
        pytest.importorskip("pymetis")
    out = tmp_path / "parts"
    done = run_sar("partition", graph, "--parts", 3, "--out", out, "--method", method)
    assert done.returncode == 0, done.stderr
    info = json.loads(run_sar("info", out / "little.json", "--json").stdout)
    assert [p["num_inner_nodes"] for p in info["parts"]] == [
        end - begin for begin, end in info["parts"][0]["node_ranges"]["_N"]
    ]
    assert sum(p["num_inner_nodes"] for p in info["parts"]) == 70

    original = np.load(graph)
    part_of = np.empty(70, np.int64)
    for part in range(3):
        data = sar.load_dgl_partition_data(str(out / "little.json"), part, torch.device("cpu"))
        ids = sar.suffix_key_lookup(data.node_features, "orig_id").numpy()
        part_of[ids] = part
        np.testing.assert_array_equal(sar.suffix_key_lookup(data.node_features, "features"), original["x"][ids])
        np.testing.assert_array_equal(sar.suffix_key_lookup(data.node_features, "labels"), original["y"][ids])

    src, dst = original["edge_index"]
    crossing = part_of[src] != part_of[dst]
    assert f"edge cut {crossing.sum()} of 400 edges" in done.stdout
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if " reads " in line}
    for p in range(3):
        for q in range(3):
            reads = len(np.unique(src[(part_of[dst] == p) & (part_of[src] == q)])) if p != q else "-"
            assert rows[str(p)][2 + q] == str(reads)
    human = run_sar("info", out / "little.json")
    assert human.returncode == 0 and "70 nodes, 400 edges, 3 parts" in human.stdout and "_N/features" in human.stdout


def test_random_parts_follow_the_seed(graph: Path, tmp_path: Path) -> None:
    outputs = [
        run_sar("partition", graph, "--parts", 2, "--out", tmp_path / f"{i}", "--method", "random", "--seed", s).stdout
        for i, s in enumerate((1, 1, 2))
    ]
    tables = [text[: text.index("wrote")] for text in outputs]
    assert tables[0] == tables[1] != tables[2]


def test_self_loops(graph: Path, tmp_path: Path) -> None:
    out = tmp_path / "parts"
    words = ["partition", graph, "--parts", 1, "--out", out, "--method", "contiguous", "--self-loops"]
    assert run_sar(*words).returncode == 0
    src, dst = np.load(graph)["edge_index"]
    expected = len(src) + 70 - len(np.unique(src[src == dst]))
    info = json.loads(run_sar("info", out / "little.json", "--json").stdout)
    assert info["description"]["num_edges"] == expected


def test_missing_partitioners_name_the_fix(graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mtkahypar", "kaminpar", "pymetis"):
        monkeypatch.setitem(sys.modules, name, None)  # an import of it fails
    words = ["partition", graph, "--parts", 2, "--out", tmp_path / "p"]
    asked = run_sar(*words, "--method", "metis")
    assert asked.returncode == 1 and "--method metis needs pymetis" in asked.stderr
    assert "pip install 'sar-gnn[partition]', or choose --method fennel, random or contiguous" in asked.stderr
    asked = run_sar(*words, "--method", "mtkahypar")
    assert asked.returncode == 1 and "--method mtkahypar needs mtkahypar" in asked.stderr
    assert "pip install 'sar-gnn[partition]'" in asked.stderr
    unasked = run_sar(*words)
    assert unasked.returncode == 0 and "pip install" in unasked.stderr and "fennel: " in unasked.stdout


def test_bad_input(graph: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.npz"
    damaged.write_bytes(graph.read_bytes()[:-30])
    cases = [
        (["partition", tmp_path / "none.npz", "--parts", 2, "--out", tmp_path / "p"], 1, "none.npz"),
        (["partition", damaged, "--parts", 2, "--out", tmp_path / "p"], 1, "damaged.npz"),
        (["partition", graph, "--parts", 71, "--out", tmp_path / "p"], 2, "70 nodes"),
        (["info", tmp_path / "none.json"], 1, "none.json"),
        (["info", damaged], 1, "damaged.npz"),
    ]
    for words, code, text in cases:
        done = run_sar(*words)
        assert done.returncode == code, done.stderr
        assert text in done.stderr and "Traceback" not in done.stderr


# ---- sar doctor -------------------------------------------------------------


def test_doctor_finds_no_trouble() -> None:
    done = run_sar("doctor")
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("no trouble found\n")
    for line in ("two workers over shm", "two workers over tcp", "the engine in one process", "pool keeps"):
        assert line in done.stdout


def test_doctor_finds_another_package_of_the_module(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``sar`` on the package index is not this package. Names are compared as pip compares them."""
    monkeypatch.syspath_prepend(tmp_path)
    installed = {"sar": "sar/parser.py", "Sar_GNN": "sar/cli.py", "sarif": "sarif/sar.py", "of": "sar.py"}
    for name, record in installed.items():
        folder = tmp_path / f"{name}-0.3.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.3\n")
        (folder / "RECORD").write_text(f"{record},sha256=x,1\n{folder.name}/RECORD,,\n")
    report = doctor._Report()
    doctor._distributions(report)
    said = capsys.readouterr().out
    assert report.trouble == 2 and f"the package sar 0.3 ({tmp_path}) has files of the module sar" in said
    assert "the package of 0.3" in said and "-> pip uninstall sar sar-gnn, then install sar-gnn again" in said


@pytest.mark.full  # the same as the next, with the workers that are really there
def test_doctor_finds_a_bad_setting() -> None:
    done = run_sar("doctor", SAR_ALLOCATOR="nonsense")
    assert done.returncode == 1
    assert "FAIL  shm" in done.stdout and "nonsense" in done.stdout


@pytest.mark.parametrize("engine", [True, False])
def test_doctor_finds_trouble(monkeypatch: pytest.MonkeyPatch, engine: bool) -> None:
    """Workers that end at once. The engine knows which transports there are, so without it none is tried."""
    command = [sys.executable, "-c", "raise SystemExit('it does not start')"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    start = doctor._start

    def fail(*what: str, environment: Any = None) -> Any:
        same = what == ("engine",) and engine
        return start(*what, environment=environment) if same else subprocess.Popen(command, **pipes)

    monkeypatch.setattr(doctor, "_start", fail)
    done = run_sar("doctor")
    assert done.returncode == 1
    failed = ["packages", "together", "allocator", *(["shm", "tcp"] if engine else ["engine"])]
    for name in failed:
        assert re.search(f"^FAIL  {name} .*it does not start .exit code 1.$", done.stdout, re.MULTILINE), done.stdout
    assert done.stdout.endswith(f"{len(failed)} trouble(s) found\n")
