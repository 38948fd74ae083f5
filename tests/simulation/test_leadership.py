"""Candidates for the centre's lease on virtual time; between them and the embedded API server is a wire of ill will."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aliquot_core.instants import seconds_of
from aliquot_core.names import LEADER_LEASE, NAMESPACE, Names
from aliquot_core.objects import Lease
from aliquot_kube.client import KubeClient
from aliquot_kube.election import ElectionSettings, Leader
from aliquot_kube.errors import ApiError, UnreachableError
from aliquot_kube.leadership import Leadership, NotLeadingError, Standing
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


def test_one_leads_and_the_other_knows_where_to_ask() -> None:
    """Of two that start where there is no lease one leads; the other refuses to write, and names it."""

    async def story(contest: Contest) -> None:
        leader, follower = await two(contest)
        leading, following = contest.candidates[leader], contest.candidates[follower]
        known = Leader(identity=leading.identity, address=f"https://{leader}:10950")
        assert leading.leader == following.leader == known
        assert leading.check() == leading.fence
        told: list[Standing] = []
        leading.subscribe(told.append)
        following.subscribe(told.append)
        assert told == [Standing(fence=leading.fence, leader=known), Standing(leader=known)]
        with pytest.raises(NotLeadingError, match=f"ask https://{leader}:10950"):
            following.check()
        lease = await contest.lease()
        assert (lease.spec.holder_identity, lease.spec.lease_duration_seconds) == (leading.identity, 10)

    contest(story)


@pytest.mark.parametrize("phase", [tenth / 10 for tenth in range(21)])
def test_killed_leader_costs_at_most_the_length_of_its_lease(phase: float) -> None:
    """Whenever it dies between two renewals, counted from its death, and from its last renewal as the lease has it."""

    async def story(contest: Contest) -> None:
        leader, follower = await two(contest)
        await asyncio.sleep(5 + phase)
        before = (await contest.lease()).spec
        contest.kill(leader)
        assert await contest.until_led(within=TIMES.duration) == follower
        after = (await contest.lease()).spec
        silent = (seconds_of(after.acquire_time) or 0.0) - (seconds_of(before.renew_time) or 0.0)
        assert TIMES.duration - TIMES.margin < silent <= (before.lease_duration_seconds or 0) == TIMES.duration

    contest(story)


def test_leader_that_leaves_costs_less_than_a_second() -> None:
    """It lets go of the lease, and nobody leads before it has."""

    async def story(contest: Contest) -> None:
        leader, follower = await two(contest)
        begun = contest.loop.time()
        await contest.stop(leader)
        assert contest.loop.time() - begun < 0.1
        assert await contest.until_led(within=TIMES.look + 0.1) == follower
        assert (await contest.lease()).spec.lease_transitions == 2

    contest(story)


def test_leader_that_can_not_let_go_ends_all_the_same() -> None:
    """A stop does not wait for an API server that is away."""

    async def story(contest: Contest) -> None:
        leader, _ = await two(contest)
        contest.on_way = away
        begun = contest.loop.time()
        await contest.stop(leader)
        assert contest.loop.time() - begun <= 2 * TIMES.request + 0.1

    contest(story)


def test_an_outage_is_logged_once_and_who_leads_is_told_by_all(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever is woken reads when it began, when it was over, and whom each replica follows."""
    caplog.set_level(logging.INFO, logger="aliquot_kube.leadership")

    async def story(contest: Contest) -> None:
        leader, follower = await two(contest)
        said = [(one.getMessage(), vars(one).get("leader")) for one in caplog.records]
        assert {("leads", None), ("follows", contest.candidates[leader].identity)} <= set(said)
        caplog.clear()
        contest.on_way = away
        await asyncio.sleep(120)
        contest.on_way = prompt
        await contest.until_led(within=TIMES.duration + TIMES.renew)
        said = [(one.getMessage(), vars(one).get("leader")) for one in caplog.records]
        assert [text for text, _ in said].count("the lease could not be asked") == len([leader, follower])
        assert ("leads no longer", None) in said
        assert ("nobody leads", "") in said
        assert ("the lease can be asked again", None) in said

    contest(story)


