"""Sockets that another thread can cut, at once and in any phase after the connection is made.

A blocking read ends only by bytes, by its time-out or by its socket being shut down. So every exchange learns which
socket carries it, and whoever no longer wants the answer shuts that down.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from contextvars import ContextVar
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection


class Cutter:
    """The means to end one exchange from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._cut = False

    def cut(self) -> None:
        """End the exchange: a read under way returns at once, and a connection yet to be made is not used."""
        with self._lock:
            self._cut = True
            if self._socket is not None:
                _shut(self._socket)

    def carried_by(self, sock: socket.socket | None) -> None:
        """Learn which socket carries the exchange."""
        with self._lock:
            if self._cut:
                raise ConnectionAbortedError("cut before it was sent")
            self._socket = sock

    def let_go(self) -> None:
        """Forget the socket: the exchange is over and the connection may serve another."""
        with self._lock:
            self._socket = None


# Which exchange the current thread is at: connections are made deep inside urllib3, which hands nothing through.
current_cutter: ContextVar[Cutter] = ContextVar("current_cutter")


def make_cuttable(pools: urllib3.PoolManager) -> urllib3.PoolManager:
    """Let the connections of these pools tell the current exchange of their socket."""
    pools.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}
    return pools


def _shut(sock: socket.socket) -> None:
    # The plain shutdown, also below TLS: the TLS one would take the session away from under the reading thread.
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


class _HttpConnection(HTTPConnection):
    def request(self, *args: Any, **kwargs: Any) -> None:
        if self.sock is None:
            self.connect()
        current_cutter.get().carried_by(self.sock)
        super().request(*args, **kwargs)


class _HttpsConnection(HTTPSConnection):
    def request(self, *args: Any, **kwargs: Any) -> None:
        if self.sock is None:
            self.connect()
        current_cutter.get().carried_by(self.sock)
        super().request(*args, **kwargs)


class _HttpPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _HttpConnection


class _HttpsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _HttpsConnection
