"""Keeps the log of a run, one file a worker, for ``sar report``."""

from __future__ import annotations

import os
from types import TracebackType
from typing import ContextManager, Optional, Type, Union

from sar._engine import session as _session

from . import metrics, records
from .log_files import name_of
from .metrics import Value


class RunLog:
    """Writes what a run does to ``FOLDER/rank00000.jsonl`` and so on: a line of JSON at the start, and one an epoch.

    ::

        with sar.RunLog("run", lr=0.01) as log:
            for epoch in range(1, 101):
                with log.phase("forward"):
                    ...
                log.epoch(epoch, loss=loss, accuracy={"train": a, "val": b})

    Each worker writes its own file and sends nothing to others, so some of them may go without. ``sar report run``
    makes a page of the folder. A file of an earlier run is replaced. :func:`sar.metrics` and ``SAR_METRICS`` get the
    same lines.

    :param folder: made where it is missing
    :param settings: of the script, such as the learning rate; anything, shown as text
    :raises OSError: the file cannot be written
    :raises RuntimeError: before :func:`sar.initialize_comms`
    """

    def __init__(self, folder: Union[str, os.PathLike[str]], **settings: object) -> None:
        session = _session.current()
        os.makedirs(folder, exist_ok=True)
        self._file = records.RecordFile(os.path.join(folder, name_of(session.rank)))
        self._epochs = records.Epochs(session)
        self._file.write(records.start(session, settings))

    def phase(self, name: str) -> ContextManager[None]:
        """Counts the seconds of the ``with`` block as those of a phase of the current epoch. Phases do not overlap:
        time in an inner one would count twice."""
        return self._epochs.phase(name)

    def epoch(self, epoch: int, of: Optional[int] = None, **values: Value) -> None:
        """Ends an epoch: writes its values, the seconds of its phases, and what the worker holds and has sent.

        :param of: see :func:`sar.log_epoch`
        :param values: numbers, or numbers by name, as in ``accuracy={"train": 0.9}``; each is a picture of the report,
            of rank 0
        :raises TypeError: something else
        """
        record = self._epochs.end(epoch, values)
        self._file.write(record)
        metrics.tell(record, of)

    def close(self) -> None:
        """Closes the file; harmless when called twice."""
        self._file.close()

    def __enter__(self) -> RunLog:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if error is not None and not self._file.closed:
            self._file.write({"event": "error", "text": f"{type(error).__name__}: {error}"})
        self.close()
