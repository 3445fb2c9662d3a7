"""Transports made of Python objects: the table of C functions of ``sar_transport``, whose calls become methods."""

from __future__ import annotations

import ctypes as ct
import itertools
from typing import Any, Callable, Dict

from . import library
from .signatures import SizedStruct

OK, ERR_INTERNAL, ERR_PEER_LOST, ERR_CLOSED = 0, 11, 4, 9
TEXT_BYTES = 512

Done = Callable[[int, int, str], None]
"""Completes a request: its number, a status and, unless that is OK, a text. The engine takes it from any thread."""


_Done = ct.CFUNCTYPE(None, ct.c_uint64, ct.c_int32, ct.c_char_p)


class _About(ct.Structure):
    """``sar_transport_worker``."""

    _fields_ = [("size", ct.c_size_t), ("rank", ct.c_int32), ("world", ct.c_int32), ("done", _Done)]


class _Peer(ct.Structure):
    """``sar_transport_peer``."""

    _fields_ = [
        ("size", ct.c_size_t),
        ("rank", ct.c_int32),
        ("address", ct.c_void_p),
        ("address_bytes", ct.c_size_t),
        ("send_tag", ct.c_uint32),
        ("receive_tag", ct.c_uint32),
    ]


_void, _size, _out = ct.c_void_p, ct.c_size_t, ct.POINTER(ct.c_void_p)
_Open = ct.CFUNCTYPE(ct.c_int32, _void, ct.POINTER(_About), _out, _void, ct.POINTER(_size), _void)
_Connect = ct.CFUNCTYPE(ct.c_int32, _void, ct.POINTER(_Peer), _out, _void)
_Post = ct.CFUNCTYPE(None, _void, _void, _size, _void, ct.c_uint64)
_End = ct.CFUNCTYPE(None, _void)


class _Table(SizedStruct):
    """``sar_transport``."""

    _fields_ = [
        ("size", _size),
        ("name", ct.c_char_p),
        ("user", _void),
        ("flags", ct.c_uint32),
        ("byte_cost", ct.c_double),
        ("probe", _void),
        ("open", _Open),
        ("close", _End),
        ("register_memory", _void),
        ("unregister_memory", _void),
        ("connect", _Connect),
        ("send", _Post),
        ("receive", _Post),
        ("disconnect", _End),
    ]


_tables: Dict[str, _Table] = {}
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

    def opened(_: Any, about: Any, out: Any, __: Any, address_bytes: Any, text: int) -> int:
        rank, world = about.contents.rank, about.contents.world
        complete = _Done(ct.cast(about.contents.done, _void).value or 0)  # which the struct takes with it

        def done(request: int, status: int, words: str) -> None:
            complete(request, status, words.encode()[: TEXT_BYTES - 1])

        address_bytes[0] = 0  # a rank is all that the library needs
        return _made(out, text, lambda: open_worker(rank, world, done))

    def connected(worker: int, peer: Any, out: Any, text: int) -> int:
        to = peer.contents
        return _made(out, text, lambda: _objects[worker].connect(to.rank, to.send_tag, to.receive_tag))

    def send(link: int, address: int, size: int, _: Any, request: int) -> None:
        _objects[link].send(address, size, request)

    def receive(link: int, address: int, size: int, _: Any, request: int) -> None:
        _objects[link].receive(address, size, request)

    table = _Table(
        *(name, None, 0, 0.0, None, _Open(opened), _End(lambda worker: _objects.pop(worker).close())),
        *(None, None, _Connect(connected), _Post(send), _Post(receive)),
        _End(lambda link: _objects.pop(link).disconnect()),
    )
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
