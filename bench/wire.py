"""Bandwidth of the transports: 4 MiB both ways at once over shared memory, TCP, TLS, and those that are libraries.

Two processes hold all of them at the same time and take turns, so that a busy machine slows all of them alike. Checks
what arrived. Prints seconds and processor time per exchange, bytes per second each way, and the ratios to shared
memory, TCP and gloo, which is torch.distributed called by the script itself; "torch" is the same library below a link
of SAR's.

    python bench/wire.py [--bytes 4194304] [--rounds 7] [--exchanges 30] [--ways shm,tcp,tls,torch,gloo,...]

UCX (ucx_shm, ucx_tcp) and mpi are there where their libraries are. For MPI the mpiexec beside this Python starts the
two processes.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist

import common
from sar._engine import abi
from sar.cli.output import table
from sar.distributed import libraries, tokens, torch_transport
from sar.units import size

GLOO, TORCH, TLS, MPI = "gloo", "torch", "tls", "mpi"
WAYS = ("shm", "tcp", TLS, TORCH, GLOO)
UCX = {"ucx_shm": "sm,self", "ucx_tcp": "tcp,self"}  # what UCX may use
BASES = ("shm", "tcp", GLOO)
MPIEXEC = os.path.join(sys.prefix, "bin", "mpiexec")
START_SECONDS, LIVENESS_SECONDS, OPERATION_SECONDS = 60.0, 20.0, 60.0


def found(transport: str) -> bool:
    """Whether the library of a transport is here."""
    libraries.announce(transport)
    try:
        abi.transport_probe(transport)
    except ValueError:
        return False
    return transport != MPI or os.path.exists(MPIEXEC)


def all_ways() -> list[str]:
    return [*WAYS, *(UCX if found("ucx") else ()), *([MPI] if found(MPI) else ())]


def exchanges(rank: int, ports: dict[str, int]) -> dict:
    """By way, a function (send, receive) that exchanges two tensors with the other rank."""
    other = 1 - rank
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{ports[GLOO]}",
        rank=rank,
        world_size=2,
        timeout=datetime.timedelta(seconds=START_SECONDS),
    )
    for library in ("ucx", MPI):
        libraries.announce(library)
    torch_transport.prepare("gloo", TORCH, rank, 2, START_SECONDS)

    def gloo(send, receive):
        requests = [dist.isend(send, other), dist.irecv(receive, other)]
        for request in requests:
            request.wait()

    ways = {GLOO: gloo}
    for way in (way for way in ports if way != GLOO):  # in one order on both
        limits = (START_SECONDS, LIVENESS_SECONDS, OPERATION_SECONDS)
        transport = {TLS: "tcp", **dict.fromkeys(UCX, "ucx")}.get(way, way)
        os.environ["UCX_TLS"] = UCX.get(way, "all")  # UCX reads it when a session opens
        session = abi.session_open(rank, 2, "127.0.0.1", ports[way], None, transport, None, *limits, 0, tls=way == TLS)

        def native(send, receive, session=session):  # on the communicator that carries rows
            abi.exchange_pair(session, abi.TRAIN, other, send, other, receive)

        ways[way] = native
    return ways


def worker(ports: dict[str, int], count: int, rounds: int, repeat: int, answers: str | None) -> None:
    """One of the two processes. Answers with seconds and processor seconds per exchange, by way and round, on stdout or
    in a file of the directory ``answers``."""
    rank = int(os.environ.get("PMI_RANK", os.environ["RANK"]))  # the first is mpiexec's
    torch.set_num_threads(1)
    ways = exchanges(rank, ports)
    send = torch.arange(count, dtype=torch.uint8) + rank
    expected = torch.arange(count, dtype=torch.uint8) + (1 - rank)
    taken: dict[str, list[tuple[float, float]]] = {way: [] for way in ports}
    for turn in range(rounds + 1):  # the first is warm-up
        for way in ports:
            receive = torch.zeros(count, dtype=torch.uint8)
            dist.barrier()
            begin, worked = time.perf_counter(), time.process_time()
            for _ in range(repeat):
                ways[way](send, receive)
            elapsed, worked = time.perf_counter() - begin, time.process_time() - worked
            if not torch.equal(receive, expected):
                raise RuntimeError(f"rank {rank} received other bytes over {way} than were sent")
            if turn:
                taken[way].append((elapsed / repeat, worked / repeat))
    dist.barrier()
    answer = json.dumps({"rank": rank, "taken": taken})
    if answers:
        pathlib.Path(answers, str(rank)).write_text(answer)
    else:
        print(answer, flush=True)
    dist.barrier()
    os._exit(0)  # both have answered: the sessions end with the process


def run(words: list[str], mpi: bool) -> list[dict]:
    """Starts the two processes and returns what they measured, by rank."""
    if not mpi:
        with common.Group("wire.py", words, 2, 1, {}) as group:
            answers = group.answers()
    else:  # mpiexec starts both, and mixes what they print
        with tempfile.TemporaryDirectory() as folder:
            command = [MPIEXEC, "-n", "2", sys.executable, os.path.abspath(__file__), *words, "--answers", folder]
            job = {**common.environment(0, 2, 1, "127.0.0.1", common.free_port()), tokens.VARIABLE: tokens.fresh()}
            subprocess.run(command, env=job, check=True)
            answers = [json.loads(file.read_text()) for file in pathlib.Path(folder).iterdir()]
    return [answer["taken"] for answer in sorted(answers, key=lambda answer: answer["rank"])]


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bytes", type=int, default=4 << 20, help="each way (default: 4 MiB)")
    p.add_argument("--rounds", type=int, default=7, help="turns of each way (default: 7)")
    p.add_argument("--exchanges", type=int, default=30, help="exchanges a turn (default: 30)")
    p.add_argument("--ways", help=f"of {', '.join([*WAYS, *UCX, MPI])} (default: all that are here)")
    p.add_argument("--ports", help=argparse.SUPPRESS)  # in the two processes
    p.add_argument("--answers", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.ports:
        worker(json.loads(args.ports), args.bytes, args.rounds, args.exchanges, args.answers)
        return
    asked = args.ways.split(",") if args.ways else all_ways()
    chosen = tuple(dict.fromkeys([*asked, *BASES]))  # what is compared with is always there
    ports = json.dumps({way: common.free_port() for way in chosen})
    answers = run([*sys.argv[1:], "--ports", ports], MPI in chosen)
    # An exchange is over when both have finished it; both work for it.
    seconds = {way: [max(a[0], b[0]) for a, b in zip(*(answer[way] for answer in answers))] for way in chosen}
    worked = {way: [a[1] + b[1] for a, b in zip(*(answer[way] for answer in answers))] for way in chosen}
    rows, results = [], {}
    for way in chosen:
        each, work = statistics.median(seconds[way]), statistics.median(worked[way])
        results[way] = {"seconds": each, "all_seconds": seconds[way], "processor_seconds": work}
        row = [way, f"{1e3 * each:.2f} ms", f"{args.bytes / each / 1e9:.2f} GB/s", f"{1e3 * work:.2f} ms"]
        for base in BASES:
            ratio = statistics.median(b / s for b, s in zip(seconds[base], seconds[way]))
            results[way][f"times_{base}"] = ratio
            row.append(f"{ratio:.2f}x")
        rows.append([*row, f"{statistics.median(w / b for w, b in zip(worked[way], worked['tcp'])):.2f}x"])
        results[way]["processor_to_tcp"] = work / statistics.median(worked["tcp"])
    machine = common.machine()
    print(common.machine_line(machine))
    print(f"\n{size(args.bytes)} both ways at once between two workers, {args.rounds} turns of {args.exchanges}")
    head = [
        "",
        "an exchange",
        "each way",
        "processor time",
        "speed to shm's",
        "to tcp's",
        "to gloo's",
        "processor time to tcp's",
    ]
    print(table(head, rows))
    common.save("wire", {"machine": machine, "bytes": args.bytes, "ways": results})


if __name__ == "__main__":
    main()
