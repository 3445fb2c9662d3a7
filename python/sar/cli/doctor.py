"""``sar doctor``: examines an installation by using it. Each check is a process, so that a crash is a finding."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from typing import Any

from sar.distributed import tokens
from sar.distributed.environment import environment
from sar.distributed.network import free_port
from sar.errors import RendezvousError
from sar.extras import DISTRIBUTION
from sar.units import size

_SECONDS = 90.0  # for one check: importing torch and DGL from a cold disk is slow
_ENOUGH_SHARED_MEMORY = 256 << 20
_FILES_OF_MODULE = re.compile(r"^(\.\./)*sar(/|\.py\b)", re.MULTILINE)


def add(commands: Any) -> None:
    p = commands.add_parser(
        "doctor",
        help="examine the installation",
        description="Shows versions, and tries the engine, each transport, and torch, DGL and the engine in one "
        "process. Exit code 1 if something that SAR needs fails.",
    )
    p.set_defaults(run=run)


class _Report:
    def __init__(self) -> None:
        self.trouble = 0

    def line(self, mark: str, name: str, detail: str, fix: str = "") -> None:
        """``mark`` is ok, note or FAIL."""
        self.trouble += mark == "FAIL"
        print(f"{mark:>4}  {name:<12} {detail}")
        if fix:
            print(f"{'':>4}  {'':<12} -> {fix}")
        sys.stdout.flush()


def run(arguments: argparse.Namespace) -> int:
    report = _Report()
    report.line(
        "ok" if sys.version_info >= (3, 9) else "FAIL", "python", f"{platform.python_version()} ({sys.executable})"
    )
    report.line(
        "ok",
        "system",
        f"{platform.system()} {platform.release()} {platform.machine()}, {' '.join(platform.libc_ver())}, "
        f"{len(os.sched_getaffinity(0))} cores",
    )
    _distributions(report)
    _ask(report, "packages")
    transports = _ask(report, "engine", "reinstall the package: the wheel carries the engine").get("transports", [])
    _launcher(report)
    _ask(report, "together")
    _ask(report, "allocator")
    _shared_memory(report)
    for transport in transports:
        _transport(report, transport)
    for library in ("ucx", "mpi") if transports else ():
        _library(report, library)
    print(f"\n{'no trouble found' if not report.trouble else f'{report.trouble} trouble(s) found'}")
    return 1 if report.trouble else 0


def print_version() -> int:
    """``sar --version``."""
    found, error = _probe("engine")
    if found is None:
        print(f"sar: {error}", file=sys.stderr)
        return 1
    print(found["version"])
    return 0


def _distributions(report: _Report) -> None:
    """Others that have files of the module ``sar``: whichever was installed last has written over the other's."""
    for found in importlib.metadata.distributions():
        name = found.metadata["Name"] or "?"
        files = found.read_text("RECORD") or found.read_text("installed-files.txt") or ""
        if re.sub("[-_.]+", "-", name).lower() != DISTRIBUTION and _FILES_OF_MODULE.search(files):
            report.line(
                "FAIL",
                "module sar",
                f"the package {name} {found.version} ({found.locate_file('')}) has files of the module sar, too",
                f"pip uninstall {name} {DISTRIBUTION}, then install {DISTRIBUTION} again",
            )


def _ask(report: _Report, name: str, fix: str = "") -> dict[str, Any]:
    """Reports what a check finds, and returns what else it tells."""
    found, error = _probe(name)
    if found is None:
        report.line("FAIL", name, error, fix)
        return {}
    for row in found["rows"]:
        report.line(*row)
    return found


def _launcher(report: _Report) -> None:
    """What sar.initialize_comms() would find here."""
    try:
        found = environment()
    except RendezvousError as error:
        report.line("note", "launcher", str(error))
        return
    head, *reasons = str(found).splitlines()
    report.line("note" if found.problem else "ok", "launcher", head.split(": ", 1)[1])
    for reason in reasons:
        print(f"{'':>4}  {'':<12}{reason}")


def _shared_memory(report: _Report) -> None:
    try:
        free = shutil.disk_usage("/dev/shm").free
    except OSError as error:
        report.line("FAIL", "/dev/shm", str(error), "workers of one machine can still use tcp: SAR_TRANSPORT=tcp")
        return
    little = free < _ENOUGH_SHARED_MEMORY
    report.line(
        "note" if little else "ok",
        "/dev/shm",
        f"{size(free)} free",
        "give the container more (docker run --shm-size=1g), or use SAR_TRANSPORT=tcp" if little else "",
    )


def _transport(report: _Report, transport: str) -> None:
    from .job import environment as worker_environment

    port = free_port()
    common = {"SAR_TRANSPORT": transport, tokens.VARIABLE: tokens.fresh()}
    environments = [{**worker_environment(rank, 2, 1, "127.0.0.1", port), **common} for rank in range(2)]
    workers = [_start("pair", environment=e) for e in environments]
    answers = [_answer(w) for w in workers]
    for found, error in answers:
        if found is None:
            report.line("FAIL", transport, error)
            return
    found = answers[0][0]
    assert found is not None
    used = found["uses"].rpartition(": ")[2]
    over = found["transport"] + (f" ({used})" if used else "")
    report.line("ok", transport, f"two workers over {over}: {found['gigabytes_per_second']:.1f} GB/s each way")


def _library(report: _Report, name: str) -> None:
    """A transport that is a library of others: what it would use, and for UCX what two workers do use."""
    found, error = _probe("network", name)
    if found is None:
        report.line("note", name, error)
        return
    if found["problem"]:
        problem, _, fix = found["problem"].removeprefix("it cannot be used here: ").partition(": ")
        report.line("note", name, problem, fix)
        return
    when = "and where there are RDMA devices" if name == "ucx" else "with workers that mpiexec started"
    report.line("ok", name, f"{found['uses']}; used with SAR_TRANSPORT={name}, {when}")
    if name == "ucx":
        _transport(report, name)


def _start(*what: str, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "sar.cli.probe", *what],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )


def _answer(process: subprocess.Popen[bytes]) -> tuple[dict[str, Any] | None, str]:
    try:
        out, err = process.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None, f"no answer within {_SECONDS:g} s"
    if process.returncode:
        last = [line for line in err.decode(errors="replace").splitlines() if line.strip()]
        how = f"killed by signal {-process.returncode}" if process.returncode < 0 else f"exit code {process.returncode}"
        return None, f"{last[-1] if last else 'no message'} ({how})"
    try:
        return json.loads(out.splitlines()[-1]), ""
    except (ValueError, IndexError):
        return None, f"unreadable answer {out[-200:]!r}"


def _probe(*what: str) -> tuple[dict[str, Any] | None, str]:
    return _answer(_start(*what))
