"""Bandwidth of the transports: 4 MiB both ways at once over shared memory, TCP, TLS, and gloo.

Two processes hold all of them at the same time and take turns, so that a busy machine slows all of them alike. Checks
what arrived. Prints seconds per exchange, bytes per second each way, and the ratios to gloo and to TCP.

    python bench/wire.py [--bytes 4194304] [--rounds 7] [--exchanges 30]
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

import common
from sar._engine import abi
from sar.cli.output import table
from sar.units import size

WAYS = ("shm", "tcp", "tls", "gloo")
START_SECONDS, LIVENESS_SECONDS, OPERATION_SECONDS = 60.0, 20.0, 60.0


def exchanges(rank: int, ports: dict[str, int]) -> dict:
    """By way, a function (send, receive) that exchanges two tensors with the other rank."""
    other = 1 - rank
    ways = {}
    for way in ("shm", "tcp", "tls"):
        limits = (START_SECONDS, LIVENESS_SECONDS, OPERATION_SECONDS)
        transport = "tcp" if way == "tls" else way
        session = abi.session_open(
            rank, 2, "127.0.0.1", ports[way], None, transport, None, *limits, 0, tls=way == "tls"
        )

        def native(send, receive, session=session):  # on the communicator that carries rows
            abi.exchange_pair(session, abi.TRAIN, other, send, other, receive)

        ways[way] = native
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{ports['gloo']}",
        rank=rank,
        world_size=2,
        timeout=datetime.timedelta(seconds=START_SECONDS),
    )

    def gloo(send, receive):
        requests = [dist.isend(send, other), dist.irecv(receive, other)]
        for request in requests:
            request.wait()

    ways["gloo"] = gloo
    return ways


def worker(ports: dict[str, int], count: int, rounds: int, repeat: int) -> None:
    """One of the two processes. Answers with seconds per exchange, by way and round."""
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    ways = exchanges(rank, ports)
    send = torch.arange(count, dtype=torch.uint8) + rank
    expected = torch.arange(count, dtype=torch.uint8) + (1 - rank)
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(rounds + 1):  # the first is warm-up
        for way in WAYS:
            receive = torch.zeros(count, dtype=torch.uint8)
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(repeat):
                ways[way](send, receive)
            elapsed = (time.perf_counter() - begin) / repeat
            if not torch.equal(receive, expected):
                raise RuntimeError(f"rank {rank} received other bytes over {way} than were sent")
            if turn:
                seconds[way].append(elapsed)
    dist.barrier()
    print(json.dumps(seconds), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # both have answered: the sessions end with the process


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bytes", type=int, default=4 << 20, help="each way (default: 4 MiB)")
    p.add_argument("--rounds", type=int, default=7, help="turns of each way (default: 7)")
    p.add_argument("--exchanges", type=int, default=30, help="exchanges a turn (default: 30)")
    p.add_argument("--ports", help=argparse.SUPPRESS)  # in the two processes
    args = p.parse_args()
    if args.ports:
        worker(json.loads(args.ports), args.bytes, args.rounds, args.exchanges)
        return
    ports = json.dumps({way: common.free_port() for way in WAYS})
    with common.Group("wire.py", [*sys.argv[1:], "--ports", ports], 2, 1, {}) as group:
        answers = group.answers()
    # An exchange is over when both have finished it.
    seconds = {way: [max(pair) for pair in zip(*(a[way] for a in answers))] for way in WAYS}
    rows, results = [], {}
    for way in WAYS:
        ratios = [statistics.median(b / s for b, s in zip(seconds[base], seconds[way])) for base in ("gloo", "tcp")]
        each = statistics.median(seconds[way])
        results[way] = {
            "seconds": each,
            "all_seconds": seconds[way],
            "times_gloo": ratios[0],
            "times_tcp": ratios[1],
        }
        speed = f"{args.bytes / each / 1e9:.2f} GB/s"
        rows.append([way, f"{1e3 * each:.2f} ms", speed, f"{ratios[0]:.1f}x", f"{ratios[1]:.2f}x"])
    machine = common.machine()
    print(common.machine_line(machine))
    print(f"\n{size(args.bytes)} both ways at once between two workers, {args.rounds} turns of {args.exchanges}")
    print(table(["", "an exchange", "each way", "speed to gloo's", "to tcp's"], rows))
    common.save("wire", {"machine": machine, "bytes": args.bytes, "ways": results})


if __name__ == "__main__":
    main()
