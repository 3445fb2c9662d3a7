"""The C interface of the engine for ctypes: what ``sar.h``, of which the package has a copy, declares."""

from __future__ import annotations

import ctypes as ct
import functools
import re
from pathlib import Path
from typing import Any, NamedTuple


class SizedStruct(ct.Structure):
    """A struct of ``sar.h`` that begins with its own size: made of the values of the fields after it, in order or by
    name."""

    def __init__(self, *values: Any, **named: Any) -> None:
        def sent(value: Any) -> Any:
            return value.encode() if isinstance(value, str) else value

        super().__init__(ct.sizeof(self), *map(sent, values), **{name: sent(v) for name, v in named.items()})


class DLTensor(ct.Structure):
    """DLPack's ``DLTensor``. ``_keep`` holds what the pointers point at."""

    _keep: Any


TYPES: dict[str, Any] = {
    **{"void": None, "size_t": ct.c_size_t, "double": ct.c_double, "DLTensor": DLTensor},
    **{f"{sign}int{bits}_t": getattr(ct, f"c_{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""By their names in C."""


class Text(ct.c_void_p):
    """A string that the engine has made, and that is to be freed: the address that it is."""


class Prototype(NamedTuple):
    """A function of ``sar.h``: the types of what it returns and takes, whether it returns a status, and whether its
    last argument is for JSON."""

    result: Any
    arguments: list[Any]
    fails: bool = True
    json: bool = False


PROTOTYPES: dict[str, Prototype] = {}

_FUNCTION = r"(?P<result>[\w ]+[ *]+)(?P<function>sar_\w+)\((?P<arguments>[^()]*)\);"
_CALLBACK = r"(?P<returns>[\w *]+) \(\*(?P<callback>\w+)\)\((?P<parameters>[^()]*)\)"
_DECLARATION = re.compile(
    rf"^(?:typedef struct \{{(?P<fields>.*?)\}} (?P<struct>\w+);|typedef (?P<type>\w+) (?P<alias>\w+);"
    rf"|typedef {_CALLBACK};|{_FUNCTION})",
    re.DOTALL | re.MULTILINE,
)
_DECLARED = re.compile(r"((?:const )?\w+)\b(.*)", re.DOTALL)


@functools.cache
def _pointer(name: str, stars: int) -> Any:
    """A type, and pointers to it. Bytes that C writes to stay the address that they are."""
    base = name.replace("const ", "")
    if stars == 1 and name in ("const char", "const uint8_t"):
        return ct.c_char_p
    if stars and base in ("void", "char", "uint8_t"):
        return ct.c_void_p if stars == 1 else ct.POINTER(Text if base == "char" else ct.c_void_p)
    return ct.POINTER(TYPES[base]) if stars else TYPES[base]


def _declared(text: str) -> list[tuple[str, Any]]:
    """The names and types of ``const DLTensor *a, *b``."""
    found = _DECLARED.fullmatch(text.strip())
    assert found is not None, text
    return [(one.split("*")[-1].strip(), _pointer(found[1], one.count("*"))) for one in found[2].split(",")]


def _function(result: str, arguments: str) -> list[Any]:
    """The types of what a function returns and takes."""
    given = [] if arguments == "void" else arguments.split(",")
    return [kind for text in (result, *given) for _, kind in _declared(text)]


def _fields(body: str) -> list[tuple[str, Any]]:
    found = []
    for text in body.split(";")[:-1]:
        callback = re.fullmatch(_CALLBACK, text.strip())
        if callback:
            kind = ct.CFUNCTYPE(*_function(callback["returns"], callback["parameters"]))
            found.append((callback["callback"], kind))
        else:
            found += _declared(text)
    return found


def _read(header: str) -> int:
    """Fills :data:`TYPES` and :data:`PROTOTYPES`, and returns the version of the interface."""
    for one in _DECLARATION.finditer(re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)):
        if one["struct"]:
            fields = _fields(one["fields"])
            base = SizedStruct if fields[0][0] == "size" else ct.Structure
            kind = TYPES.setdefault(one["struct"], type(one["struct"], (base,), {}))
            kind._fields_ = fields
        elif one["alias"]:
            TYPES[one["alias"]] = TYPES[one["type"]]
        elif one["callback"]:
            TYPES[one["callback"]] = ct.CFUNCTYPE(*_function(one["returns"], one["parameters"]))
        else:
            result, *arguments = _function(one["result"], one["arguments"])
            fails, json = one["result"].strip() == "sar_status", one["arguments"].endswith("**json")
            PROTOTYPES[one["function"]] = Prototype(result, arguments, fails, json)
    version = re.search(r"#define SAR_ABI_VERSION (\d+)u", header)
    assert version is not None
    return int(version[1])


ABI_VERSION = _read(Path(__file__).with_name("sar.h").read_text(encoding="utf-8"))
Progress: Any = TYPES["sar_progress"]
