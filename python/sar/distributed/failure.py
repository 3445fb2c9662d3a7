"""Reports an exception of this worker to the others."""

from __future__ import annotations

import traceback

from sar._engine import abi, session as _session
from sar._engine.log import logger
from sar.errors import PeerLostError, RemoteError, ScheduleError


def tell_peers(error: BaseException) -> None:
    """Tells the other workers of this one's exception, so that they stop waiting, unless they know the cause
    already."""
    sessions = _session.handles()
    if not sessions or isinstance(error, (RemoteError, PeerLostError, ScheduleError)):
        return
    try:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        for handle in sessions:
            abi.session_abort(handle, text)
    except Exception as failure:  # the exception itself must reach the user whatever happens here
        logger.warning("the other workers could not be told of the failure: %s", failure)
