"""Checks wheels: ``python -m tests.wheels audit FOLDER`` and ``python -m tests.wheels run FOLDER``.

``audit``: that they need no newer glibc than they say, by auditwheel, and nothing of Python beyond the stable ABI of
the oldest version, by abi3audit; and that they name no path of this machine. ``run``: installs the wheel of this
processor into an environment of each Python that there is, with nothing else on the PATH, and uses it. Where this
interpreter has torch, an environment of the same version borrows it and trains.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

from tests.support import ROOT

PYTHONS = ["python3.9", "python3.10", "python3.11", "python3.12", "python3.13", "python3.14"]
NEWEST_GLIBC = 28
DEADLINE = 600.0

# Without torch: the commands that need none, and a call of each kind into the engine.
COMMANDS = """
import sys
from sar.cli import main
for words in (
    ["partition", sys.argv[1], "--parts", "2", "--method", "fennel", "--self-loops", "--out", "parts"],
    ["info", "parts/cora.json", "--verify"],
):
    assert main(words) == 0, words
from sar._engine import library
from sar._ext import _sar_engine
assert _sar_engine.__file__.endswith(".abi3.so")
assert library.face().Threads() > 0 and library.call("sar_version")
print("kernels", library.call("sar_simd"))
"""

TRAIN = """
import os
import torch
import torch.nn.functional as F
import sar
import sar.nn
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
sar.initialize_comms(rank, world, "127.0.0.1", "sar", master_port_number=int(os.environ["MASTER_PORT"]))
data = sar.load_dgl_partition_data("parts/cora.json", rank, torch.device("cpu"))
graph = sar.construct_full_graph(data)
x = sar.suffix_key_lookup(data.node_features, "features").float()
y = sar.suffix_key_lookup(data.node_features, "labels")
model = sar.nn.GATConv(x.shape[1], 7, 1)
sar.sync_params(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(3):
    loss = F.cross_entropy(model(graph, x).flatten(1), y, reduction="sum")
    optimizer.zero_grad()
    loss.backward()
    sar.gather_grads(model)
    optimizer.step()
    total = loss.detach().clone()
    sar.comm.all_reduce(total)
    if rank == 0:
        print("loss", float(total))
"""


def audit(wheels: list[Path]) -> None:
    for wheel in wheels:
        name = re.fullmatch(r"sar_gnn-[\d.]+-cp39-abi3-manylinux_2_(\d+)_(x86_64|aarch64)\.whl", wheel.name)
        assert name and int(name[1]) <= NEWEST_GLIBC, f"{wheel.name}: not what `make wheels` builds"
        shown = " ".join(command([sys.executable, "-m", "auditwheel", "show", str(wheel)]).split())
        found = re.search(r'platform tag: "manylinux_2_(\d+)_(\w+)"', shown)
        assert found and int(found[1]) <= int(name[1]) and found[2] == name[2], f"{wheel.name}: {shown}"
        said = command([str(Path(sys.executable).with_name("abi3audit")), "--strict", "--report", str(wheel)])
        assert '"is_abi3": true' in said and '"non_abi3_symbols": []' in said, said
        with zipfile.ZipFile(wheel) as archive:
            contents = [archive.read(inside) for inside in archive.namelist()]
        for place in (ROOT, Path.home(), Path(sys.prefix)):
            assert not any(f"{place}/".encode() in content for content in contents), f"{wheel.name} names {place}"
        print(f"{wheel.name}: manylinux_2_{found[1]}_{found[2]} by auditwheel, cp39-abi3 by abi3audit")


def run(wheels: list[Path]) -> None:
    machine = os.uname().machine
    (wheel,) = (w for w in wheels if w.stem.endswith(machine))
    found = [python for python in PYTHONS if works(python)]
    assert found, f"none of {PYTHONS} is on the PATH"
    for python in found:
        with tempfile.TemporaryDirectory(prefix="sar-wheel-") as place:
            try_wheel(python, wheel, Path(place))


def works(python: str) -> bool:
    path = shutil.which(python)
    return bool(path) and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0


def try_wheel(python: str, wheel: Path, place: Path) -> None:
    bin = place / "venv" / "bin"
    command([python, "-m", "venv", str(bin.parent)])
    own = sysconfig.get_python_version() == python[len("python") :]
    env = {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "SSL_", "HTTP", "http"))}
    env.update(PATH=str(bin), HOME=str(place), LANG="C.UTF-8")
    pip = [str(bin / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    command([*pip, "numpy"], env)
    command([*pip, "--no-deps", "--no-index", str(wheel)], env)
    graph = ROOT / "examples" / "data" / "cora.npz"
    said = command([str(bin / "python"), "-c", COMMANDS, str(graph)], env, place)
    kernels = re.search(r"^kernels (.+)$", said, re.MULTILINE)
    assert kernels, said
    result = f"commands run, kernels {kernels[1]}"
    if own:
        (site,) = (bin.parent / "lib").glob("python*/site-packages")
        (site / "zz_borrowed.pth").write_text(
            "\n".join(p for p in sys.path if p.endswith("site-packages")) + "\n", encoding="utf-8"
        )
        script = place / "train.py"
        script.write_text(TRAIN)
        said = command([str(bin / "sar"), "launch", "-n", "2", str(script)], env, place)
        losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", said)]
        assert len(losses) == 3 and losses[2] < losses[0], said
        result += f", 2 workers train: losses {losses}"
    print(f"{python}: {result}")


def command(words: list[str], env: dict[str, str] | None = None, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        words, env=env, cwd=cwd, timeout=DEADLINE, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.returncode == 0, f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout}"
    return done.stdout


def main() -> None:
    p = argparse.ArgumentParser(prog="wheels", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("step", choices=("audit", "run"))
    p.add_argument("folder", type=Path)
    arguments = p.parse_args()
    wheels = sorted(arguments.folder.glob("*.whl"))
    if not wheels:
        raise SystemExit(f"{arguments.folder} holds no wheel: run `make wheels` first")
    {"audit": audit, "run": run}[arguments.step](wheels)


if __name__ == "__main__":
    main()
