"""Collective agreement on small JSON values."""

from __future__ import annotations

import hashlib
import json
from typing import Any, List, Sequence, Tuple

import torch

from sar._engine import abi, session as _session


def agree(mine: Any, numbers: Sequence[int] = ()) -> Tuple[List[Any], List[int]]:
    """What all ranks say. Collective.

    :param mine: something JSON can hold
    :param numbers: as many on every rank
    :returns: what each rank said, or one entry where all said the same; and the largest of each number

    One all-reduce of few numbers where all say the same, two movements more where they differ.
    """
    session = _session.current()
    text = json.dumps(mine, sort_keys=True).encode()
    if session.world == 1:
        return [json.loads(text)], list(numbers)
    short = int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")
    head = torch.tensor([short, -short, *numbers], dtype=torch.int64)
    _session.all_reduce(head, "max", abi.TRAIN)
    first, last, *largest = head.tolist()
    if first == -last:
        return [json.loads(text)], largest
    sizes = [torch.empty(1, dtype=torch.int64) for _ in range(session.world)]
    _session.all_to_all(sizes, [torch.tensor([len(text)])] * session.world, abi.TRAIN)
    said = [torch.empty(int(n), dtype=torch.uint8) for n in sizes]
    own = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    _session.all_to_all(said, [own] * session.world, abi.TRAIN)
    return [json.loads(bytes(t.numpy())) for t in said], largest


def agreed_seed() -> int:
    """A seed that is the same on all ranks: what rank 0 draws from torch's default generator.

    All ranks draw, so generators that were equal stay equal; the number of rank 0 counts. So ``torch.manual_seed`` on
    rank 0 fixes the masks. Collective.
    """
    drawn = torch.randint(0, 2**63 - 1, (1,), dtype=torch.int64)
    session = _session.peek()
    if session is not None and session.world > 1:
        _session.broadcast(drawn, 0, abi.TRAIN)
    return int(drawn)
