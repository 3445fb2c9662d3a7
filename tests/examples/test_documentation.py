"""The documentation: that its code blocks run, and that its lists are complete and name what there is."""

from __future__ import annotations

import ast
import contextlib
import csv
import functools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

from tests.examples import several
from tests.support import ROOT, warm
from tests.support.command import run_sar

DOCS = ROOT / "docs"
DEADLINE = 300.0

FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    title: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in FENCE.findall(page.read_text())]


def shell(text: str, folder: Path) -> str:
    """Runs commands as a reader does, who stops at the first that fails. ``make`` works in the repository."""
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "REPOSITORY": str(ROOT)}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", 'make() { command make -C "$REPOSITORY" "$@"; }\n' + text],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def quickly(text: str, folder: Path, commands: str = "sar|python") -> str:
    """The same, with commands of SAR in this process and scripts as forks of one that has imported torch."""
    shown = ""
    pattern = rf"^((?:{commands}) [^|<>;&\n]*\n)"
    for number, part in enumerate(re.split(pattern, text.replace("\\\n", ""), flags=re.M)):
        if number % 2 == 0:
            shown += shell(part, folder)
            continue
        command, *words = shlex.split(part)
        with contextlib.chdir(folder), mock.patch.dict(os.environ, REPOSITORY=str(ROOT)):
            done = run_sar(*words, libraries=True) if command == "sar" else warm.run(words, libraries=True)
        assert done.returncode == 0, f"{part}\n{done.stdout}\n{done.stderr}"
        shown += done.stdout
    return shown


def play(page: Path, folder: Path, run: Callable[[str, Path], str] = quickly) -> None:
    """Runs a page: blocks with a title are files, commands run, texts are what the commands before them show."""
    shown = ""
    for block in blocks(page):
        if block.language == "bash":
            shown = run(block.text, folder)
        elif block.language == "text":
            holds(shown, block.text)
        elif block.language == "diff":
            if block.title:  # else the lines that change, of a script that is tested elsewhere
                ports(block, folder)
        else:
            assert block.language == "python" and block.title, f"{page.name}: a block that is not run: {block.text}"
            (folder / block.title).write_text(block.text)


def holds(shown: str, expected: str) -> None:
    """That every expected line is there; numbers may be others, and white space."""

    def bare(text: str) -> str:  # a regular expression would try all ways to cut a row of digits into numbers
        return re.sub(r"\s", "", re.sub(r"[\d.]+", "0", text))

    found = bare(shown)
    missing = [line for line in expected.splitlines() if bare(line) not in found]
    assert not missing, f"{missing[0]!r} is not in\n{shown}"


def ports(block: Block, folder: Path) -> None:
    """That the script before and the script after the change end with the same parameters."""
    end = "\nif globals().get('rank', 0) == 0:\n"
    end += "    print('sum', sum(p.abs().sum() for p in model.parameters()).item())\n"
    sums = []
    for own, other, name, command in (
        ("-", "+", "before.py", "python before.py"),
        ("+", "-", block.title, f"sar launch -n 2 {block.title}"),
    ):
        lines = [line[1:] for line in block.text.splitlines() if not line.startswith(other)]
        assert len(lines) < len(block.text.splitlines()), f"no line begins with {own}"
        (folder / name).write_text("\n".join(lines) + end)
        sums.append(float(re.findall(r"sum ([\d.]+)", quickly(f"{command}\n", folder))[-1]))
    assert sums[1] == pytest.approx(sums[0], rel=1e-5)


@pytest.fixture
def all_extras() -> None:
    for library in ("dgl", "duckdb", "pyarrow", "yaml"):
        pytest.importorskip(library)


def test_tutorial(tmp_path: Path, all_extras: None) -> None:
    play(DOCS / "tutorial.md", tmp_path)
    rows = list(csv.DictReader((tmp_path / "answer.csv").open(newline="")))
    assert len(rows) == 2708 and sum(r["predicted"] == r["topic"] for r in rows) > 2000


def test_from_a_table_to_a_graph(tmp_path: Path, all_extras: None) -> None:
    play(DOCS / "tables.md", tmp_path)


def test_readme(tmp_path: Path) -> None:
    """As it stands there, but that gcn.py trains for 20 epochs, in workers that have imported torch; test_examples.py
    has all 200."""
    pytest.importorskip("dgl")
    if Path(sys.prefix).resolve() != (ROOT / ".venv").resolve():
        pytest.skip("the README is about the repository's own .venv")
    for path in [*ROOT.iterdir(), *(ROOT / "examples").iterdir()]:
        if path.name not in (".git", "build", "parts", "examples", "gcn.py"):
            copy = tmp_path / path.relative_to(ROOT)
            copy.parent.mkdir(exist_ok=True)
            copy.symlink_to(path)
    several.shorter(ROOT / "examples" / "gcn.py", tmp_path / "examples" / "gcn.py", 20, every=5)
    play(ROOT / "README.md", tmp_path, functools.partial(quickly, commands="sar launch"))


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_of_pages_outside_the_site(page: str) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", (ROOT / page).read_text())
    missing = [link for link in links if "://" not in link and not (ROOT / link).exists()]
    assert links and not missing


