"""Replicas of the centre, whose code is the real one, and the Service before them.

A replica is asked as kube-scheduler asks it, in bytes; whoever does not lead asks the leader. What is left out is HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from aliquot_core.errors import AliquotError
from aliquot_core.names import LEADER_LEASE, PACE_LEASE, Names
from aliquot_kube.client import KubeClient
from aliquot_kube.election import ElectionSettings
from aliquot_kube.errors import UnreachableError
from aliquot_kube.fencing import FencedTransport
from aliquot_kube.leadership import Leadership
from aliquot_kube.lease import LeaseKeeper
from aliquot_kube.transport import Question, Response, Timeouts, Transport
from aliquot_scheduler.centre.centre import Centre
from aliquot_scheduler.centre.pace_setter import PaceSetter
from aliquot_scheduler.centre.reign import Reign
from aliquot_scheduler.centre.settings import CentreSettings
from aliquot_scheduler.deciding.turns import Rooms, Turn
from aliquot_scheduler.extender.echo import Echo
from aliquot_scheduler.extender.verbs import Answer, LeaderUnheardError, Verb, answer, refused
from aliquot_scheduler.queues.said.settings import QueueSettings
from simulation.universe.api import ApiServer, is_binding
from simulation.universe.books import Books
from simulation.universe.chance import Chance
from simulation.universe.life import Life
from simulation.universe.loop import LoopClock, VirtualLoop

TIMES = ElectionSettings()
# kube-scheduler's, and a follower's that asks the leader for it.
PATIENCE, FOLLOWERS_PATIENCE = 5.0, 4.0
LAG = 0.002
# So long after its end a replica is still listed behind the Service.
NOTICED = 5.0


class SetClock(LoopClock):
    """A machine's clocks; somebody sets the one that people read."""

    set_by = 0.0

    def wall(self) -> float:
        """What people read there."""
        return super().wall() + self.set_by


class SimReplica:
    """One replica over all lives of its process."""

    def __init__(
        self,
        *,
        name: str,
        names: Names,
        seed: int,
        loop: VirtualLoop,
        api: ApiServer,
        books: Books,
        peers: Mapping[str, SimReplica],
        trace: Callable[[str], None],
    ) -> None:
        self.name = name
        self.clock = SetClock(loop)
        self.life: Life | None = None
        self.lives = 0
        # How it ended by itself, or an answer of it did, which must not be.
        self.fallen: BaseException | None = None
        self.leadership: Leadership
        self.centre: Centre
        self._echo: Echo
        # The settings of queues, which a story may set otherwise before it begins.
        self.queues = QueueSettings()
        self._names = names
        self._seed = seed
        self._loop = loop
        self._api = api
        self._books = books
        self._peers = peers
        self._trace = trace
        self._past: list[Life] = []

    # --- lives -------------------------------------------------------------------------------------------------------
    def start(self, *, die_at: int | None = None) -> Life:
        """Run anew, with nothing but what it finds."""
        self._past = [*self.undead(), *([self.life] if self.life else [])]
        life = self.life = Life(self._loop, die_at=die_at)
        self.lives += 1
        chance = Chance(self._seed, f"{self.name} {self.lives}")
        self.leadership = self._candidate(life, chance)
        self._echo = Echo()
        self.centre = Centre(leadership=self.leadership, reign=lambda: self._reign(life, chance))
        pace = self._pace(life)
        task = life.begin(lambda: _all(self.leadership.run, self.centre.run, pace.run))
        task.add_done_callback(lambda ended: self._ended(life, ended))
        return life

    def kill(self) -> None:
        """`kill -9`."""
        if self.life is not None:
            self.life.kill()

    async def stop_gently(self) -> None:
        """Let go of the lease, and end."""
        life = self.life
        if life is None or not life.alive:
            return
        leaving = life.begin(self.leadership.resign)
        try:
            await asyncio.wait([leaving], timeout=10.0)
        finally:
            life.kill()

    def undead(self) -> list[Life]:
        """Lives that are over and whose coroutines go on."""
        return [life for life in self._past if life.tasks]

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return self.life is not None and self.life.alive

    @property
    def leads(self) -> bool:
        """Whether it believes to lead."""
        return self.alive and self.leadership.leads(self.clock.monotonic())

    @property
    def reign(self) -> Reign | None:
        """What it knows and decides, if it leads and all is known."""
        reign = self.centre.reign if self.leads else None
        return reign if reign is not None and not reign.why_not() else None

    def _ended(self, life: Life, task: asyncio.Task[None]) -> None:
        if life.alive and not life.died.cancelled():
            error = None if task.cancelled() else task.exception()
            self.fallen = error or RuntimeError(f"{self.name} came to an end")
            life.kill()

    # --- what it is made of ------------------------------------------------------------------------------------------
    def _candidate(self, life: Life, chance: Chance) -> Leadership:
        client = KubeClient(transport=self._api.wire(life), timeouts=Timeouts(total=TIMES.request))
        return Leadership(
            keeper=LeaseKeeper(client=client, namespace=self._names.namespace, name=LEADER_LEASE),
            clock=self.clock,
            random=chance.random,
            name=self.name,
            address=self.name,
            names=self._names,
            settings=TIMES,
        )

    def _reign(self, life: Life, chance: Chance) -> Reign:
        number = self._books.reign_begins(self.name)
        witness = _Witness(wire=self._api.wire(life), reign=number, books=self._books)
        leadership = self.leadership
        reign = Reign(
            transport=FencedTransport(transport=witness, check=leadership.check),
            clock=self.clock,
            random=chance.random,
            names=self._names,
            settings=CentreSettings(name=self.name, address=self.name),
            queues=self.queues,
            leads=lambda: leadership.leads(self.clock.monotonic()),
            settled=leadership.has_read,
            led_until=leadership.beat_before,
            renew=TIMES.renew,
        )
        self._watch_turns(reign)
        return reign

    def _watch_turns(self, reign: Reign) -> None:
        """Let the books see each turn as it is decided."""
        real = reign.turns.turns

        def turns(rooms: Rooms, *, now: float) -> Iterator[Turn]:
            for turn in real(rooms, now=now):
                self._books.turn_given(turn, reign=reign)
                yield turn

        reign.turns.turns = turns  # type: ignore[method-assign]

    def _pace(self, life: Life) -> PaceSetter:
        fenced = FencedTransport(transport=self._api.wire(life), check=self.leadership.check)
        client = KubeClient(transport=fenced)
        return PaceSetter(
            keeper=LeaseKeeper(client=client, namespace=self._names.namespace, name=PACE_LEASE),
            clock=self.clock,
            names=self._names,
            leadership=self.leadership,
            nodes=self.centre.beating_nodes,
        )

    # --- what it is asked --------------------------------------------------------------------------------------------
    async def ask(self, verb: Verb, body: bytes, *, passed_on: bool = False) -> bytes:
        """Ask this replica; it goes on with what it has begun though nobody waits any more."""
        life = self.life
        if life is None or not life.alive:
            raise UnreachableError("connection refused", where=self.name)
        handling: asyncio.Task[bytes] = life.begin(lambda: self._handle(verb, body, passed_on=passed_on))
        await asyncio.wait([handling])
        if handling.cancelled() or not life.alive:
            raise UnreachableError("the connection broke", where=self.name)
        return handling.result()

    async def _handle(self, verb: Verb, body: bytes, *, passed_on: bool) -> bytes:
        try:
            if self.leads:
                given = answer(verb, body, decisions=self.centre, echo=self._echo)
                return (given if isinstance(given, Answer) else await given).body
            return await self._pass_on(verb, body, passed_on=passed_on)
        except AliquotError as error:
            return refused(verb, error).body
        except Exception as error:
            self.fallen = self.fallen or error
            raise

    async def _pass_on(self, verb: Verb, body: bytes, *, passed_on: bool) -> bytes:
        if passed_on:
            raise LeaderUnheardError("a replica was asked that does not lead", where=self.name)
        leader = self.leadership.leader
        if leader is None:
            raise LeaderUnheardError("no replica leads just now", where=self.name)
        try:
            async with asyncio.timeout(FOLLOWERS_PATIENCE):
                await asyncio.sleep(LAG)
                return await self._peers[leader.address].ask(verb, body, passed_on=True)
        except TimeoutError:
            raise LeaderUnheardError("the leader did not answer", where=self.name) from None