async def away(question: Question) -> None:
    """Refuse to carry anything."""
    await asyncio.sleep(LATENCY)
    raise UnreachableError("refused", where=question.where)


async def silent(_: Question) -> None:
    """Carry nothing and say nothing."""
    await asyncio.sleep(1e9)


@pytest.mark.parametrize("by", [-1e8, -3600.0, 3600.0, 1e8])
def test_wall_clocks_that_jump_change_nothing(by: float) -> None:
    """The leader stays, whoever's clock is set to whatever."""

    async def story(contest: Contest) -> None:
        leader, _ = await two(contest)
        for name in contest.clocks:
            contest.clocks[name].set_by = by
            await asyncio.sleep(30)
        assert contest.leading == [leader]
        assert (await contest.lease()).spec.lease_transitions == 1

    assert [leads for _, _, leads in contest(story).told].count(True) == 1


@pytest.mark.parametrize("trouble", [away, silent])
def test_one_lost_renewal_costs_nothing(trouble: Callable[[Question], Coroutine[Any, Any, None]]) -> None:
    """Whether it was refused or never answered, there is time for another."""

    async def story(contest: Contest) -> None:
        leader, _ = await two(contest)
        for _ in range(20):
            contest.on_way = trouble
            await asyncio.sleep(0.7)
            contest.on_way = prompt
            await asyncio.sleep(4.0)
        assert contest.leading == [leader]

    assert [leads for _, _, leads in contest(story).told].count(True) == 1


def test_slow_answers_cost_nothing() -> None:
    """Each takes nearly as long as it may."""

    async def story(contest: Contest) -> None:
        leader, _ = await two(contest)
        contest.on_way = slow
        await asyncio.sleep(120)
        assert contest.leading == [leader]

    assert [leads for _, _, leads in contest(story).told].count(True) == 1


@pytest.mark.parametrize("trouble", [away, silent])
def test_leader_cut_off_is_told_in_time_and_leads_again(
    trouble: Callable[[Question], Coroutine[Any, Any, None]],
) -> None:
    """Its belief ends 7 s after its last renewal was sent, it is told so then, and somebody leads when all is well."""

    async def story(contest: Contest) -> None:
        leader, _ = await two(contest)
        contest.on_way = trouble
        await contest.candidates[leader].until(leads=False)
        assert contest.told[-1] == (contest.loop.time(), leader, False)
        assert contest.candidates[leader].fence is None
        renewed = [at for at, _, leads in contest.told if leads][-1]
        assert contest.loop.time() - renewed == pytest.approx(TIMES.duration - TIMES.margin, abs=0.01)
        asked = len(contest.asked)
        await asyncio.sleep(60)
        assert contest.leading == []
        # Both rest longer and longer: one to two seconds, and what a request takes that is not answered.
        assert len(contest.asked) - asked < 90
        contest.on_way = prompt
        begun = contest.loop.time()
        name = await contest.until_led(within=2 * TIMES.duration)
        assert contest.loop.time() - begun < TIMES.renew + TIMES.look
        await contest.candidates[name].until(leads=True)

    contest(story)


async def slow(_: Question) -> None:
    """Carry all, in half a second each way and a little more."""
    await asyncio.sleep(0.6)


def test_belief_counts_from_when_the_renewal_was_sent() -> None:
    """Not from when its answer came, more than a second later."""

    async def story(contest: Contest) -> None:
        leader, _ = await two(contest)
        contest.on_way = slow
        await asyncio.sleep(10)
        await contest.until(lambda: 1.3 < contest.loop.time() - contest.sent("PATCH") < 1.5, within=TIMES.renew)
        renewed = contest.sent("PATCH")
        contest.on_way = silent
        await contest.candidates[leader].until(leads=False)
        assert contest.loop.time() - renewed == pytest.approx(TIMES.duration - TIMES.margin, abs=0.01)

    contest(story)


def test_whole_duration_counts_from_when_the_look_was_answered() -> None:
    """What it shows may have been renewed while the question was on its way."""

    async def story(contest: Contest) -> None:
        leader, follower = await two(contest)
        contest.kill(leader)
        contest.kill(follower)
        contest.on_way = slow
        begun = contest.loop.time()
        contest.start("c")
        await contest.until_led(within=15)
        # It may have to wait for another look that is on its way.
        counted = TIMES.duration - TIMES.early
        assert 0.0 <= contest.sent("PATCH") - begun - counted - 2 * 0.6 < 2 * 0.6

    contest(story)


