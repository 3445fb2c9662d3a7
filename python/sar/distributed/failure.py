"""Reports an exception of this worker to the others."""

from __future__ import annotations

import traceback

from sar._engine import abi, session as _session
from sar._engine.log import logger
from sar.errors import PeerLostError, RemoteError, ScheduleError


def tell_peers(error: BaseException) -> None:
    """Tells the other workers of this one's exception, so that they stop waiting, unless they know the cause
    already."""
    if isinstance(error, (RemoteError, PeerLostError, ScheduleError)):
        return
    try:
        for handle in _session.handles():
            text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            abi.session_abort(handle, text)
    except Exception as failure:  # the exception itself must reach the user whatever happens here
        logger.warning("the other workers could not be told of the failure: %s", failure)
