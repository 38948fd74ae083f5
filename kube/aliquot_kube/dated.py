"""A way to the API server that compares this machine's clock with the server's, by each answer that is dated.

What must always hold: nothing is told that the way of the question and the seconds to which servers date could explain.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from email.utils import parsedate_to_datetime

from aliquot_core.clock import Clock
from aliquot_kube.transport import Question, Response, Transport

# Answers are dated by whole seconds, that have begun.
_DATED_BY = 1.0


def dated(answer: Response) -> float | None:
    """What time it is by the server's clock; None where it does not say."""
    said = next((value for name, value in answer.headers.items() if name.lower() == "date"), "")
    try:
        return parsedate_to_datetime(said).timestamp()
    except ValueError:
        return None


class DatedTransport:
    """Passes all on; `ahead` is how far this machine's clock is ahead of the server's, in seconds, at the least."""

    def __init__(self, *, transport: Transport, clock: Clock) -> None:
        self._transport = transport
        self._clock = clock
        # Less than nothing where it is behind; None until an answer has told.
        self.ahead: float | None = None

    async def request(self, question: Question) -> Response:
        """Ask and get the whole answer."""
        asked = self._clock.wall()
        answer = await self._transport.request(question)
        if (there := dated(answer)) is not None:
            # It was that time there at some instant between asking and now.
            self.ahead = max(0.0, asked - there - _DATED_BY) or min(0.0, self._clock.wall() - there)
        return answer

    def stream(self, question: Question) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Ask and get the answer line by line."""
        return self._transport.stream(question)
