"""Who leads by the centre's lease: one at most, whatever dies, leaves, is slow, lost or set to another time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aliquot_core.instants import seconds_of
from aliquot_core.names import LEADER_LEASE, NAMESPACE
from aliquot_kube.election import Leader
from aliquot_kube.errors import ApiError, UnreachableError
from aliquot_kube.leadership import NotLeadingError, Standing
from aliquot_kube.resources import LEASES
from aliquot_kube.transport import Question
from simulation.universe.chance import Chance
from simulation.universe.contest import NAMES, TIMES, Contest, away, contest, prompt, silent, slow, two


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
