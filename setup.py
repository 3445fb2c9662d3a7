"""Builds the extension: the Go engine, seen by Python through gopy.

gopy writes a Go file (the exports), a pybindgen script (which writes the C
module) and the Python wrappers; all of it goes to build/_gopy and is compiled
into one shared object. As gopy drives it, that object would link libpython and
carry the path of this machine's Python in its rpath; it needs neither. So the
steps are taken here one by one.

The extension uses Python's stable ABI, so that one wheel does for all versions.
With SAR_WHEEL_ARCH (x86_64 or aarch64) the compiler of the package ziglang builds
for that processor, and for an old glibc: a wheel for others' machines.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
PACKAGE = "sar/pybind"  # the Go package that gopy wraps
NAME = "sar_engine"  # gopy calls the module _sar_engine
GENERATED = ROOT / "build" / "_gopy"  # the underscore hides it from "go build ./..."
OLDEST = (3, 9)  # Python, as in pyproject.toml
GLIBC = 28  # 2.28, of RHEL 8 and Debian 10; Ubuntu 20.04 has 2.31
ARCH = os.environ.get("SAR_WHEEL_ARCH", "")
GOARCH = {"x86_64": "amd64", "aarch64": "arm64"}

# The wrappers leave the working directory while they import the module, which
# needs no such help where it is imported from its package.
CHDIR = re.compile(r"^(cwd = os\.getcwd\(\)|currentdir = .*|os\.chdir\(.*\))\n", re.MULTILINE)
COMMAND = re.compile(r"^# gopy gen .*\n", re.MULTILINE)  # with the paths of this machine

# Of what gopy and pybindgen write, these parts alone are outside the stable ABI. Nothing uses them.
UNSTABLE_GO = re.compile(
    r"^static inline int gopy_method_check\(.*\n.*\n\}\n|^func complex(?:64|128)PyToGo\(.*\n.*\n.*\n\}\n", re.MULTILINE
)
UNSTABLE_C = re.compile(r"^typedef PyAsyncMethods\* cmpfunc;\n", re.MULTILINE)


def cross() -> dict[str, str]:
    """What Go needs to build for SAR_WHEEL_ARCH."""
    if not ARCH:
        return {}
    if ARCH not in GOARCH:
        raise SystemExit(f"SAR_WHEEL_ARCH={ARCH}: there are {', '.join(GOARCH)}")
    found = importlib.util.find_spec("ziglang")
    if found is None or found.origin is None:
        raise SystemExit("SAR_WHEEL_ARCH needs the package ziglang: pip install -r requirements-wheels.txt")
    zig = shlex.quote(str(Path(found.origin).with_name("zig")))
    return {
        "GOOS": "linux",
        "GOARCH": GOARCH[ARCH],
        "CC": f"{zig} cc -target {ARCH}-linux-gnu.2.{GLIBC}",
        "CGO_CFLAGS": "-O2 -g0",  # what zig writes for debuggers names paths of this machine
    }


def run(*command: str, cwd: Path = ROOT, **more: str) -> None:
    # An older Go fetches the one that go.mod names, also where its packager turned that off.
    env = {"GOTOOLCHAIN": "auto", **os.environ, "GOEXPERIMENT": "simd", "CGO_ENABLED": "1", **more}
    for tool, use in (("go", "Go, version 1.27, or 1.21 and newer, which fetch it"), ("gcc", "a C compiler")):
        if shutil.which(tool) is None and not (tool == "gcc" and os.environ.get("CC")):
            raise SystemExit(f"building sar needs {use}: {tool} is not on the PATH. A wheel needs neither.")
    done = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed in {cwd}:\n{done.stdout}")


def edit(path: Path, pattern: re.Pattern[str], expect: int, new: str = "") -> None:
    """Replaces what matches, and fails where gopy's output is not as it was when this was written."""
    text, found = pattern.subn(new, path.read_text())
    if found != expect:
        raise SystemExit(
            f"{path}: {found} matches of {pattern.pattern!r} in place of {expect}: has the version of gopy changed?"
        )
    path.write_text(text)