def test_resigning_is_told_at_once_though_a_request_is_on_its_way() -> None:
    """What the leader does is to end before the lease is let go."""

    async def story(contest: Contest) -> None:
        leader, _ = await two(contest)
        contest.on_way = slow
        await asyncio.sleep(5)
        await contest.until(lambda: contest.loop.time() - contest.sent("PATCH") < 0.3, within=TIMES.renew)
        stopping = asyncio.create_task(contest.stop(leader))
        await asyncio.sleep(0)
        assert contest.told[-1] == (contest.loop.time(), leader, False)
        await stopping
        assert (await contest.lease()).spec.holder_identity is None

    contest(story)


def test_process_of_the_same_name_is_somebody_else() -> None:
    """What a former life holds is not ours: it may still be alive."""

    async def story(contest: Contest) -> None:
        contest.start("a")
        await contest.until_led(within=TIMES.duration + TIMES.look)
        first = contest.candidates["a"].identity
        contest.kill("a")
        begun = contest.loop.time()
        contest.start("a")
        await contest.until_led(within=TIMES.duration + 0.1)
        assert contest.loop.time() - begun > TIMES.duration - TIMES.early - 0.1
        assert contest.candidates["a"].identity != first

    contest(story)


def test_lost_answer_to_a_claim_is_looked_into() -> None:
    """A claim that stands though its answer was lost is renewed before anybody leads."""

    async def story(contest: Contest) -> None:
        passed = 0

        async def loses_answer(question: Question) -> None:
            nonlocal passed
            passed += question.method == "PATCH"
            await (away if passed == 2 and question.method == "PATCH" else prompt)(question)

        contest.on_way = loses_answer
        contest.start("a")
        await contest.until_led(within=TIMES.duration + 2 * TIMES.look)
        assert [method for _, method in contest.asked][-3:] == ["PATCH", "GET", "PATCH"]
        assert (await contest.lease()).spec.lease_transitions == 1

    contest(story)


# One example is a minute or two of three candidates' lives.
@settings(max_examples=settings().max_examples // 4)
@given(
    seed=st.integers(0, 2**32),
    slowness=st.sampled_from([0.01, 0.5, 1.0, 4.0]),
    loss=st.sampled_from([0.0, 0.1, 0.4]),
    rates=st.permutations([0.9, 1.0, 1.12]),
)
@example(seed=1, slowness=1.0, loss=0.1, rates=[0.9, 1.0, 1.12])
def test_two_never_lead_and_somebody_does_when_faults_stop(
    *, seed: int, slowness: float, loss: float, rates: list[float]
) -> None:
    """Whatever is slow, lost, killed, stopped or set: the judge sees one at most, and one within two durations."""
    chance = Chance(seed, "leadership")

    async def bad(question: Question) -> None:
        await asyncio.sleep(chance.about(slowness))
        if chance.happens(loss):
            raise UnreachableError("lost", where=question.where)

    async def story(contest: Contest) -> None:
        contest.on_way = bad
        for name, rate in zip(NAMES, rates, strict=True):
            contest.start(name, rate=rate, offset=chance.uniform(0, 1e6))
        for _ in range(30):
            await asyncio.sleep(chance.about(4.0))
            await mischief(contest, chance)
        contest.on_way = prompt
        for name in NAMES:
            if name not in contest.candidates:
                contest.start(name)
        await contest.until_led(within=2 * TIMES.duration)

    assert any(leads for _, _, leads in contest(story).told)


async def mischief(contest: Contest, chance: Chance) -> None:
    """Do something to somebody."""
    name = chance.choice(NAMES)
    if name not in contest.candidates:
        contest.start(name)
    elif chance.happens(0.3):
        contest.kill(name)
    elif chance.happens(0.3):
        await contest.stop(name)
    elif chance.happens(0.2):
        with suppress(ApiError):
            await contest.client.delete(LEASES, name=LEADER_LEASE, namespace=NAMESPACE)
    else:
        contest.clocks[name].set_by = chance.uniform(-1e6, 1e6)
