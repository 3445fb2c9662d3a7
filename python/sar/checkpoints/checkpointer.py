"""Checkpoints at intervals, written while training goes on."""

from __future__ import annotations

import atexit
import os
import time
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Mapping, Optional, Type, Union

from sar._engine import session as _session
from sar.distributed.agreement import agree

from .load import Checkpoint, load_checkpoint
from .save import Write
from .state import Models, Optimizers

if TYPE_CHECKING:
    from sar.graph.manager import GraphShardManager

_EXIT_SECONDS = 10.0
"""How long a process that ends waits for a checkpoint that is being written."""


class Checkpointer:
    """Saves a checkpoint every so many steps or minutes, in the background, and loads the last one.

    .. code-block:: python

        with sar.Checkpointer("run", model, optimizer, graph=graph, every=10) as checkpoints:
            for epoch in range(checkpoints.load(), 200):
                ...
                checkpoints.step(epoch + 1)

    A checkpoint is copied in memory, and a thread writes the copy: until it is written, it takes the memory of what
    this rank writes once more. What goes wrong is raised on all ranks by the next call of :meth:`step`,
    :meth:`save`, or :meth:`close`.

    :param directory: where the checkpoints lie; it must be the same for all workers
    :param model: a module, or several by name
    :param optimizer: an optimizer, or several by name
    :param graph: of :func:`sar.construct_full_graph`; needed for tensors with a row for each own node
    :param every: save at steps that are multiples of this
    :param minutes: save when so many minutes, by rank 0's clock, have passed since the last time; with neither, save at
        every step
    :param keep: how many checkpoints stay in the directory
    :param per_node: node types of tensors with a row for each own node, by name, where their shape leaves it open
    :param background: False writes before :meth:`step` returns
    :raises ValueError: every or minutes is not positive
    """

    def __init__(
        self,
        directory: Union[str, os.PathLike[str]],
        model: Models,
        optimizer: Optimizers = None,
        *,
        graph: Optional[GraphShardManager] = None,
        every: Optional[int] = None,
        minutes: Optional[float] = None,
        keep: int = 2,
        per_node: Optional[Mapping[str, str]] = None,
        background: bool = True,
    ) -> None:
        for name, value in (("every", every), ("minutes", minutes)):
            if value is not None and value <= 0:
                raise ValueError(f"{name}={value}: give a number above 0")
        self.directory = os.fspath(directory)
        self._model, self._optimizer, self._graph, self._per_node = model, optimizer, graph, per_node
        self._every = 1 if every is None and minutes is None else every
        self._minutes, self._keep, self._background = minutes, keep, background
        self._saved_at = time.monotonic()
        self._pending: Optional[Write] = None
        atexit.register(_wait_at_exit, weakref.ref(self))

    def load(self, step: Optional[int] = None) -> int:
        """Loads the last checkpoint, or that of a step. Collective.

        :returns: its step, 0 where there is none
        :raises Exception: as :func:`sar.load_checkpoint` does
        """
        found = self.load_checkpoint(step)
        return 0 if found is None else found.step

    def load_checkpoint(self, step: Optional[int] = None) -> Optional[Checkpoint]:
        """:func:`sar.load_checkpoint` with this object's arguments. Collective."""
        self.close()
        self._saved_at = time.monotonic()
        return load_checkpoint(self.directory, self._model, self._optimizer, graph=self._graph, step=step)

    def step(self, step: int, extra: object = None) -> bool:
        """Tells that a step is done, and saves a checkpoint where one is due. Collective; call it at every step.

        :param step: its number, which :meth:`load` returns
        :param extra: see :func:`sar.save_checkpoint`
        :returns: whether a checkpoint is saved
        :raises Exception: what went wrong with the one before, or as :func:`sar.save_checkpoint` does
        """
        failed = self._pending is not None and self._pending.failed()
        late = self._minutes is not None and time.monotonic() - self._saved_at >= 60 * self._minutes
        first = _session.current().rank == 0  # whose clock it goes by
        _, (any_failed, any_late) = agree(None, [int(failed), int(late and first)])
        if any_failed:
            self.close()
        if not any_late and not (self._every is not None and step % self._every == 0):
            return False
        self.save(step, extra)
        return True

    def save(self, step: int, extra: object = None) -> None:
        """Saves a checkpoint now. Collective. Waits for the one before.

        :raises Exception: what went wrong with the one before, or as :func:`sar.save_checkpoint` does
        """
        self.close()
        self._saved_at = time.monotonic()
        arguments = (self.directory, self._model, self._optimizer, step, extra, self._graph, self._per_node, self._keep)
        write = Write(*arguments, copy=self._background)
        self._pending = write
        write.start()
        if not self._background:
            self.close()

    def close(self) -> None:
        """Waits until the last checkpoint is complete. Collective.

        :raises Exception: what went wrong with it
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.finish()

    def _wait(self) -> None:
        if self._pending is not None:
            self._pending.wait(_EXIT_SECONDS)

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        """Closes it. After an error, which the other workers may not have, a checkpoint that is being written gets some
        seconds."""
        if kind is None:
            self.close()
        else:
            self._wait()


def _wait_at_exit(checkpointer: weakref.ref[Checkpointer]) -> None:
    found = checkpointer()
    if found is not None:
        found._wait()
