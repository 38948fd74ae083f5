"""Candidates for the centre's lease on virtual time; between them and the embedded API server is a wire of ill will."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from aliquot_core.names import LEADER_LEASE, NAMESPACE, Names
from aliquot_core.objects import Lease
from aliquot_kube.client import KubeClient
from aliquot_kube.election import ElectionSettings
from aliquot_kube.errors import ApiError, UnreachableError
from aliquot_kube.leadership import Leadership, Standing
from aliquot_kube.lease import LeaseKeeper
from aliquot_kube.resources import LEASES
from aliquot_kube.transport import Question, Response
from aliquot_standalone.apiserver.direct import DirectTransport
from simulation.universe.chance import Chance
from simulation.universe.loop import LATENCY, LoopClock, VirtualLoop
from support.embedded_api import make_frontend

TIMES = ElectionSettings()
# How often it is looked who leads, beside the instants at which candidates say that it has changed.
WATCH = 0.1
# How closely a story times what it waits for.
CLOSELY = 0.005
NAMES = ("a", "b", "c")


class OwnClock:
    """A machine's clocks: one that ticks a bit too fast or slow, and one that somebody sets."""

    def __init__(self, loop: VirtualLoop, *, rate: float = 1.0, offset: float = 0.0) -> None:
        self._loop = loop
        self._rate = rate
        self._offset = offset
        self.set_by = 0.0

    def monotonic(self) -> float:
        """Seconds since that machine's own beginning."""
        return self._offset + self._rate * self._loop.time()

    def wall(self) -> float:
        """What people read there."""
        return LoopClock(self._loop).wall() + self.set_by

    async def sleep(self, seconds: float) -> None:
        """Sleep by the monotonic clock; a little more, as real ones do."""
        await asyncio.sleep(seconds / self._rate + 1e-9)


class Wire:
    """A process's way to the server: what it has sent arrives, whether or not the process still waits or lives."""

    def __init__(self, contest: Contest) -> None:
        self._contest = contest

    async def request(self, question: Question) -> Response:
        """Wait as long as we are let; time limits are the caller's."""
        travelling = self._contest.loop.spawn(self._travel(question))
        answer = await asyncio.shield(travelling)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    def stream(self, question: Question) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Refuse: nobody watches here."""
        raise NotImplementedError(question.where)

    async def _travel(self, question: Question) -> Response | ApiError:
        self._contest.asked.append((self._contest.loop.time(), question.method))
        try:
            await self._contest.on_way(question)
            answer = await self._contest.direct.request(question)
            await self._contest.on_way(question)
        except ApiError as error:
            return error
        return answer


async def prompt(_: Question) -> None:
    """Let a message pass as a good network does."""
    await asyncio.sleep(LATENCY)


class Contest:
    """Candidates, the wire between, and a judge who looks whether two of them lead."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.direct = DirectTransport(frontend=make_frontend(), clock=LoopClock(self.loop))
        self.client = KubeClient(transport=self.direct)
        self.on_way: Callable[[Question], Coroutine[Any, Any, None]] = prompt
        self.asked: list[tuple[float, str]] = []
        self.candidates: dict[str, Leadership] = {}
        self.clocks: dict[str, OwnClock] = {}
        self.told: list[tuple[float, str, bool]] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._lives = itertools.count()

    def play(self, story: Callable[[Contest], Coroutine[Any, Any, None]]) -> None:
        """Let the story happen, and the judge look on."""
        self.loop.run(self._judged(story))

    async def _judged(self, story: Callable[[Contest], Coroutine[Any, Any, None]]) -> None:
        await self.direct.request(
            Question(
                method="POST",
                path="/api/v1/namespaces",
                body=b'{"metadata": {"name": "%s"}}' % NAMESPACE.encode(),
                content_type="application/json",
            )
        )
        judge = asyncio.create_task(self._judge())
        telling = asyncio.create_task(story(self))
        await asyncio.wait({judge, telling}, return_when=asyncio.FIRST_COMPLETED)
        for task in (judge, telling, *self._tasks.values()):
            task.cancel()
        for task in (telling, judge):
            with suppress(asyncio.CancelledError):
                await task

    async def _judge(self) -> None:
        while True:
            self.judge()
            await asyncio.sleep(WATCH)

    def judge(self) -> None:
        """Two never lead at one instant."""
        assert len(self.leading) <= 1, f"{self.leading} lead at {self.loop.time():.3f} s"

    @property
    def leading(self) -> list[str]:
        """Who believes to lead now."""
        return [name for name, one in self.candidates.items() if one.leads(self.clocks[name].monotonic())]

    def start(self, name: str, *, rate: float = 1.0, offset: float = 0.0) -> Leadership:
        """Begin a process, on a machine that remembers its clock."""
        clock = self.clocks.setdefault(name, OwnClock(self.loop, rate=rate, offset=offset))
        one = Leadership(
            keeper=LeaseKeeper(client=KubeClient(transport=Wire(self)), namespace=NAMESPACE, name=LEADER_LEASE),
            clock=clock,
            random=Chance(next(self._lives), name).random,
            name=name,
            address=f"https://{name}:10950",
            names=Names(),
            settings=TIMES,
        )
        self.candidates[name] = one
        self._tasks[name] = asyncio.create_task(one.run())
        one.subscribe(lambda standing: self._take(name, standing))
        return one

    def kill(self, name: str) -> None:
        """End a process between two instructions."""
        self._tasks.pop(name).cancel()
        del self.candidates[name]

    async def stop(self, name: str) -> None:
        """Tell a process to end, and wait for it."""
        await self.candidates[name].resign()
        await self._tasks.pop(name)
        del self.candidates[name]

    async def until_led(self, *, within: float) -> str:
        """Wait until somebody leads; tell who."""
        await self.until(lambda: bool(self.leading), within=within)
        return self.leading[0]

    async def until(self, holds: Callable[[], bool], *, within: float) -> None:
        """Wait for something."""
        end = self.loop.time() + within
        while not holds():
            assert self.loop.time() <= end, f"not within {within} s"
            await asyncio.sleep(CLOSELY)

    async def lease(self) -> Lease:
        """What the server has."""
        return await self.client.get(LEASES, name=LEADER_LEASE, namespace=NAMESPACE)

    def sent(self, method: str) -> float:
        """When such a request was sent last."""
        return [at for at, asked in self.asked if asked == method][-1]

    def _take(self, name: str, standing: Standing) -> None:
        self.judge()
        if not self.told or self.told[-1][1:] != (name, standing.leads):
            self.told.append((self.loop.time(), name, standing.leads))


def contest(story: Callable[[Contest], Coroutine[Any, Any, None]]) -> Contest:
    """Play a story."""
    made = Contest()
    made.play(story)
    return made


async def two(contest: Contest) -> tuple[str, str]:
    """Start two; who leads, and who follows."""
    for name in NAMES[:2]:
        contest.start(name)
    leader = await contest.until_led(within=TIMES.duration + TIMES.look)
    await asyncio.sleep(1.0)
    return leader, "b" if leader == "a" else "a"


async def away(question: Question) -> None:
    """Refuse to carry anything."""
    await asyncio.sleep(LATENCY)
    raise UnreachableError("refused", where=question.where)


async def silent(_: Question) -> None:
    """Carry nothing and say nothing."""
    await asyncio.sleep(1e9)


async def slow(_: Question) -> None:
    """Carry all, in half a second each way and a little more."""
    await asyncio.sleep(0.6)
