"""Collective agreement on small JSON values."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Callable, List, Optional, Sequence, Tuple, TypeVar

import torch
from torch import Tensor

from sar._engine import abi, session as _session
from sar.errors import RemoteError

T = TypeVar("T")
_LONGEST_ERROR = 4000
"""Characters of an error that other ranks are told."""


def agree(mine: Any, numbers: Sequence[int] = ()) -> Tuple[List[Any], List[int]]:
    """Exchanges a value between all ranks. Collective.

    :param mine: something JSON can hold
    :param numbers: as many on every rank
    :returns: the value of each rank, or a single entry if all are equal; and the maximum of each number

    Costs one all-reduce of a few numbers if all values are equal, and two exchanges more if they differ.
    """
    session = _session.current()
    text = json.dumps(mine, sort_keys=True).encode()
    if session.world == 1:
        return [json.loads(text)], list(numbers)
    short = int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")
    (alike,), largest = equal_on_all([short], numbers)
    if alike:
        return [json.loads(text)], largest
    sizes = [torch.empty(1, dtype=torch.int64) for _ in range(session.world)]
    _session.all_to_all(sizes, [torch.tensor([len(text)])] * session.world, abi.TRAIN)
    said = [torch.empty(int(n), dtype=torch.uint8) for n in sizes]
    own = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    _session.all_to_all(said, [own] * session.world, abi.TRAIN)
    return [json.loads(bytes(t.numpy())) for t in said], largest


def equal_on_all(
    numbers: Sequence[int], others: Sequence[int] = (), comm: int = abi.TRAIN
) -> Tuple[List[bool], List[int]]:
    """Which numbers are the same on all ranks, and the maximum of each of some others. Collective."""
    told = torch.tensor([*numbers, *(-n for n in numbers), *others], dtype=torch.int64)
    _session.all_reduce(told, "max", comm)
    most, least, largest = (part.tolist() for part in told.split([len(numbers), len(numbers), len(others)]))
    return [high == -low for high, low in zip(most, least)], largest


def largest_of_all(number: int) -> int:
    """The largest of the numbers that the ranks give. Collective."""
    return equal_on_all((), [number])[1][0]


def anywhere(*flags: Any) -> List[bool]:
    """Which of some conditions hold on any worker. Collective."""
    return [bool(n) for n in equal_on_all([], [int(flag) for flag in flags])[1]]


def said_by_all(mine: Any) -> List[Any]:
    """What every rank says, by rank. Collective. See :func:`agree`."""
    said, _ = agree(mine)
    return said if len(said) > 1 else said * _session.current().world


def all_or_none(name: str, act: Callable[[], T]) -> T:
    """Runs ``act`` on every rank, and raises on every rank where it failed on any. Collective; ``act`` must not be.

    :param name: what is being done, for the message on other ranks
    :returns: what ``act`` returned here
    :raises RemoteError: ``act`` failed on another rank, and not here
    """
    error, result = None, None
    try:
        result = act()
    except Exception as caught:
        error = caught
    raise_everywhere(name, error)
    return result  # type: ignore[return-value]


def raise_everywhere(name: str, error: Optional[Exception]) -> None:
    """Raises on every rank where any of them has an error: its own there, elsewhere one that carries it. Collective.

    :raises RemoteError: another rank has an error, and this one has none
    """
    said = said_by_all("" if error is None else f"{type(error).__name__}: {error}"[:_LONGEST_ERROR])
    if error is not None:
        raise error
    for rank, text in enumerate(said):
        if text:
            raise RemoteError(f"{name} failed on rank {rank}, so no rank goes on: {text}", rank)


def summed(own: Tensor) -> Tensor:
    """The sum of what all ranks give, in its place. Collective."""
    _session.all_reduce(own, "sum", abi.TRAIN)
    return own


def of_every_rank(own: Tensor) -> Tensor:
    """What each rank gives, ``[ranks, ...]``: adding zeros changes no bit of it. Collective."""
    session = _session.current()
    told = own.new_zeros(session.world, *own.shape)
    told[session.rank] = own
    return summed(told)


def on_every_rank(number: int) -> List[int]:
    """The number that each rank gives. Collective."""
    session = _session.peek()
    if session is None or session.world == 1:
        return [number]
    return of_every_rank(torch.tensor(number)).tolist()


def agreed_seed(given: Optional[int] = None) -> int:
    """A seed that is the same on all ranks: rank 0 draws it from torch's default generator.

    All ranks draw a number, so generators that were equal stay equal, but only rank 0's number is used. So
    ``torch.manual_seed`` on rank 0 determines the masks. Collective.
    """
    if given is not None:
        return int(given)
    drawn = torch.randint(0, 2**63 - 1, (1,), dtype=torch.int64)
    session = _session.peek()
    if session is not None and session.world > 1:
        _session.broadcast(drawn, 0, abi.TRAIN)
    return int(drawn)
