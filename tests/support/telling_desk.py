"""Those who write of queues, over a stage and an API server that takes everything."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from aliquot_core.objects import ObjectMeta, Queue
from aliquot_kube.transport import Question, Response
from aliquot_scheduler.centre.evictions import Evictions
from aliquot_scheduler.centre.gang_returner import GangReturner
from aliquot_scheduler.centre.gatekeeper import Gatekeeper
from aliquot_scheduler.centre.notice_writer import NoticeWriter
from aliquot_scheduler.centre.pod_events import PodEvents
from aliquot_scheduler.centre.queue_writer import QueueWriter
from support.centre_means import means
from support.clocks import VirtualClock
from support.queue_stage import Stage, queue

TWO = {"a": queue(guarantee=100), "b": queue()}


class Sink:
    """A transport that takes every write and remembers it."""

    def __init__(self) -> None:
        self.asked: list[Question] = []

    async def request(self, question: Question) -> Response:
        """Say yes."""
        self.asked.append(question)
        return Response(status=200, headers={}, body=b"{}")

    def stream(self, question: Question) -> Any:
        """Nobody watches here."""
        raise NotImplementedError(question.path)

    def bodies(self, word: str) -> list[Any]:
        """What was written to paths that hold this word."""
        return [json.loads(one.body or b"null") for one in self.asked if word in one.path]


class Desk:
    """A stage, and the writers over it."""

    def __init__(self, specs: Mapping[str, Any] | None = None, **more: Any) -> None:
        self.stage = Stage(TWO if specs is None else specs, **more)
        self.clock, self.sink = VirtualClock(), Sink()
        self.silent = ""
        self.there = {name: Queue(metadata=ObjectMeta(name=name)) for name in TWO}
        self.means = means(self.sink, clock=self.clock, why_not=lambda: self.silent)
        self.events = self.means.events
        self.queues = QueueWriter(turns=self.stage.queues, means=self.means, there=lambda: self.there)
        self.notices = NoticeWriter(turns=self.stage.queues, means=self.means)
        self.gangs = GangReturner(turns=self.stage.queues, means=self.means, evictions=Evictions(means=self.means))

    async def lives(
        self, writer: QueueWriter | NoticeWriter | GangReturner | PodEvents | Gatekeeper, *, seconds: float
    ) -> None:
        """Let a writer run for so long."""
        running = asyncio.ensure_future(writer.run())
        for _ in range(int(seconds)):
            await self.clock.advance(1.0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
