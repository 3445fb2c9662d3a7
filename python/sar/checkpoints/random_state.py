"""The random states of a worker: torch's, numpy's and Python's default generators.

What the engine draws (dropout of edges, samples) follows from seeds that torch's generator gives, so that it holds no
state of its own.
"""

from __future__ import annotations

import hashlib
import random
from typing import Any, Dict

import numpy as np
import torch


def capture() -> Dict[str, Any]:
    """The states, as :func:`sar.checkpoints.tree.encode` takes them."""
    kind, keys, *position = np.random.get_state(legacy=True)
    version, words, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "numpy": (kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), *position),
        "python": (version, torch.tensor(words, dtype=torch.int64), gauss),
    }


def check(state: Any) -> None:
    """:raises Exception: it is nothing that :func:`capture` gave"""
    _restore(state, torch.Generator(), np.random.RandomState(), random.Random())


def restore(state: Dict[str, Any]) -> None:
    """Sets what :func:`capture` gave."""
    _restore(state, torch.default_generator, np.random, random)


def _restore(state: Dict[str, Any], torchs: Any, numpys: Any, pythons: Any) -> None:
    kind, keys, *position = state["numpy"]
    version, words, gauss = state["python"]
    torchs.set_state(state["torch"])
    numpys.set_state((kind, keys.numpy().astype(np.uint32), *position))
    pythons.setstate((version, tuple(words.tolist()), gauss))


def derive(state: Dict[str, Any], rank: int) -> None:
    """Seeds the generators of a rank that was not there, by another rank's state and its own number."""
    found = hashlib.blake2b(state["torch"].numpy().tobytes() + b"%d" % rank, digest_size=8)
    seed = int.from_bytes(found.digest(), "little")
    torch.manual_seed(seed)
    np.random.seed(seed % (1 << 32))
    random.seed(seed)
