"""The heart-beat interval on its way: the leader writes it, agents follow it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aliquot_agent.publishing.pace import Pace
from aliquot_core.names import LEADER_LEASE, NAMESPACE, PACE_LEASE, Names
from aliquot_kube.client import KubeClient
from aliquot_kube.election import ElectionSettings
from aliquot_kube.errors import ConflictError, UnreachableError
from aliquot_kube.fencing import FencedTransport
from aliquot_kube.heartbeat import HeartBeat
from aliquot_kube.leadership import Leadership
from aliquot_kube.lease import LeaseKeeper
from aliquot_kube.resources import LEASES
from aliquot_kube.transport import Question
from aliquot_scheduler.centre.pace_setter import PaceSetter
from support.clocks import VirtualClock
from support.fake_api import FakeApi

INTERVAL = Names().heartbeat_interval
SETTINGS = Names().settings
PACE = LEASES.path(namespace=NAMESPACE, name=PACE_LEASE)
LEADER = LEASES.path(namespace=NAMESPACE, name=LEADER_LEASE)
BEAT = LEASES.path(namespace=NAMESPACE, name="node-1")
FREE = {"metadata": {"name": LEADER_LEASE}, "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}


@pytest.fixture
def api() -> FakeApi:
    """An API server whose last leader has let go."""
    made = FakeApi()
    made.put(LEADER, FREE)
    return made


@pytest.fixture
def clock() -> VirtualClock:
    """A clock."""
    return VirtualClock()


@asynccontextmanager
async def running(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Let these run for the time of a block."""
    tasks = [asyncio.create_task(one) for one in work]
    yield
    for task in tasks:
        task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        assert ended is None or isinstance(ended, asyncio.CancelledError)


def keeper(api: FakeApi, name: str) -> LeaseKeeper:
    """A keeper of one of our leases."""
    return LeaseKeeper(client=KubeClient(transport=api), namespace=NAMESPACE, name=name)


def candidate(api: FakeApi, clock: VirtualClock) -> Leadership:
    """Somebody who wants to lead."""
    return Leadership(
        keeper=keeper(api, LEADER_LEASE),
        clock=clock,
        random=lambda: 0.5,
        name="centre",
        address="https://centre:10950",
        names=Names(),
        settings=ElectionSettings(),
    )


def setter(
    api: FakeApi,
    clock: VirtualClock,
    *,
    leadership: Leadership,
    nodes: list[int | None],
    beside: Callable[[], Mapping[str, str]] = dict,
) -> PaceSetter:
    """A centre that sees so many nodes; the test changes the list's only entry."""
    fenced = FencedTransport(transport=api, check=leadership.check)
    return PaceSetter(
        keeper=LeaseKeeper(client=KubeClient(transport=fenced), namespace=NAMESPACE, name=PACE_LEASE),
        clock=clock,
        names=Names(),
        leadership=leadership,
        nodes=lambda: nodes[0],
        beside=beside,
    )


def said(api: FakeApi) -> str | None:
    """The interval in force."""
    annotations: dict[str, str] = api.objects.get(PACE, {}).get("metadata", {}).get("annotations", {})
    return annotations.get(INTERVAL)


def writes(api: FakeApi, path: str) -> int:
    """How often a lease was written."""
    return len([question for question in api.writes if question.method == "PATCH" and question.path == path])


async def test_leader_writes_the_interval_once_and_when_it_changes(api: FakeApi, clock: VirtualClock) -> None:
    """A write for each hundred nodes, not for each look."""
    leadership = candidate(api, clock)
    nodes: list[int | None] = [None]
    async with running(leadership.run(), setter(api, clock, leadership=leadership, nodes=nodes).run()):
        await clock.advance(20)
        assert said(api) is None
        nodes[0] = 500
        await clock.advance(16)
        assert said(api) == "5"
        assert api.objects[PACE]["spec"]["holderIdentity"] == leadership.identity
        await clock.advance(120)
        assert writes(api, PACE) == 1
        nodes[0] = 1201
        await clock.advance(16)
        assert (said(api), writes(api, PACE)) == ("13", 2)


async def test_what_the_last_leader_wrote_stands(api: FakeApi, clock: VirtualClock) -> None:
    """A new one does not write what is there, and puts right what is not."""
    api.put(PACE, {"metadata": {"name": PACE_LEASE, "annotations": {INTERVAL: "7"}}, "spec": {"holderIdentity": "old"}})
    leadership = candidate(api, clock)
    nodes: list[int | None] = [700]
    async with running(leadership.run(), setter(api, clock, leadership=leadership, nodes=nodes).run()):
        await clock.advance(40)
        assert writes(api, PACE) == 0
        api.put(PACE, {"metadata": {"name": PACE_LEASE, "annotations": {INTERVAL: "1"}}, "spec": {}})
        await clock.advance(16)
        assert said(api) == "7"


