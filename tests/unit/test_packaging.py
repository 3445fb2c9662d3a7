"""What is built and shipped: the extension, the wheel, the image."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import tomllib

from sar._engine import library as engine
from sar.extras import DISTRIBUTION
from tests.support import ROOT

LIBSAR = ROOT / "build" / "lib" / "libsar.so"


def libraries() -> list[Path]:
    return [Path(engine.face()._sar_engine.__file__), LIBSAR]


def dynamic(library: Path) -> list[str]:
    out = subprocess.run(["readelf", "-d", str(library)], check=True, capture_output=True, text=True)
    return [line for line in out.stdout.splitlines() if re.search(r"\((NEEDED|RPATH|RUNPATH)\)", line)]


def python(code: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={**os.environ, **env}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("index", [0, 1], ids=["extension", "libsar"])
def test_library_links_nothing_of_python_and_has_no_rpath(index: int) -> None:
    lines = dynamic(libraries()[index])
    assert any("libc.so.6" in line for line in lines)
    assert not [line for line in lines if "python" in line], lines
    assert not [line for line in lines if "RPATH" in line or "RUNPATH" in line], lines


def test_nothing_built_names_this_machine() -> None:
    extension = libraries()[0]
    for path in [extension, *extension.parent.glob("*.py")]:
        content = path.read_bytes()
        for place in {ROOT, Path(sys.prefix), Path.home() / "go"}:
            assert str(place).encode() + b"/" not in content, f"{path} contains {place}"


def test_versions_agree() -> None:
    version = re.search(r'^version = "([^"]+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version and version.group(1) == engine.call("sar_version")


@pytest.mark.parametrize("name", ["dev", "docs", "bench", "wheels"])
def test_what_is_installed_is_locked(name: str) -> None:
    """By exact versions and hashes, and as the requirements say; what several files have is one version."""
    hashed = re.compile(r"([a-z0-9-]+)==([^ ]+) \\\n    --hash=sha256:[0-9a-f]{64}\n")

    def locked(name: str) -> dict[str, str]:
        head, _, text = (ROOT / f"requirements-{name}.lock").read_text().partition("\n")
        assert head.startswith("# ") and not hashed.sub("", text), "make lock"
        return dict(hashed.findall(text))

    found, dev = locked(name), locked("dev")
    assert not {key for key in {*found} & {*dev} if found[key] != dev[key]}
    for line in (ROOT / f"requirements-{name}.txt").read_text().splitlines():
        title, _, version = line.partition("#")[0].strip().partition("==")
        assert not title or found[title.lower().replace("_", "-")] == version, f"{line}: make lock"


def test_the_image_is_named_by_its_digest() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    (base,) = [line for line in lines if line.startswith("ARG BASE=")]
    assert re.fullmatch(r"ARG BASE=[\w.:/-]+@sha256:[0-9a-f]{64}", base) and "FROM ${BASE}" in lines


# In place of building the engine once more, as `make build` has done: the one that is there.
BUILT = """
def build_engine(target, module):
    for folder in (target, GENERATED):
        shutil.copytree({folder!r}, folder, dirs_exist_ok=True)


setup("""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made of a copy of the sources, so that the clone's build directory plays no part, and of the engine."""
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True).stdout.decode()
    for name in files.split("\0"):
        if (name.startswith("python/") or "/" not in name) and (ROOT / name).is_file():
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    script = source / "setup.py"
    before, call, after = script.read_text().partition("\nsetup(")
    assert call
    script.write_text(before + BUILT.format(folder=str(libraries()[0].parent)) + after)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", place, source]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = place.glob("sar_gnn-*.whl")
    return built


