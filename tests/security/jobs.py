"""Scripts of jobs that share a port."""

from __future__ import annotations

WITHOUT = {"SAR_JOB_TOKEN": "", "SLURM_JOB_ID": ""}
"""The environment of a job that no token is given to."""

SUM = """
    torch.set_num_threads(1)
    value = torch.tensor([float(os.environ["SAR_TEST_VALUE"])])
    try:
        join(rank, world)
        sar.comm.all_reduce(value, "sum")
        print("SUM", value.item(), flush=True)
    except sar.RendezvousError as error:
        print("REFUSED", error, flush=True)
        sys.exit(3)
"""
"""What each rank runs: the sum of all ranks' numbers, or why it was refused."""
