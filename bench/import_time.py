"""How long `import sar` and its names take beyond torch, and which of its modules take longest.

Each time is that of a fresh process whose bytecode is compiled; the best of several is what the package needs, since
whatever else runs on the machine can only add. Wanted: at most 100 ms.

    python bench/import_time.py [--times 9] [--modules 10]
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys

TIMED = "import time, torch; begin = time.perf_counter(); import sar; sar.rank; print(time.perf_counter() - begin)"
LINE = re.compile(r"import time:\s*(\d+) \|\s*\d+ \|\s*(sar[\w.]*)")


def fresh(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="time of import sar")
    parser.add_argument("--times", type=int, default=9, help="processes")
    parser.add_argument("--modules", type=int, default=10, help="modules to show")
    options = parser.parse_args()
    fresh("-c", "import sar; sar.rank")
    times = [float(fresh("-c", TIMED).stdout) * 1e3 for _ in range(options.times)]
    print(f"import sar beyond torch: best {min(times):.0f} ms, median {statistics.median(times):.0f} ms")
    report = fresh("-X", "importtime", "-c", "import torch; import sar; sar.rank").stderr
    slowest = sorted(((int(own), name) for own, name in LINE.findall(report)), reverse=True)
    for own, name in slowest[: options.modules]:
        print(f"{own / 1e3:8.1f} ms  {name}")


if __name__ == "__main__":
    main()
