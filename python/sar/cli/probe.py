"""Checks of ``sar doctor``: ``python -m sar.cli.probe WHAT`` runs one and prints one JSON object. Its rows are
lines of the report: mark, name, finding, and what to do."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any, Callable

import sar
from sar.units import size

from .resident import resident

_PAIR_BYTES = 4 << 20
_PAIR_ROUNDS = 20


def packages() -> dict[str, Any]:
    """Version and, where importing fails, the problem, of what SAR works with."""
    rows: list[tuple[str, ...]] = []
    for name, mark, fix in (
        ("numpy", "FAIL", "pip install numpy"),
        ("torch", "FAIL", "pip install torch"),
        ("dgl", "note", "without DGL, its layers and graphs are not available: pip install dgl"),
        ("pymetis", "note", "without it, sar partition has no METIS: pip install pymetis"),
    ):
        try:
            module = importlib.import_module(name)
        except Exception as error:  # whatever an import may raise is what we are to report
            rows.append((mark, name, f"{type(error).__name__}: {error}".splitlines()[0], fix))
        else:
            rows.append(("ok", name, str(getattr(module, "__version__", getattr(module, "version", "installed")))))
    return {"rows": rows}


def engine() -> dict[str, Any]:
    """Versions of the package, engine and ABI, and what the kernels use."""
    from sar._engine import library
    from sar._engine.signatures import ABI_VERSION  # loading has checked that the engine has the same

    simd, version = library.call("sar_simd"), library.call("sar_version")
    extension = sys.modules["sar._ext._sar_engine"].__file__
    return {
        "rows": [("ok", "engine", f"{version}, ABI {ABI_VERSION} ({extension})"), ("ok", "simd", simd)],
        "version": f"sar {sar.__version__}, engine {version}, ABI {ABI_VERSION}",
        "transports": json.loads(library.face().Transports()),
    }


def together() -> dict[str, Any]:
    """The same sums by torch, by DGL where it is installed, and by the engine, in one process."""
    import torch

    from sar._engine import library

    n, width, degree = 1000, 32, 8
    x = torch.randn(n, width)
    index = torch.randint(0, n, (n * degree,), dtype=torch.int32)
    offsets = torch.arange(0, n * degree + 1, degree)
    names, results = ["torch"], [x[index.long()].view(n, degree, width).sum(1)]
    try:
        import dgl
    except ImportError:
        pass
    else:
        graph = dgl.graph((index, torch.arange(n, dtype=torch.int32).repeat_interleave(degree)), num_nodes=n)
        names.append("DGL")
        results.append(dgl.ops.copy_u_sum(graph, x))
    out = torch.empty(n, width)
    library.call("sar_kernel_spmm", offsets, index, None, x, out)
    difference = max(float((out - r).abs().max()) for r in results)
    mark = "FAIL" if difference > 1e-4 else "ok"
    text = f"{', '.join(names)} and the engine in one process, sums differ by {difference:.1e}"
    return {"rows": [(mark, "together", text)]}


def allocator() -> dict[str, Any]:
    """How many bytes of 64 MiB freed the process keeps under each policy, and the policy in use."""
    import torch

    kept = {}
    for policy in ("pool", "compact", "default"):
        sar.set_allocator(policy)
        torch.zeros(1 << 17)
        before = resident()["now"]
        blocks = [torch.ones(1 << 17) for _ in range(128)]
        last = torch.ones(16)  # keeps the top of the heap where it is
        blocks.clear()
        kept[policy] = size(max(0, resident()["now"] - before))
        del last
    chosen = os.environ.get("SAR_ALLOCATOR", "").strip().lower()
    text = (
        f"of 64 MiB freed in blocks of 512 KiB, pool keeps {kept['pool']}, compact {kept['compact']}, "
        f"default {kept['default']}; in use: {f'{chosen} (SAR_ALLOCATOR)' if chosen else 'pool'}"
    )
    return {"rows": [("ok", "allocator", text)]}


def pair() -> dict[str, Any]:
    """Two workers exchange tensors and check what they got."""
    import torch

    from sar._engine import abi

    os.environ.setdefault("SAR_START_TIMEOUT", "30")
    sar.initialize_comms()
    rank = sar.rank()
    send = torch.full((_PAIR_BYTES // 4,), float(rank))
    receive = torch.empty_like(send)
    sar.comm.exchange_single_tensor(1 - rank, 1 - rank, receive, send)
    begin = time.perf_counter()
    for _ in range(_PAIR_ROUNDS):
        sar.comm.exchange_single_tensor(1 - rank, 1 - rank, receive, send)
    seconds = time.perf_counter() - begin
    if not bool((receive == 1 - rank).all()):
        raise RuntimeError(f"rank {rank} received other values than were sent")
    transport = next(peer["transport"] for peer in sar.stats()["peers"] if peer["rank"] == 1 - rank)
    uses = abi.transport_probe(transport) if transport in ("ucx", "mpi") else ""
    sar.comm.barrier()
    sar.comm.shutdown()
    return {"transport": transport, "uses": uses, "gigabytes_per_second": _PAIR_ROUNDS * _PAIR_BYTES / seconds / 1e9}


def network(name: str) -> dict[str, Any]:
    """What a transport that is a library would use here, or why it cannot be used."""
    from sar._engine import abi
    from sar.distributed import libraries

    libraries.announce(name)
    try:
        return {"uses": abi.transport_probe(name), "problem": ""}
    except ValueError as error:
        return {"uses": "", "problem": str(error)}


def main() -> None:
    checks: dict[str, Callable[..., dict[str, Any]]] = {
        check.__name__: check for check in (packages, engine, together, allocator, pair, network)
    }
    answer = checks[sys.argv[1]](*sys.argv[2:])
    sys.stdout.write("\n" + json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
