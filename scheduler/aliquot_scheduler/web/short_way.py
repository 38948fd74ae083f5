"""The short way of a call: from the socket to whoever replies, and back in one write.

Theory of operation. A request through aiohttp's parser, task, router, middleware and response takes 0.25 ms of CPU,
and each pod makes three. Here a request whose head is a usual one (`heads`), whose address is offered and whose sender
may ask, is replied to as soon as its body is there, in the very call that brought its last bytes. Everything else
(whoever is a stranger, bodies in pieces or too large, other addresses, whatever is no HTTP) goes the long way: its
connection is handed over to aiohttp with the bytes as they came, and stays there.

What must always hold: one call of a connection is under way at a time, and replies come in the order of the calls; a
connection is handed over between two calls only; what is under way ends, even if its caller has hung up meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

from aliquot_scheduler.web.calls import Call, Offered, Reply
from aliquot_scheduler.web.heads import Head, UnusualHeadError, read_head
from aliquot_scheduler.web.idle import IdleConnections


class ShortWay:
    """All connections of one listening socket that have not gone the long way yet."""

    def __init__(self, *, offered: Offered, long_way: Callable[[], asyncio.Protocol], idle: IdleConnections) -> None:
        """`long_way` makes whoever takes a connection over."""
        self._offered = offered
        self._long_way = long_way
        self._idle = idle
        self._open: set[_Connection] = set()
        self._under_way: set[asyncio.Task[None]] = set()

    def __call__(self) -> asyncio.Protocol:
        """One more connection."""
        return _Connection(
            offered=self._offered,
            long_way=self._long_way,
            idle=self._idle,
            known=self._open,
            under_way=self._under_way,
        )

    def transports(self) -> set[asyncio.Transport]:
        """Of all that are connected here."""
        return {one.transport for one in self._open}

    async def leave(self, *, patience: float) -> None:
        """Hang up; what is under way is let to end."""
        for one in list(self._open):
            one.leave()
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=patience)


class _Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(
        self,
        *,
        offered: Offered,
        long_way: Callable[[], asyncio.Protocol],
        idle: IdleConnections,
        known: set[_Connection],
        under_way: set[asyncio.Task[None]],
    ) -> None:
        self._offered, self._long_way, self._idle = offered, long_way, idle
        self._known, self._under_way = known, under_way
        self._data = bytearray()
        self._head: Head | None = None
        self._busy = self._paused = self._leaving = False

    # --- what the loop tells -----------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody is there."""
        self.transport = cast("asyncio.Transport", transport)
        self._known.add(self)

    def connection_lost(self, _exc: Exception | None) -> None:
        """Nobody is there any more."""
        self._known.discard(self)
        self._data.clear()

    def data_received(self, data: bytes) -> None:
        """Some bytes came."""
        self._data += data
        if self._busy or self._paused:
            # Whoever asks on without waiting for replies has to.
            self.transport.pause_reading()
        else:
            self._go_on()

    def pause_writing(self) -> None:
        """Replies are not fetched: nothing more is read until they are."""
        self._paused = True

    def resume_writing(self) -> None:
        """They are fetched."""
        self._paused = False
        self._read_on()

    def leave(self) -> None:
        """Hang up as soon as nothing is under way."""
        self._leaving = True
        if not self._busy:
            self.transport.close()

    # --- how it is done ----------------------------------------------------------------------------------------------
    def _go_on(self) -> None:
        """Reply to all calls that have come whole."""
        while self._data and not (self._busy or self._paused or self.transport.is_closing()):
            try:
                call = self._next_call()
            except UnusualHeadError:
                self._hand_over()
                return
            if call is None:
                self._idle.begun(self.transport)
                return
            self._reply(call)

    def _next_call(self) -> Call | None:
        """The next call, if it is there whole."""
        head = self._head = self._head or self._read_head()
        if head is None or len(self._data) < head.ends + head.size:
            return None
        whole = head.ends + head.size
        body = bytes(memoryview(self._data)[head.ends : whole])
        del self._data[:whole]
        self._head = None
        return Call(path=head.path, body=body, hop=head.hop)

    def _read_head(self) -> Head | None:
        head = read_head(self._data)
        if head is not None and (
            head.path not in self._offered.replies
            or head.size > self._offered.largest
            or self._offered.stranger(self.transport)
        ):
            raise UnusualHeadError
        return head

    def _reply(self, call: Call) -> None:
        replied = self._offered.replies[call.path](call)
        if isinstance(replied, Reply):
            self._write(replied)
            self._idle.answered(self.transport)
            return
        self._busy = True
        self._idle.asking(self.transport)
        task = asyncio.get_running_loop().create_task(self._reply_later(replied))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _reply_later(self, replied: Coroutine[Any, Any, Reply]) -> None:
        try:
            self._write(await replied)
        except BaseException:
            # Whoever asked must not wait for what never comes.
            self.transport.abort()
            raise
        finally:
            self._busy = False
            self._idle.answered(self.transport)
        if self._leaving:
            self.transport.close()
        else:
            self._read_on()

    def _write(self, reply: Reply) -> None:
        """Head and body at once: each write is a record of TLS, and a packet."""
        if self.transport.is_closing():
            return
        status, size, is_last = reply.status, len(reply.body), self._idle.last_answers
        head = f"HTTP/1.1 {status} {status.phrase}\r\nContent-Type: {reply.content_type}\r\n"
        head += "Connection: close\r\n" if is_last else ""
        self.transport.write(f"{head}Content-Length: {size}\r\n\r\n".encode() + reply.body)
        if is_last:
            self.transport.close()

    def _read_on(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()
            self._go_on()

    def _hand_over(self) -> None:
        """The rest of this connection is somebody else's."""
        self._known.discard(self)
        other = self._long_way()
        self.transport.set_protocol(other)
        other.connection_made(self.transport)
        other.data_received(bytes(self._data))
