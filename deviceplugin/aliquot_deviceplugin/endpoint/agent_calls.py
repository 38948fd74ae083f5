"""The calls that await the agent's answer; they outlive the agent.

A call stays open until it is answered, its time is up, or the kubelet gives it up. Whichever agent is connected is
asked: a successor gets every open call again, with the time that is left.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import msgspec

from aliquot_agent.waiting import settled
from aliquot_core.clock import Clock
from aliquot_core.door import DoorError, Forget, FromEndpoint, Prefer, Preference, PreStart, Started

Answer = Started | Preference
Send = Callable[[FromEndpoint], None]


class _Open(msgspec.Struct, kw_only=True):
    """A call under way."""

    question: PreStart | Prefer
    deadline: float
    answer: asyncio.Future[Answer]


class AgentCalls:
    """Asks whichever agent is there."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._numbers = itertools.count(1)
        self._open: dict[int, _Open] = {}
        self._send: Send | None = None
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many calls are open."""
        return len(self._open)

    def agent_came(self, send: Send) -> None:
        """Ask this agent from now on, and all that is open at once."""
        self._send = send
        for call in list(self._open.values()):
            send(self._with_time_left(call))

    def agent_left(self) -> None:
        """Keep what is open for the successor."""
        self._send = None

    async def may_start(self, question: PreStart, *, patience: float) -> Started | None:
        """Ask whether a container may start; None when nobody answered in time."""
        answer = await self._ask(question, patience=patience)
        return answer if isinstance(answer, Started) else None

    async def preference(self, question: Prefer, *, patience: float) -> Preference | None:
        """Ask which ids to take; None when nobody answered in time, at once where no agent is there."""
        answer = await self._ask(question, patience=patience) if self._send else None
        return answer if isinstance(answer, Preference) else None

    def answered(self, answer: Answer) -> None:
        """Take an answer; one that comes too late is for nobody."""
        call = self._open.get(answer.call)
        if call is None or call.answer.done():
            return
        if isinstance(answer, Started) is not isinstance(call.question, PreStart):
            raise DoorError(f"call {answer.call} was answered with a {type(answer).__name__}", where="agent's door")
        call.answer.set_result(answer)

    def close(self) -> None:
        """Let all who wait go without an answer."""
        self._closed = True
        for call in self._open.values():
            call.answer.cancel()

    async def _ask(self, question: PreStart | Prefer, *, patience: float) -> Answer | None:
        if self._closed:
            return None
        number = next(self._numbers)
        call = _Open(
            question=msgspec.structs.replace(question, call=number),
            deadline=self._clock.monotonic() + patience,
            answer=asyncio.get_running_loop().create_future(),
        )
        self._open[number] = call
        try:
            if self._send:
                self._send(self._with_time_left(call))
            in_time = await settled(call.answer, seconds=patience, clock=self._clock)
            return call.answer.result() if in_time and not call.answer.cancelled() else None
        finally:
            del self._open[number]
            if not call.answer.done() and self._send:
                self._send(Forget(call=number))

    def _with_time_left(self, call: _Open) -> PreStart | Prefer:
        if isinstance(call.question, Prefer):
            return call.question
        return msgspec.structs.replace(call.question, patience=max(0.0, call.deadline - self._clock.monotonic()))
