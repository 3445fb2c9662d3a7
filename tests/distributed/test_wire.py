"""What travels between workers, counted by a proxy between them: boundary rows and little else."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import threading

import psutil

from sar.distributed.network import free_port
from tests.support import warm

ROWS, WIDTH, EDGES, EPOCHS = 4000, 256, 60000, 5

WORKER = f"""
import json, os, sys
import torch
import sar
from sar._engine import abi as _abi

rank = int(sys.argv[1])
sar.initialize_comms(rank, 2, "127.0.0.1", "sar", master_port_number=int(sys.argv[2]))
generator = torch.Generator().manual_seed(rank)
dst = torch.randint(rank * {ROWS}, (rank + 1) * {ROWS}, ({EDGES},), generator=generator)
src = torch.randint(0, 2 * {ROWS}, ({EDGES},), generator=generator)
session = sar._engine.session.current()
graph = _abi.graph_from_edges(session.handle, torch.tensor([0, {ROWS}, {2 * ROWS}]), src, dst)
u = torch.ones({ROWS}, {WIDTH})
out, grad = torch.empty_like(u), torch.empty_like(u)
spec = _abi.AggregateSpec(0, "copy_u", "sum")
for epoch in range({EPOCHS}):
    agreed = _abi.aggregate_forward(graph, spec, 1, u, None, out)
    _abi.aggregate_backward(graph, spec, agreed, None, None, out, grad, None)
stats = sar.stats()
counted = sum(l["sent_bytes"] for l in stats["links"])
boundary = _abi.graph_relation_info(graph, 0).num_boundary
print(json.dumps({{"boundary": boundary, "counted": counted, "window": stats["window"],
    "moved": [sum(l[k] for l in stats["links"]) for k in ("sent_pulled", "sent_home")]}}), flush=True)
sar.comm.shutdown()
"""


class Proxy:
    """Passes connections on to the listener of a process and counts the bytes towards it and from it."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.bytes = 0
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._target()))
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(a, b), daemon=True).start()

    def _target(self) -> int:
        assert self.process is not None
        ports = {
            c.laddr.port
            for c in psutil.Process(self.process.pid).net_connections("tcp")
            if c.status == psutil.CONN_LISTEN
        }
        assert len(ports) == 1, ports
        return ports.pop()

    def _pump(self, a: socket.socket, b: socket.socket) -> None:
        try:
            while data := a.recv(1 << 20):
                with self.lock:
                    self.bytes += len(data)
                b.sendall(data)
        except OSError:
            pass
        finally:
            for end in (a, b):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)


def measured() -> dict[str, int]:
    """Bytes of boundary rows, on the wire, and counted by the engine; the window's limit and peak."""
    port = free_port()
    proxies = [Proxy() for _ in range(2)]
    reports = []
    try:
        for rank, proxy in enumerate(proxies):
            proxy.process = warm.Popen(
                ["-c", WORKER, str(rank), str(port)],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "SAR_TRANSPORT": "tcp", "SAR_ADVERTISE": proxy.address, "OMP_NUM_THREADS": "1"},
            )
        for proxy in proxies:
            assert proxy.process is not None
            out, _ = proxy.process.communicate(timeout=120)
            assert proxy.process.returncode == 0
            reports.append(json.loads(out.splitlines()[-1]))
    finally:
        for proxy in proxies:
            proxy.listener.close()
            if proxy.process is not None:
                proxy.process.kill()
    # forward brings each boundary row once, backward takes its gradient home once; building the graph asked for
    # each with 4 bytes and told its edges with 8
    boundary = sum(r["boundary"] for r in reports)
    rows = boundary * (WIDTH * 4 * 2 * EPOCHS + 4 + 8)
    return {
        "rows": rows,
        "wire": sum(proxy.bytes for proxy in proxies),
        "pulled": sum(r["moved"][0] for r in reports),
        "home": sum(r["moved"][1] for r in reports),
        "once": boundary * WIDTH * 4 * EPOCHS,
        "counted": sum(r["counted"] for r in reports),
        "limit": reports[0]["window"]["limit"],
        "peak": max(r["window"]["peak"] for r in reports),
    }


def test_wire_carries_boundary_rows_and_little_else() -> None:
    m = measured()
    assert m["rows"] > 40 << 20
    assert m["rows"] <= m["wire"] <= 1.01 * m["rows"], m
    assert m["counted"] <= m["wire"] <= 1.01 * m["counted"], m
    assert m["pulled"] == m["once"] and m["home"] - m["once"] == m["rows"] - 2 * m["once"], m
    assert 0 < m["peak"] <= m["limit"], m