class _Witness:
    """Tells the books which reign sends a binding."""

    def __init__(self, *, wire: Transport, reign: int, books: Books) -> None:
        self._wire = wire
        self._reign = reign
        self._books = books

    async def request(self, question: Question) -> Response:
        """Pass it on."""
        if is_binding(question):
            self._books.binding_sent(question, reign=self._reign)
        return await self._wire.request(question)

    def stream(self, question: Question) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Pass it on."""
        return self._wire.stream(question)


class Service:
    """Where kube-scheduler asks; any replica answers, late or not at all; what is asked may be done all the same.

    One that has ended is asked in vain until that is noticed.
    """

    def __init__(self, *, replicas: Sequence[SimReplica], chance: Chance) -> None:
        self._replicas = replicas
        self._chance = chance
        self.lag = LAG
        self.lost = 0.0
        # Since when those that are not there have been missed.
        self._missed: dict[str, float] = {}
        self.binds: list[bytes] = []

    async def ask(self, verb: Verb, body: bytes) -> bytes:
        """Ask, and wait no longer than kube-scheduler does."""
        if verb is Verb.BIND:
            self.binds = [*self.binds[-30:], body]
        try:
            async with asyncio.timeout(PATIENCE):
                await self._travel()
                told = await self._chance.choice(self._listed()).ask(verb, body)
                await self._travel()
        except TimeoutError:
            raise UnreachableError(f"no answer within {PATIENCE:g} s", where=verb) from None
        return told

    def _listed(self) -> Sequence[SimReplica]:
        now = asyncio.get_running_loop().time()
        for replica in self._replicas:
            if replica.life and replica.life.alive:
                self._missed.pop(replica.name, None)
            else:
                self._missed.setdefault(replica.name, now)
        found = [one for one in self._replicas if now - self._missed.get(one.name, now) < NOTICED]
        return found or self._replicas

    async def _travel(self) -> None:
        lost = self._chance.happens(self.lost)
        await asyncio.sleep(2 * PATIENCE if lost else self._chance.about(self.lag))


async def _all(*parts: Callable[[], Coroutine[Any, Any, object]]) -> None:
    async with asyncio.TaskGroup() as group:
        for part in parts:
            group.create_task(part())
