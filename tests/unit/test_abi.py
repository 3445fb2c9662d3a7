"""sar.h is the specification: what Python reads in it and what the libraries export."""

from __future__ import annotations

import ctypes as ct
import shutil
import subprocess
from pathlib import Path

import pytest

from sar._engine import library as engine, signatures
from tests.support import ROOT

HEADER = ROOT / "capi" / "sar.h"
LIBSAR = ROOT / "build" / "lib" / "libsar.so"


def exported(library: Path) -> set[str]:
    out = subprocess.run(["nm", "-D", "--defined-only", str(library)], check=True, capture_output=True, text=True)
    return {
        name for _, kind, name in map(str.split, out.stdout.splitlines()) if kind == "T" and name.startswith("sar_")
    }


def extension() -> Path:
    return Path(engine.face()._sar_engine.__file__)


def test_the_header_is_read() -> None:
    kinds, functions = signatures.TYPES, signatures.PROTOTYPES
    handle, tensors, made = ct.c_uint64, ct.POINTER(signatures.DLTensor), ct.POINTER(signatures.Text)
    assert functions["sar_version"] == (ct.c_char_p, [], False, False)
    assert functions["sar_reset_peaks"] == (None, [], False, False)
    assert functions["sar_free_string"] == (None, [ct.c_void_p], False, False)
    number = ct.POINTER(ct.c_int32)
    assert functions["sar_comm_create"] == (ct.c_int32, [handle, ct.c_char_p, number], True, False)
    assert functions["sar_broadcast"] == (ct.c_int32, [handle, ct.c_int32, tensors, ct.c_int32], True, False)
    assert functions["sar_session_memory"] == (ct.c_int32, [handle, ct.c_double, made], True, True)
    assert functions["sar_job_token"] == (ct.c_int32, [ct.c_char_p, made], True, False)
    assert functions["sar_stream_run"].arguments[1] == ct.POINTER(kinds["sar_stream"])
    assert kinds["sar_progress"]._argtypes_ == (ct.c_void_p, ct.c_int64, ct.c_int64)
    blocks = kinds["sar_stream_visit"]._argtypes_[1]
    assert blocks._type_ is kinds["sar_stream_block"]
    assert dict(blocks._type_._fields_)["rows"] == ct.POINTER(ct.c_void_p)
    assert engine.call("sar_abi_version") == signatures.ABI_VERSION


def test_extension_exports_the_header() -> None:
    assert exported(extension()) == set(signatures.PROTOTYPES)


def test_libsar_exports_the_header() -> None:
    if not LIBSAR.exists():
        pytest.fail("build/lib/libsar.so is missing: make libsar")
    assert exported(LIBSAR) == set(signatures.PROTOTYPES)


@pytest.mark.parametrize("command", [["gcc", "-std=c11", "-xc"], ["g++", "-std=c++17", "-xc++"]])
def test_header_stands_alone(command: list[str], tmp_path: Path) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not here")
    flags = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", str(HEADER)]
    subprocess.run([*command, *flags], check=True, cwd=tmp_path)


STRUCTS = {name: kind for name, kind in signatures.TYPES.items() if hasattr(kind, "_fields_")}


def test_structs_have_the_layout_of_the_header(tmp_path: Path) -> None:
    """sizeof and offsetof as the C compiler has them."""
    lines = []
    for c_name, struct in STRUCTS.items():
        lines.append(f'  printf("{c_name} %zu\\n", sizeof({c_name}));')
        for field, *_ in struct._fields_:
            lines.append(f'  printf("{c_name}.{field} %zu\\n", offsetof({c_name}, {field}));')
    source = tmp_path / "layout.c"
    source.write_text(f'#include <stdio.h>\n#include "{HEADER}"\nint main(void) {{\n' + "\n".join(lines) + "\n}\n")
    subprocess.run(["gcc", str(source), "-o", str(tmp_path / "layout")], check=True)
    out = subprocess.run([str(tmp_path / "layout")], check=True, capture_output=True, text=True).stdout
    c_layout = {name: int(value) for name, value in map(str.split, out.splitlines())}
    for c_name, struct in STRUCTS.items():
        assert c_layout[c_name] == ct.sizeof(struct), c_name
        for field, *_ in struct._fields_:
            assert c_layout[f"{c_name}.{field}"] == getattr(struct, field).offset, f"{c_name}.{field}"
