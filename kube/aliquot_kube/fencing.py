"""A way to the API server on which only the leader writes, so that no writer can forget to ask."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

from aliquot_kube.transport import Question, Response, Transport


class FencedTransport:
    """Passes on what only reads; before anything else `check` may raise (see `Leadership.check`)."""

    def __init__(self, *, transport: Transport, check: Callable[[], object]) -> None:
        self._transport = transport
        self._check = check

    async def request(self, question: Question) -> Response:
        """Ask and get the whole answer."""
        if question.method != "GET":
            self._check()
        return await self._transport.request(question)

    def stream(self, question: Question) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Ask and get the answer line by line: a watch, which writes nothing."""
        return self._transport.stream(question)
