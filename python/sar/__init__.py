"""SAR: full-batch training of graph neural networks on graphs split over several workers.

The calls that a DGL script needs::

    sar.initialize_comms()       # finds its launcher
    graph = sar.load("parts")    # in place of the DGL graph; pyg=True: in place of PyG's data
    sar.sync_params(model)       # once
    sar.gather_grads(model)      # after each loss.backward()

Importing the package starts nothing: torch is imported, and the engine loaded, at their first use.
"""

# ruff: noqa: F401, F403 (names are for users)

from __future__ import annotations

from typing import TYPE_CHECKING

# What needs no torch is imported at once. Type checkers take `as` for "public".
from . import config as config, errors as errors, function as function
from ._lazy import make_lazy
from .config import Config as Config
from .data.ingest import ingest as ingest
from .distributed import backend

if TYPE_CHECKING:
    from . import transforms as transforms
    from ._api import *

__version__ = "0.1.0"

make_lazy(__name__)
backend.register()
