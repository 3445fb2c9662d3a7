"""Writes a worker's epochs as TensorBoard reads them."""

from __future__ import annotations

from typing import Any, Mapping

from sar.extras import need

from .samples import EPOCH, VALUE, samples


class TensorBoardWriter:
    """Writes each epoch's numbers to a folder: ``loss``, ``accuracy/test``, ``memory_bytes/tensors`` and so on.

    :raises MissingLibraryError: tensorboard is not installed
    :raises OSError: the folder cannot be written
    """

    def __init__(self, folder: str) -> None:
        need("tensorboard", "metrics", "SAR_METRICS=tensorboard")
        writer = need("torch.utils.tensorboard", "metrics", "SAR_METRICS=tensorboard")
        self._writer = writer.SummaryWriter(folder)

    def write(self, record: Mapping[str, Any]) -> None:
        for family, key, value in samples(record):
            if family is VALUE:
                self._writer.add_scalar(key, value, record["epoch"])
            elif family is not EPOCH:
                self._writer.add_scalar(f"{family.name}/{key}" if key else family.name, value, record["epoch"])
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