LONG = "word " * 30 + "end"
PROSE = {
    LONG: "word " * 23 + "word\n" + "word " * 6 + "end",
    "- a\n  b " + LONG + "\n- c": "- a b " + "word " * 22 + "word\n  " + "word " * 7 + "end\n- c",
    "word " * 24 + "12. " + LONG: "word " * 22 + "word\nword 12. " + "word " * 21 + "word\n" + "word " * 8 + "end",
    "short\nlines": "short\nlines",
    **{text: text for text in (f"```text\n{LONG}\n```", f"| {LONG} |", f"# {LONG}", "x" * 130, f"{LONG}  \nbroken")},
}


@pytest.mark.parametrize("text", PROSE, ids=range(len(PROSE)))
def test_wrapping_of_prose(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text + "\n")
    command = [sys.executable, DOCS / "_tools" / "wrap.py"]
    said = subprocess.run([*command, "--check", page], capture_output=True, text=True)
    assert said.returncode == (PROSE[text] != text) and page.read_text() == text + "\n"
    assert ("page.md:" in said.stdout) == (PROSE[text] != text)
    subprocess.run([*command, page], check=True)
    assert page.read_text() == PROSE[text] + "\n"


SITES = {"": 0, "[a](b.md)": 1, "[a](other.md#b)": 1, "[a](#b)": 1, "[a](/other.md)": 1, "[a][sar.b]": 1}


@pytest.mark.parametrize("text", SITES)
def test_broken_links_fail_the_site(text: str, tmp_path: Path) -> None:
    """With the options and settings that `make docs` has."""
    pytest.importorskip("mkdocs")
    yaml = pytest.importorskip("yaml")
    recipe = subprocess.run(["make", "--dry-run", "docs"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    (options,) = re.findall(r"-m mkdocs build(.*)$", recipe, re.MULTILINE)
    ours = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    small = {"site_name": "small", "validation": ours["validation"], "plugins": ["mkdocstrings"]}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(small))
    (tmp_path / "docs").mkdir()
    for page in ("index", "other"):
        (tmp_path / "docs" / f"{page}.md").write_text(f"# {page}\n\n{text}\n")
    command = [sys.executable, "-m", "mkdocs", "build", *options.split(), "--config-file", tmp_path / "mkdocs.yml"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    assert done.returncode == SITES[text], done.stderr


def sources() -> Iterator[Path]:
    engine = [*(ROOT / "core").rglob("*.go"), *(ROOT / "capi").rglob("*.go"), *(ROOT / "capi").rglob("*.c")]
    for path in [*(ROOT / "python/sar").rglob("*.py"), *engine]:
        if "_ext" not in path.parts and not path.name.endswith("_test.go"):
            yield path


def test_environment_variables_are_listed() -> None:
    """Every variable that the package or the engine reads is on the page, and no other."""
    name = re.compile(r"[\"'](SAR_[A-Z_]+)[\"']")
    read = {found for path in sources() for found in name.findall(path.read_text())}
    listed = set(re.findall(r"^\| `(SAR_[A-Z_]+)`", (DOCS / "environment.md").read_text(), re.MULTILINE))
    assert len(read) > 10
    assert listed - {"SAR_SYMBOLS", "SAR_WHEEL_ARCH"} == read  # these two are setup.py's


def messages() -> list[str]:
    return re.findall(r"^### `(.+?)`", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)


def literals() -> str:
    """All string literals of the package and the engine."""
    texts = []
    for path in sources():
        text = path.read_text()
        if path.suffix in (".go", ".c"):
            texts += re.findall(r'"((?:[^"\\\n]|\\.)*)"', re.sub(r'" \+\n\s*"', "", text))
        else:
            constants = [n.value for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Constant)]
            texts += [value for value in constants if isinstance(value, str)]
    return "\n".join(texts)


def test_messages_of_troubleshooting_are_real() -> None:
    """The fixed parts of each message occur in the sources."""
    texts = literals()
    assert len(messages()) > 20
    for message in messages():
        for part in re.split(r"…", message):
            part = part.strip(" :")
            if len(part) > 6:
                assert part in texts, f"{message}: no message has {part!r}"


COPIED = ["custom_message.py", "gat.py", "gcn.py", "graphsage.py", "rgcn.py"]
COPIED += ["pyg_gat.py", "pyg_jumping.py", "pyg_hetero.py", "pyg_link_pred.py"]


@pytest.mark.parametrize("script", COPIED)
def test_scripts_to_copy_stand_alone(script: str) -> None:
    text = (ROOT / "examples" / script).read_text()
    assert len(text.splitlines()) <= 72
    modules = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module)
    theirs = {"torch", "torch.nn.functional", "dgl", "torch_geometric.nn"}
    assert modules <= {"os", "sys", "sar", "sar.function", *theirs}
