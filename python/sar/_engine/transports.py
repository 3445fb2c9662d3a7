"""Transports made of Python objects: the table of C functions of ``sar_transport``, whose calls become methods."""

from __future__ import annotations

import ctypes as ct
import itertools
from typing import Any, Callable, Dict

from . import library
from .signatures import TYPES

OK, ERR_INTERNAL, ERR_PEER_LOST, ERR_CLOSED = 0, 11, 4, 9
TEXT_BYTES = 512

Done = Callable[[int, int, str], None]
"""Completes a request: its number, a status and, unless that is OK, a text. The engine takes it from any thread."""

_tables: Dict[str, Any] = {}
_objects: Dict[int, Any] = {}
_numbers = itertools.count(1)


def registered(name: str) -> bool:
    return name in _tables


def register(name: str, open_worker: Callable[[int, int, Done], Any]) -> None:
    """Makes a transport known to the sessions of this process that are opened later, once for each name.

    :param open_worker: called with rank, number of ranks, and what completes requests. What it returns has ``close()``
        and ``connect(peer, send_tag, receive_tag)``, which returns a link to one peer, both ways: ``send(address, size,
        request)``, ``receive(...)`` and ``disconnect()`` return at once, and ``done`` is called for each request
    """

    def opened(_: Any, about: Any, out: Any, __: Any, size: Any, text: int) -> int:
        rank, world = about.contents.rank, about.contents.world
        address = ct.cast(about.contents.done, ct.c_void_p).value or 0
        complete = TYPES["sar_transport_done"](address)  # which the struct takes with it

        def done(request: int, status: int, words: str) -> None:
            complete(request, status, words.encode()[: TEXT_BYTES - 1])

        size[0] = 0  # a rank is all that the library needs
        return _made(out, text, lambda: open_worker(rank, world, done))

    def connected(worker: int, peer: Any, out: Any, text: int) -> int:
        to = peer.contents
        return _made(out, text, lambda: _objects[worker].connect(to.rank, to.send_tag, to.receive_tag))

    methods: Dict[str, Callable[..., Any]] = {
        "open": opened,
        "close": lambda worker: _objects.pop(worker).close(),
        "connect": connected,
        "send": lambda link, address, size, _, request: _objects[link].send(address, size, request),
        "receive": lambda link, address, size, _, request: _objects[link].receive(address, size, request),
        "disconnect": lambda link: _objects.pop(link).disconnect(),
    }
    kind: Any = TYPES["sar_transport"]
    table = kind(name=name, **{field: of(methods[field]) for field, of in kind._fields_ if field in methods})
    library.call("sar_transport_register", ct.byref(table))
    _tables[name] = table  # the engine calls its functions as long as the process lives


def _made(out: Any, text: int, make: Callable[[], Any]) -> int:
    """Gives the engine a number for an object, or says why there is none."""
    try:
        number = next(_numbers)
        _objects[number] = make()
        out[0] = number
        return OK
    except Exception as error:
        words = f"{type(error).__name__}: {error}".encode()[: TEXT_BYTES - 1] + b"\0"
        ct.memmove(text, words, len(words))
        return ERR_INTERNAL