def build_engine(target: Path, module: str) -> None:
    """Builds the extension and its wrappers into target, the directory of the package sar._ext."""
    shutil.rmtree(GENERATED, ignore_errors=True)
    GENERATED.mkdir(parents=True)
    run("go", "tool", "gopy", "gen", f"-vm={sys.executable}", f"-output={GENERATED}", f"-name={NAME}",
        "-no-make", "-package-prefix=.", PACKAGE)
    source = GENERATED / f"{NAME}.go"
    # The interpreter that loads the extension brings Python's symbols.
    edit(source, re.compile(r"^#cgo LDFLAGS:.*\n", re.MULTILINE), 1)
    edit(source, UNSTABLE_GO, 3)
    limit = f"#cgo CFLAGS: -DPy_LIMITED_API={OLDEST[0] << 24 | OLDEST[1] << 16:#x} "
    edit(source, re.compile(r"^#cgo CFLAGS: ", re.MULTILINE), 1, limit)
    wrappers = [GENERATED / "pybind.py", GENERATED / "go.py"]
    for wrapper in wrappers:
        edit(wrapper, CHDIR, 4)
        edit(wrapper, COMMAND, 1)
    run("go", "tool", "goimports", "-w", str(source))
    # The pybindgen script includes the header of the Go exports.
    include = sysconfig.get_paths()["include"]
    run("go", "tool", "cgo", "-objdir", str(GENERATED / "_obj"), "-exportheader", f"{NAME}_go.h", "--",
        f"-I{include}", source.name, cwd=GENERATED)
    run(sys.executable, "build.py", cwd=GENERATED)
    edit(GENERATED / f"{NAME}.c", UNSTABLE_C, 1)
    built = GENERATED / module
    # Names of functions are for profilers; they make the file half as large again.
    symbols = [] if os.environ.get("SAR_SYMBOLS") == "1" else ["-ldflags=-s -w"]
    run("go", "build", "-buildmode=c-shared", "-buildvcs=false", "-trimpath", *symbols, "-o", str(built),
        f"./{GENERATED.relative_to(ROOT)}", **cross())
    target.mkdir(parents=True, exist_ok=True)
    for old in target.glob("*.so"):
        old.unlink()
    for path in [*wrappers, built]:
        # Replaced, not overwritten: a process may have the old object mapped.
        new = target / (path.name + ".new")
        shutil.copyfile(path, new)
        new.replace(target / path.name)
    (target / "__init__.py").write_text('"""The engine. Generated; sar._engine.library loads it."""\n')


class BuildEngine(build_ext):
    """Has Go build the one extension that there is, in place or into the wheel."""

    def run(self) -> None:
        for extension in self.extensions:
            path = Path(self.get_ext_fullpath(extension.name)).resolve()
            build_engine(path.parent, path.name)


class Wheel(bdist_wheel):
    """Names the oldest glibc that the extension runs with, in place of "linux"."""

    def get_tag(self) -> tuple[str, str, str]:
        python, abi, plat = super().get_tag()
        built = GENERATED / f"_{NAME}.abi3.so"
        if plat.startswith("linux_") and built.exists():
            newest = max(int(m) for m in re.findall(rb"GLIBC_2\.(\d+)", built.read_bytes()))
            if ARCH and newest > GLIBC:
                raise SystemExit(f"{built} needs glibc 2.{newest}, and is to run with 2.{GLIBC}")
            plat = f"manylinux_2_{max(newest, GLIBC)}_{ARCH or platform.machine()}"
        return python, abi, plat


setup(
    ext_modules=[Extension(f"sar._ext._{NAME}", sources=[], py_limited_api=True)],
    cmdclass={"build_ext": BuildEngine, "bdist_wheel": Wheel},
    options={"bdist_wheel": {"py_limited_api": f"cp{OLDEST[0]}{OLDEST[1]}"}},
)
