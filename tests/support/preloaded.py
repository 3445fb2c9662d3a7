"""What processes of the tests begin with that are forks of one which imports this: torch, SAR, torchmetrics, which
takes as long as torch, and the compiler, which an optimizer imports."""

import contextlib
import gc
import os

gc.disable()  # what is imported stays
os.environ.setdefault("OMP_NUM_THREADS", "1")  # OpenMP starts no thread, which a fork would lack

import torch._dynamo  # noqa: E402, F401

from sar import *  # noqa: E402, F403  # sar alone would be imported without torch

with contextlib.suppress(ImportError):
    import torchmetrics  # noqa: F401

gc.enable()
gc.freeze()  # or forks would copy all pages of what was imported when they collect garbage