async def test_settings_stand_beside_the_interval(api: FakeApi, clock: VirtualClock) -> None:
    """Those of who leads now: other ones are put right though the interval is, and once."""
    stale = {"annotations": {INTERVAL: "5", SETTINGS: "old", "other": "kept"}}
    api.put(PACE, {"metadata": {"name": PACE_LEASE, **stale}, "spec": {}})
    leadership = candidate(api, clock)
    pace = setter(api, clock, leadership=leadership, nodes=[500], beside=lambda: {SETTINGS: "new"})
    async with running(leadership.run(), pace.run()):
        await clock.advance(60)
        assert api.objects[PACE]["metadata"]["annotations"] == {INTERVAL: "5", SETTINGS: "new", "other": "kept"}
        assert writes(api, PACE) == 1


async def test_follower_writes_nothing(api: FakeApi, clock: VirtualClock) -> None:
    """Whoever does not lead has no say, nor has one who has just lost."""
    api.put(LEADER, {**FREE, "spec": {**FREE["spec"], "holderIdentity": "other"}})
    leadership = candidate(api, clock)
    nodes: list[int | None] = [500]
    async with running(leadership.run(), setter(api, clock, leadership=leadership, nodes=nodes).run()):
        await clock.advance(8)
        assert said(api) is None
        await clock.advance(11)
        assert said(api) == "5"
        await leadership.resign()
        nodes[0] = 900
        await clock.advance(60)
        assert said(api) == "5"


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_leadership_lost_before_the_write_is_noticed(api: FakeApi, clock: VirtualClock, method: str) -> None:
    """Nothing more is written then, and the setter lives on."""
    leadership = candidate(api, clock)
    asked: list[int] = []

    def lose(question: Question) -> None:
        if (question.path, question.method) in {(PACE, "GET"), (LEASES.collection(NAMESPACE), "POST")}:
            if question.method == method:
                leadership._election.resign(now=clock.monotonic())
            asked.append(len(api.writes))

    api.before = [lose] * 20
    async with running(leadership.run(), setter(api, clock, leadership=leadership, nodes=[500]).run()):
        await clock.advance(60)
        assert (len(asked), said(api)) == (1 if method == "GET" else 2, None)
        assert writes(api, PACE) == 0


@pytest.mark.parametrize("fault", [UnreachableError("away"), ConflictError("changed", status=409)])
async def test_failure_is_made_up_for(api: FakeApi, clock: VirtualClock, fault: UnreachableError) -> None:
    """Nobody ends for a write that did not work."""
    leadership = candidate(api, clock)
    nodes: list[int | None] = [None]
    async with running(leadership.run(), setter(api, clock, leadership=leadership, nodes=nodes).run()):
        await clock.advance(14.9)
        nodes[0] = 500
        api.before = [fault] * 2
        await clock.advance(31)
        assert said(api) == "5"


def heart(api: FakeApi, clock: VirtualClock) -> tuple[HeartBeat, Pace]:
    """A node's heart, and what tells it how often to beat."""
    beat = HeartBeat(
        keeper=keeper(api, "node-1"), clock=clock, random=lambda: 0.5, holder="agent", interval=5.0, annotations={}
    )
    return beat, Pace(beat=beat, keeper=keeper(api, PACE_LEASE), names=Names(), clock=clock, random=lambda: 0.5)


def say(api: FakeApi, text: str) -> None:
    """Write an interval as the centre would."""
    api.put(PACE, {"metadata": {"name": PACE_LEASE, "annotations": {INTERVAL: text}}, "spec": {}})


async def test_agent_beats_as_it_is_told_from_the_start(api: FakeApi, clock: VirtualClock) -> None:
    """Five thousand agents that start with five seconds each would be a thousand writes a second."""
    say(api, "50")
    beat, pace = heart(api, clock)
    async with running(beat.run(), pace.run()):
        await clock.advance(49)
        assert api.objects[BEAT]["spec"]["leaseDurationSeconds"] in {10, 100}
        written = writes(api, BEAT)
        await clock.advance(500)
        assert writes(api, BEAT) - written == 10
        assert api.objects[BEAT]["spec"]["leaseDurationSeconds"] == 100


async def test_agent_follows_within_a_minute_and_reads_seldom(api: FakeApi, clock: VirtualClock) -> None:
    """It looks once in twelve beats, a little earlier than that by chance."""
    say(api, "5")
    beat, pace = heart(api, clock)
    async with running(beat.run(), pace.run()):
        await clock.advance(1)
        say(api, "10")
        await clock.advance(59)
        assert beat.interval == 10.0
        await clock.advance(3600)
        reads = [question for question in api.asked if question.path == PACE]
        assert 30 <= len(reads) <= 45


@pytest.mark.parametrize("text", ["soon", "0.001", "1e9"])
async def test_agent_goes_on_as_before_when_what_is_said_makes_no_sense(
    api: FakeApi, clock: VirtualClock, text: str
) -> None:
    """Nor does it change anything that the lease is gone or can't be read."""
    say(api, "20")
    beat, pace = heart(api, clock)
    async with running(pace.run()):
        await clock.advance(1)
        say(api, text)
        await clock.advance(300)
        assert beat.interval == 20.0
        del api.objects[PACE]
        api.before = [UnreachableError("away")]
        await clock.advance(600)
        assert beat.interval == 20.0
        say(api, "6")
        await clock.advance(300)
        assert beat.interval == 6.0
