"""Every function of sar.h fails as the header says: what the C program in ``abi/`` saw is held against it."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections import defaultdict

import pytest

from tests.support import ROOT
from tests.unit.test_abi import HEADER, LIBSAR

SOURCES = sorted((ROOT / "tests" / "unit" / "abi").glob("*.c"))

# Pointers through which a function gives a result, which must not be NULL.
RESULTS = {"char**", "sar_handle*", "int32_t*", "uint32_t*", "int64_t*", "uint64_t*", "void**", "sar_relation_info*"}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The statuses that each function was made to return."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not here")
    if not LIBSAR.exists():
        pytest.fail("build/lib/libsar.so is missing: make libsar")
    tmp = tmp_path_factory.mktemp("abi")
    secret = tmp / "secret"
    secret.write_text("0123456789abcdef" * 4 + "\n")
    secret.chmod(0o666)
    folder = tmp / "parts"
    folder.mkdir()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    program = tmp / "abi_errors"
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{HEADER.parent}"]
    libs = [f"-L{LIBSAR.parent}", "-lsar", "-pthread", f"-Wl,-rpath,{LIBSAR.parent}"]
    subprocess.run(["gcc", *flags, *map(str, SOURCES), "-o", str(program), *libs], check=True)
    run = subprocess.run(
        [str(program), str(ROOT / "examples" / "data" / "cora.npz"), str(folder), str(port)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "SAR_SECRET_FILE": str(secret)},
    )
    assert run.returncode == 0, run.stderr
    out = defaultdict(set)
    for line in run.stdout.splitlines():
        function, status = line.split()
        out[function].add(status)
    return out


def declarations() -> dict[str, tuple[str, list[str]]]:
    """Functions that sar.h declares: name -> (result type, argument types)."""
    text = re.sub(r"/\*.*?\*/|\bconst ", "", HEADER.read_text(), flags=re.DOTALL)
    found = re.findall(r"^([\w ]+?[ *]+)(sar_\w+)\(([^)]*)\);", text, re.MULTILINE)
    return {
        name: (result.strip(), [re.sub(r"\s*(\**)\w+$", r"\1", one.strip()) for one in arguments.split(",")])
        for result, name, arguments in found
    }


def documented() -> dict[str, set[str]]:
    """The errors that the header names with each function."""
    text = HEADER.read_text()
    out = {}
    # A comment, an enum or a struct where there is one, and the functions up to an empty line.
    for comment, declared in re.findall(r"/\*((?:(?!\*/).)*)\*/\n((?:(?!\n\n).)*)", text, re.DOTALL):
        named = set(re.findall(r"SAR_ERR_\w+", comment.partition("Errors")[2]))
        for function in re.findall(r"^sar_status (sar_\w+)\(", declared, re.MULTILINE):
            out[function] = named
    return out


def test_documented_errors(seen: dict[str, set[str]]) -> None:
    missing = {f: sorted(named - seen[f]) for f, named in documented().items() if named - seen[f]}
    assert not missing, "sar.h names errors that the C program does not bring about"


def test_errors_of_any_function(seen: dict[str, set[str]]) -> None:
    """A handle that is closed, results that go nowhere, and tensors that the engine cannot read."""
    wrong = []
    for function, (result, arguments) in declarations().items():
        if result != "sar_status":
            continue
        want = set()
        if "sar_handle" in arguments:
            want |= {"SAR_ERR_VALUE", "SAR_ERR_CLOSED"}
        if RESULTS & set(arguments):
            want.add("SAR_ERR_VALUE")
        if "DLTensor*" in arguments:
            want.add("SAR_ERR_TYPE")
        if want - seen[function]:
            wrong.append(f"{function}: {sorted(want - seen[function])}")
    assert not wrong


def test_errors_of_collectives(seen: dict[str, set[str]]) -> None:
    ends = {"SAR_ERR_SCHEDULE", "SAR_ERR_REMOTE", "SAR_ERR_PEER_LOST", "SAR_ERR_TIMEOUT"}
    assert ends <= seen["sar_barrier"] and "SAR_ERR_SCHEDULE" in seen["sar_all_reduce"]


def test_lines_are_short() -> None:
    long = [i for i, line in enumerate(HEADER.read_text().splitlines(), 1) if len(line) > 100]
    assert not long, f"lines of sar.h with more than 100 columns: {long}"
