"""sar.h is the specification: what the libraries export and what Python calls are held against it."""

from __future__ import annotations

import ctypes as ct
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sar._engine import abi, library as engine, signatures, streams
from tests.support import ROOT

HEADER = ROOT / "capi" / "sar.h"
LIBSAR = ROOT / "build" / "lib" / "libsar.so"


def declarations() -> dict[str, tuple[str, list[str]]]:
    """Functions that sar.h declares: name -> (result type, argument types)."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
    out = {}
    for result, name, arguments in re.findall(r"^([\w ]+?[ *]+)(sar_\w+)\(([^)]*)\);", text, re.MULTILINE):
        if result.startswith("typedef"):
            continue
        types = []
        for argument in arguments.split(","):
            found = re.fullmatch(r"(.*?[ *])\w+", argument.strip())
            types.append(tidy(found.group(1) if found else argument))
        out[name] = (tidy(result), [] if types == ["void"] else types)
    return out


def tidy(c_type: str) -> str:
    return re.sub(r"\s*\*\s*", "*", c_type.replace("const ", "")).strip()


# How a type of the header may be written in the ctypes table.
CTYPES = {
    "void": [None],
    "sar_status": [ct.c_int32],
    "int32_t": [ct.c_int32],
    "uint32_t": [ct.c_uint32],
    "int64_t": [ct.c_int64],
    "uint64_t": [ct.c_uint64],
    "sar_handle": [ct.c_uint64],
    "char*": [ct.c_char_p, ct.c_void_p],
    "char**": [ct.POINTER(ct.c_void_p)],
    "void*": [ct.c_void_p],
    "double": [ct.c_double],
    "int32_t*": [ct.POINTER(ct.c_int32)],
    "uint32_t*": [ct.POINTER(ct.c_uint32)],
    "uint64_t*": [ct.POINTER(ct.c_uint64)],
    "int64_t*": [ct.POINTER(ct.c_int64)],
    "sar_handle*": [ct.POINTER(ct.c_uint64)],
    "DLTensor*": [ct.POINTER(signatures.DLTensor)],
    "sar_error_info*": [ct.POINTER(signatures.ErrorInfo)],
    "sar_session_config*": [ct.c_void_p],
    "sar_transport*": [ct.c_void_p],
    "sar_relation_info*": [ct.c_void_p],
    "sar_program_call*": [ct.c_void_p],
    "sar_stream*": [ct.c_void_p],
    "sar_sample_config*": [ct.c_void_p],
    "void**": [ct.POINTER(ct.c_void_p)],
    "sar_progress": [signatures.Progress],
}


def exported(library: Path) -> set[str]:
    out = subprocess.run(["nm", "-D", "--defined-only", str(library)], check=True, capture_output=True, text=True)
    return {
        name for _, kind, name in map(str.split, out.stdout.splitlines()) if kind == "T" and name.startswith("sar_")
    }


def extension() -> Path:
    return Path(engine.face()._sar_engine.__file__)


def test_the_header_is_read() -> None:
    found = declarations()
    assert len(found) > 40
    assert found["sar_version"] == ("char*", [])
    assert found["sar_comm_create"] == ("sar_status", ["sar_handle", "char*", "int32_t*"])


def test_extension_exports_the_header() -> None:
    assert exported(extension()) == set(declarations())


def test_libsar_exports_the_header() -> None:
    if not LIBSAR.exists():
        pytest.fail("build/lib/libsar.so is missing: make libsar")
    assert exported(LIBSAR) == set(declarations())


def test_python_prototypes_are_those_of_the_header() -> None:
    found = declarations()
    assert set(signatures.PROTOTYPES) == set(found)
    for name, (result, *arguments) in signatures.PROTOTYPES.items():
        c_result, c_arguments = found[name]
        assert result in CTYPES[c_result], f"{name}: result"
        assert len(arguments) == len(c_arguments), name
        for i, (mine, c_type) in enumerate(zip(arguments, c_arguments)):
            assert mine in CTYPES[c_type], f"{name}: argument {i} is {c_type}"


def test_abi_version() -> None:
    found = re.search(r"#define SAR_ABI_VERSION (\d+)u", HEADER.read_text())
    assert found and int(found.group(1)) == signatures.ABI_VERSION


@pytest.mark.parametrize("command", [["gcc", "-std=c11", "-xc"], ["g++", "-std=c++17", "-xc++"]])
def test_header_stands_alone(command: list[str], tmp_path: Path) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not here")
    flags = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", str(HEADER)]
    subprocess.run([*command, *flags], check=True, cwd=tmp_path)


STRUCTS = {
    "DLTensor": signatures.DLTensor,
    "sar_error_info": signatures.ErrorInfo,
    "sar_session_config": abi.SessionConfig,
    "sar_relation_info": abi.RelationInfo,
    "sar_stream": streams.StreamSpec,
    "sar_stream_block": streams.StreamBlock,
}


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
