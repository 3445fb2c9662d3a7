"""Reports an exception of this worker to the others."""

from __future__ import annotations

import traceback

from sar._engine import abi, session as _session
from sar._engine.log import logger
from sar.errors import PeerLostError, RemoteError, ScheduleError


def tell_peers(error: BaseException) -> None:
    """Ends the waiting of the other workers with this one's exception, unless they know of the cause already."""
    session = _session.peek()
    if session is None or isinstance(error, (RemoteError, PeerLostError, ScheduleError)):
        return
    try:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        abi.session_abort(session.handle, text)
    except Exception as failure:  # the exception itself must reach the user whatever happens here
        logger.warning("the other workers could not be told of the failure: %s", failure)
