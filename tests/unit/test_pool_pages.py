"""The pool for large blocks on systems with other pages than this one's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import ROOT


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc is not installed")
    made = tmp_path_factory.mktemp("pool") / "pool_pages"
    source = Path(__file__).with_name("pool_pages.c")
    words = ["-O1", "-g", "-D_GNU_SOURCE", "-I", str(ROOT / "capi" / "export"), "-pthread", "-o", str(made)]
    subprocess.run([compiler, *words, str(source)], check=True, timeout=120)
    return made


@pytest.mark.parametrize("page", [4, 16, 64], ids="{} KiB".format)
def test_blocks_are_whole_pages(program: Path, page: int) -> None:
    done = subprocess.run([program, str(page << 10)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
