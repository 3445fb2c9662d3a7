"""Cutting in two levels: first hosts, then the parts of each host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional

import numpy as np

from .options import Options

Cut = Callable[[int, float, Optional[np.ndarray], int], np.ndarray]
"""``cut(parts, imbalance, hosts, host)``: a part for each node of ``host``, in ascending order of nodes; for each node
of the graph where ``hosts`` is None. int32, without empty parts where there are enough nodes."""


def by_hosts(cut: Cut, options: Options) -> np.ndarray:
    """The part of each node, int32 ``[nodes]``."""
    imbalance, of_a_host = options.imbalance_of_a_level, options.parts_of_a_host
    if options.hosts == 1:
        return cut(options.parts, imbalance, None, 0)
    hosts = cut(options.hosts, imbalance, None, 0)
    if of_a_host == 1:
        return hosts
    parts = np.empty_like(hosts)
    for host in range(options.hosts):
        parts[hosts == host] = host * of_a_host + cut(of_a_host, imbalance, hosts, host)
    return parts


def without_empty_parts(assignment: np.ndarray, parts: int) -> np.ndarray:
    """Gives each part that is empty a node of the largest, in place. Partitioners may leave parts empty where parts are
    almost as many as nodes."""
    counts = np.zeros(parts, np.int64)
    for at in range(0, len(assignment), 1 << 22):
        counts += np.bincount(assignment[at : at + (1 << 22)], minlength=parts)
    for empty in np.flatnonzero(counts == 0):
        largest = int(counts.argmax())
        if counts[largest] < 2:
            break
        assignment[np.flatnonzero(assignment == largest)[-1]] = empty
        counts[largest] -= 1
        counts[empty] += 1
    return assignment
