"""The server behind the Kubernetes client's own door, without a wire: for one process, and for simulations.

A `DirectTransport` stands where an `HttpTransport` would. Whatever can go wrong on a wire goes through `Faults`, which
a simulation draws from its seed: a question is late or lost before the server sees it, an answer is lost after the
server has acted, a watch's lines are late, come twice, or end in the middle.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

from aliquot_kube.errors import UnreachableError, error_from_response
from aliquot_kube.questions import Response

from .consulting import Nobody, WebhookCaller, answered_by
from .exchange import Answer, Request, Stream
from .streaming import Timing, Watchers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from aliquot_core.clock import Clock
    from aliquot_kube.questions import Question

    from .exchange import Result
    from .frontend import Frontend

_log = logging.getLogger(__name__)
_GOOD = range(200, 300)


class Faults(Protocol):
    """What may happen on the way; each may take its time, or raise `UnreachableError`."""

    async def on_question(self, question: Question) -> None:
        """Before the server sees it: what is raised here has done nothing."""

    async def on_answer(self, question: Question) -> None:
        """After the server has acted: what is raised here leaves the client not knowing."""

    async def on_line(self, question: Question, line: bytes) -> Sequence[bytes]:
        """One line of a watch: give what arrives in its place."""
        ...


class NoFaults:
    """A wire on which nothing happens."""

    async def on_question(self, question: Question) -> None:
        """Pass it on."""

    async def on_answer(self, question: Question) -> None:
        """Pass it on."""

    async def on_line(self, question: Question, line: bytes) -> Sequence[bytes]:  # noqa: ARG002 - a fault's signature
        """Pass it on, once."""
        return (line,)


class DirectTransport:
    """A client's way to a `Frontend` in the same process; fits `aliquot_kube.transport.Transport`."""

    def __init__(
        self,
        *,
        frontend: Frontend,
        clock: Clock,
        faults: Faults | None = None,
        user: str = "system:admin",
        timing: Timing | None = None,
        caller: WebhookCaller | None = None,
    ) -> None:
        self._frontend = frontend
        self._caller = caller or Nobody()
        self._clock = clock
        self._faults = faults or NoFaults()
        self._user = user
        self._watchers = Watchers(store=frontend.store, clock=clock, timing=timing or Timing())

    async def request(self, question: Question) -> Response:
        """Ask and get the whole answer; whatever is no 2xx is raised."""
        answer = await self._ask(question)
        if not isinstance(answer, Answer):
            raise UnreachableError("a stream has no whole answer", where=question.where)
        return Response(status=answer.code, headers={"content-type": answer.content_type}, body=answer.body)

    @asynccontextmanager
    async def stream(self, question: Question) -> AsyncIterator[AsyncIterator[bytes]]:
        """Ask and get the answer line by line; entering raises what is no 2xx, leaving ends it at once."""
        answer = await self._ask(question)
        if not isinstance(answer, Stream):
            raise UnreachableError("what was asked for is no stream", where=question.where)
        # One place: the session waits until its reader has taken what it wrote, as it would on a full socket.
        belt: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=1)
        session = asyncio.create_task(self._carry(answer, belt))
        lines = self._lines(question, belt)
        try:
            yield lines
        finally:
            await lines.aclose()
            session.cancel()
            await asyncio.gather(session, return_exceptions=True)

    def cut_all(self) -> None:
        """End every watch, as a server does that goes away."""
        self._watchers.end_all()

    async def _ask(self, question: Question) -> Result:
        await self._faults.on_question(question)
        request = Request(
            method=question.method,
            path=tuple(unquote(part) for part in question.path.strip("/").split("/")),
            query=question.query,
            content_type=question.content_type,
            body=question.body or b"",
            user=self._user,
        )
        conversation = self._frontend.converse(request, now=self._clock.wall())
        answer = await answered_by(self._caller, conversation)
        await self._faults.on_answer(question)
        if not isinstance(answer, Answer) or answer.code in _GOOD:
            return answer
        raise error_from_response(code=answer.code, headers={}, body=answer.body, where=question.where)

    async def _carry(self, stream: Stream, belt: asyncio.Queue[bytes | None]) -> None:
        try:
            await self._watchers.serve(stream, write=belt.put, abort=lambda: None)
        except Exception:  # noqa: BLE001 - our own defect; the reader must learn that nothing more comes
            _log.exception("a watch failed by our own defect", extra={"table": stream.watch.table})
        await belt.put(None)

    async def _lines(self, question: Question, belt: asyncio.Queue[bytes | None]) -> AsyncGenerator[bytes]:
        while (chunk := await belt.get()) is not None:
            for line in chunk.splitlines():
                for arriving in await self._faults.on_line(question, line):
                    yield arriving
