"""Lists of hosts as Slurm writes them: ``node[01-03,7],gpu2``."""

from __future__ import annotations

import itertools
import re
from typing import List

_MOST_HOSTS = 1 << 16
_LONGEST_LIST = 1 << 20
_ITEM = re.compile(r"((?:[^\[\],\s]|\[[^\[\]\s]*\])+)(,|$)")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def expand(text: str) -> List[str]:
    """The hosts of a list, in its order. Numbers keep the leading zeros of the first of their range.

    :raises ValueError: the list is malformed, or names more than 65,536 hosts
    """
    text = text.strip()
    if len(text) > _LONGEST_LIST:
        raise ValueError(f"a list of hosts of {len(text)} characters is too long")
    found: List[str] = []
    position = 0
    while position < len(text):
        item = _ITEM.match(text, position)
        if item is None or (item.group(2) == "," and item.end() == len(text)):
            raise ValueError(f"{_shown(text)} is no list of hosts such as node[01-03,7],gpu2")
        found += _names(item.group(1), _MOST_HOSTS - len(found))
        position = item.end()
    return found


def _names(item: str, most: int) -> List[str]:
    """The hosts of ``rack[1-2]node[01-03]``."""
    pieces = []
    count = 1
    for literal, bracket in re.findall(r"([^\[]+)|\[([^\]]*)\]", item):
        pieces.append([literal] if literal else _numbers(bracket, most, item))
        count *= len(pieces[-1])
        if count > most:
            raise ValueError(f"{_shown(item)} names more than {_MOST_HOSTS:,} hosts")
    return ["".join(parts) for parts in itertools.product(*pieces)]


def _numbers(bracket: str, most: int, item: str) -> List[str]:
    """The numbers of ``01-03,7``."""
    found: List[str] = []
    for part in bracket.split(","):
        matched = _RANGE.fullmatch(part)
        if matched is None:
            raise ValueError(f"{_shown(item)}: {_shown(part)} is no number, and no range such as 01-03")
        first, last = matched.group(1), matched.group(2) or matched.group(1)
        if int(last) < int(first):
            raise ValueError(f"{_shown(item)}: the range {part} ends before it begins")
        if len(found) + int(last) - int(first) >= most:
            raise ValueError(f"{_shown(item)} names more than {_MOST_HOSTS:,} hosts")
        found += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return found


def repeated(text: str) -> List[int]:
    """The numbers of ``2(x3),1``, as Slurm writes tasks per host: 2, 2, 2, 1.

    :raises ValueError: the list is malformed, or longer than 65,536 numbers
    """
    found: List[int] = []
    for part in text.strip().split(","):
        matched = re.fullmatch(r"(\d{1,9})(?:\(x(\d{1,9})\))?", part)
        times = int(matched.group(2) or 1) if matched else 0
        if matched is None or len(found) + times > _MOST_HOSTS:
            raise ValueError(f"{_shown(text)} is no list of numbers such as 2(x3),1")
        found += [int(matched.group(1))] * times
    return found


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
