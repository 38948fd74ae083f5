"""An HTTP server on loopback whose every answer is a script: it can be slow, silent, cut off, wrong.

A script is a function that gets an `Exchange` and sends what it likes. Nothing here waits for time to pass: scripts
wait for the test (`Exchange.wait_for_test`) or for the client to go away (`Exchange.wait_for_client_to_leave`).
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

_PATIENCE = 60.0


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass(kw_only=True)
class Exchange:
    """One request and the means to answer it."""

    request: Seen
    connection: socket.socket
    released: threading.Event
    keep_alive: bool = field(default=True)

    def send(self, data: bytes) -> None:
        """Send raw bytes."""
        self.connection.sendall(data)

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Send a whole answer."""
        self.head(status, content_length=str(len(body)), **headers)
        self.send(body)

    def answer_json(self, status: int, thing: Any, **headers: str) -> None:
        """Send a whole answer in JSON."""
        self.answer(status, json.dumps(thing).encode(), content_type="application/json", **headers)

    def fail(self, status: int, *, reason: str = "", message: str = "", **headers: str) -> None:
        """Send a `Status` as the API server words it."""
        thing = {"kind": "Status", "status": "Failure", "code": status, "reason": reason, "message": message}
        self.answer_json(status, thing, **headers)

    def head(self, status: int, **headers: str) -> None:
        """Send the status line and headers."""
        lines = [f"HTTP/1.1 {status} Scripted", *(f"{k.replace('_', '-')}: {v}" for k, v in headers.items()), "", ""]
        self.send("\r\n".join(lines).encode())

    def begin_stream(self) -> None:
        """Begin a chunked answer."""
        self.head(200, transfer_encoding="chunked", content_type="application/json")

    def chunk(self, data: bytes) -> None:
        """Send a chunk."""
        self.send(b"%x\r\n%b\r\n" % (len(data), data))

    def line(self, thing: Any) -> None:
        """Send a watch line as one chunk."""
        self.chunk((thing if isinstance(thing, bytes) else json.dumps(thing).encode()) + b"\n")

    def end_stream(self) -> None:
        """End a chunked answer in good order."""
        self.send(b"0\r\n\r\n")

    def hang_up(self) -> None:
        """Close the connection without ending the answer; what was sent still arrives."""
        self.keep_alive = False

    def cut(self) -> None:
        """Drop the connection with a reset, as a dying server or a firewall does."""
        self.keep_alive = False
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def wait_for_test(self) -> None:
        """Go on when the test says `release`."""
        assert self.released.wait(_PATIENCE)

    def wait_for_client_to_leave(self) -> None:
        """Go on when the client has closed its side."""
        self.keep_alive = False
        with contextlib.suppress(OSError):
            while self.connection.recv(1024):
                pass


Script = Callable[[Exchange], None]


class ScriptedServer:
    """Plays one script for each request, in order; the last goes on for ever."""

    def __init__(self, *scripts: Script, tls: ssl.SSLContext | None = None) -> None:
        self._scripts = list(scripts)
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._connections: list[socket.socket] = []
        self._released = threading.Event()
        self._left = 0
        self.requests: list[Seen] = []
        self.failures: list[BaseException] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._listener.getsockname()[1]}"

    def release(self) -> None:
        """Let the scripts go on that wait for the test."""
        self._released.set()

    def wait_for_requests(self, count: int) -> None:
        """Wait until so many requests have come."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.requests) >= count, _PATIENCE)

    def wait_for_ended_connections(self, count: int) -> None:
        """Wait until so many connections are over."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._left >= count, _PATIENCE)

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(_PATIENCE)
        assert not self.failures, self.failures

    def _start(self, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        try:
            if self._tls:
                connection = self._tls.wrap_socket(connection, server_side=True)
            reader = connection.makefile("rb")
            while (request := _read_request(reader)) is not None and self._play(request, connection):
                pass
            reader.close()
        except OSError:
            pass  # the client left in the middle, which many tests want it to
        except BaseException as error:  # noqa: BLE001 - a broken script must fail its test, not its thread
            self.failures.append(error)
        finally:
            connection.close()
            with self._changed:
                self._left += 1
                self._changed.notify_all()

    def _play(self, request: Seen, connection: socket.socket) -> bool:
        with self._changed:
            script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
            self.requests.append(request)
            self._changed.notify_all()
        exchange = Exchange(request=request, connection=connection, released=self._released)
        script(exchange)
        return exchange.keep_alive


def _read_request(reader: Any) -> Seen | None:
    first = reader.readline().split()
    if len(first) != 3:
        return None
    method, target, _ = (part.decode() for part in first)
    headers: dict[str, str] = {}
    for name, told in _read_headers(reader):
        headers[name] = f"{headers[name]}, {told}" if name in headers else told
    url = urlsplit(target)
    body = reader.read(int(headers.get("content-length", "0")))
    return Seen(method=method, path=url.path, query=dict(parse_qsl(url.query)), headers=headers, body=body)


def _read_headers(reader: Any) -> Iterator[tuple[str, str]]:
    while line := reader.readline().strip():
        name, _, value = line.decode().partition(":")
        yield name.lower(), value.strip()
