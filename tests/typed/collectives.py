"""Collectives of a script's own, and what a worker is doing."""

from __future__ import annotations

import torch
import torch.distributed as dist

import sar

sar.initialize_comms()
count = torch.tensor([sar.rank()])
sar.comm.all_reduce(count)
sar.comm.all_reduce(count, op=dist.ReduceOp.MAX)
sar.comm.broadcast(count, root=0)
rows = sar.comm.exchange_tensors([torch.arange(3)] * sar.world_size())
print(count.item(), rows[0].sum(), sar.comm.is_initialized(), sar.comm.backend())
found = sar.stats()
print(found["window"]["peak"], found["links"][0]["sent_bytes"], found["layers"].get("SAGEConv", {}))
print({kind: memory["peak"] >> 20 for kind, memory in sar.memory_stats().items()})
for epoch in range(3):
    sar.log_epoch(epoch, of=2, loss=0.5, accuracy={"train": 0.9, "test": 0.8})
now = sar.metrics()
print(now["epoch"], now["slowest_peer"], max(now["sent"].values(), default=0), now["window"][0])
sar.comm.barrier()
sar.comm.shutdown()
