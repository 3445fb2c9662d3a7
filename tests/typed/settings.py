"""Settings, environment, and what is said in logs."""

from __future__ import annotations

import logging

import sar
from sar import Config

Config.exchange = "push"
Config.window_bytes = 8 << 20
sar.Config.fuse = not sar.Config.patch_dgl
sar.set_num_threads(4)
sar.set_allocator("default")
sar.logging_setup(logging.INFO)
sar.initialize_comms()
sar.logger.info("rank %d of %d on %s", sar.rank(), sar.world_size(), sar.comm_device())
sar.patch_dgl()
print([one.name for one in sar.replaced()])
sar.unpatch_dgl()
for error in (sar.BudgetError, sar.DeadlineError, sar.FormatError, sar.RemoteError, sar.RendezvousError):
    print(error.__name__, issubclass(error, RuntimeError))
print(Config.block_bytes >> 20, "MiB", Config.max_collective_size)