def test_wheel_contains_the_package_and_one_shared_object(wheel: Path) -> None:
    assert re.fullmatch(r"sar_gnn-[\d.]+-cp39-abi3-manylinux_2_\d+_\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(n for n in names if n.endswith(".dist-info/METADATA"))).decode()
    assert len([n for n in names if n.endswith(".so")]) == 1
    needed = ("_engine/library.py", "_engine/sar.h", "py.typed", "_ext/pybind.py", "_ext/__init__.py")
    assert {f"sar/{name}" for name in needed} <= set(names)
    assert not [n for n in names if n.endswith((".go", ".c")) or n.startswith("tests")]
    assert "Requires-Python: >=3.9" in metadata
    assert all(f"Requires-Dist: {name}" in metadata for name in ("numpy", "torch", "safetensors"))


def test_wheel_works_without_go_gcc_and_dgl(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = f"""
import sys
sys.modules["dgl"] = None  # an import of it fails
import sar
assert sar.__file__.startswith({str(tmp_path)!r}), sar.__file__
from sar._engine import library as _native
assert _native.call("sar_memory_stats")["total"]["live"] >= 0 and _native.face().Threads() > 0
print(_native.call("sar_version"))
"""
    version = wheel.name.split("-")[1]
    assert python(code, PATH=str(tmp_path), PYTHONPATH=str(tmp_path)).split()[-1] == version


STABLE = {  # of Python 3.9, as far as the extension uses it; `make wheels` has abi3audit check all
    *("PyBool_FromLong", "PyBytes_AsString", "PyBytes_FromStringAndSize", "PyBytes_Size", "PyComplex_FromDoubles"),
    *("PyErr_Occurred", "PyErr_SetString", "PyEval_RestoreThread", "PyEval_SaveThread", "PyLong_FromUnsignedLong"),
    *("PyExc_RuntimeError", "PyExc_ValueError", "PyModule_Create2", "PyObject_IsTrue", "_Py_NoneStruct"),
    *("_PyArg_ParseTupleAndKeywords_SizeT", "_Py_BuildValue_SizeT", "PyErr_Print", "_Py_Dealloc"),
}


def test_extension_uses_the_stable_abi_alone() -> None:
    extension = libraries()[0]
    assert extension.name == "_sar_engine.abi3.so"
    out = subprocess.run(["nm", "-D", str(extension)], check=True, capture_output=True, text=True).stdout
    used = set(re.findall(r" U (_?Py\w+)", out))
    assert used and used <= STABLE, used - STABLE


def test_extras_that_the_package_names_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"dgl", "pyg", "ingest", "partition", "results", "metrics"} <= set(extras)
    named = {
        call.args[1].value
        for path in (ROOT / "python" / "sar").rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "need"
        if isinstance(call.args[1], ast.Constant)
    }
    assert named and named <= set(extras)


def test_what_pip_installs() -> None:
    """``sar`` on the package index is another package, so nothing may tell users to install that."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == DISTRIBUTION
    files = [ROOT / "README.md", ROOT / "Dockerfile", *(ROOT / "docs").rglob("*.md")]
    files += (ROOT / "python" / "sar").rglob("*.py")
    texts = {path: path.read_text().replace("{DISTRIBUTION}", DISTRIBUTION) for path in files}
    wrong = re.compile(r"pip install\b[^\n]*[ '\"]sar(?=[\[ '\"`,=<>]|$)|(?<![\w-])sar\[[a-z]", re.MULTILINE)
    assert not [(path, found[0]) for path, text in texts.items() for found in [wrong.search(text)] if found]
    named = re.findall(DISTRIBUTION + r"\[([a-z,]+)\]", "".join(texts.values()))
    assert named and {extra for extras in named for extra in extras.split(",")} <= {*project["optional-dependencies"]}


def test_dockerfile() -> None:
    """What a linter would say: a pinned base, nothing cached, not root at the end, and paths that there are."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / "Dockerfile").read_text())
    steps = [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line and not line.startswith("#")]
    words = [word for word, _ in steps]
    assert words[-3:] == ["USER", "WORKDIR", "CMD"] and {"ARG", "FROM", "RUN", "COPY"} == set(words[:-3])
    for word, rest in steps:
        if word == "ARG":
            assert f"${{{rest.partition('=')[0]}}}" in text, f"{rest} is not used"
        elif word == "FROM":
            assert rest == "${BASE}"  # by digest, see below
        elif word == "COPY":
            assert rest.split()[0] == "dist/release/"
            assert "--wheel-dir dist/release " in (ROOT / "Makefile").read_text()
        elif word == "RUN" and "apt-get install" in rest:
            assert "--no-install-recommends" in rest and "rm -rf /var/lib/apt/lists" in rest
        elif word == "RUN" and "pip install" in rest:
            assert "--no-cache-dir" in rest
        elif word == "USER":
            assert rest != "root"
