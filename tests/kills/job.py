"""A worker of a job that trains, saves checkpoints, and goes on from the last one."""

from __future__ import annotations

import os
import sys
import time

import sar
from tests.distributed.cases_checkpoints import Job

EPOCHS, PAUSE = 60, 0.03
"""Epochs of a job, and seconds of rest in each, so that a job lasts."""


def main(json: str, folder: str) -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    port = int(os.environ["MASTER_PORT"])
    sar.initialize_comms(rank, world, os.environ["MASTER_ADDR"], "sar", master_port_number=port)
    job = Job(json, 0.3)
    losses = os.open(os.path.join(folder, "losses"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with sar.Checkpointer(os.path.join(folder, "run"), **job.saved, every=2) as checkpoints:
        for epoch in range(checkpoints.load(), EPOCHS):
            loss = job.epoch()
            if rank == 0:
                os.write(losses, f"{epoch + 1} {loss}\n".encode())
            time.sleep(PAUSE)
            checkpoints.step(epoch + 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
