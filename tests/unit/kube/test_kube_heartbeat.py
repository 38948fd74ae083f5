"""The heart-beat lease on a virtual clock, against an API server in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ConflictError, ServerTroubleError, UnreachableError
from aliquot_kube.heartbeat import HeartBeat
from aliquot_kube.lease import Claim, LeaseKeeper
from aliquot_kube.transport import Question
from support.clocks import VirtualClock
from support.fake_api import FakeApi

PATH = "/apis/coordination.k8s.io/v1/namespaces/system/leases/node1"
AWAY = UnreachableError("refused")


@pytest.fixture
def api() -> FakeApi:
    """An empty API server."""
    return FakeApi()


@pytest.fixture
def clock() -> VirtualClock:
    """A clock of 2026."""
    return VirtualClock(start=1_800_000_000.25)


def keeper_of(api: FakeApi) -> LeaseKeeper:
    """A keeper of node1's lease."""
    return LeaseKeeper(client=KubeClient(transport=api), namespace="system", name="node1")


def make_beat(api: FakeApi, clock: VirtualClock) -> HeartBeat:
    """A heart that beats every 5 s."""
    return HeartBeat(
        keeper=keeper_of(api),
        clock=clock,
        random=lambda: 0.5,
        holder="me",
        interval=5.0,
        annotations={"aliquot.dev/state": "ready"},
    )


@asynccontextmanager
async def beating(beat: HeartBeat) -> AsyncIterator[HeartBeat]:
    """Let a heart beat for the time of a block."""
    task = asyncio.create_task(beat.run())
    try:
        yield beat
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def spec(api: FakeApi) -> dict[str, Any]:
    """What the lease says."""
    found: dict[str, Any] = api.objects[PATH]["spec"]
    return found


def state(api: FakeApi) -> str:
    """The word that the lease carries."""
    word: str = api.objects[PATH]["metadata"]["annotations"]["aliquot.dev/state"]
    return word


async def test_lease_is_made_and_renewed_at_its_interval(api: FakeApi, clock: VirtualClock) -> None:
    """The first beat creates the lease, each later one is a single patch 5 s after the last."""
    async with beating(make_beat(api, clock)) as beat:
        await clock.advance(0)
        assert spec(api) == {
            "holderIdentity": "me",
            "leaseDurationSeconds": 10,
            "acquireTime": "2027-01-15T08:00:00.250000Z",
            "renewTime": "2027-01-15T08:00:00.250000Z",
            "leaseTransitions": 0,
        }
        assert state(api) == "ready"
        await clock.advance(14.9)
        assert [question.method for question in api.asked] == ["GET", "POST", "PATCH", "PATCH"]
        assert spec(api)["renewTime"] == "2027-01-15T08:00:10.250000Z"
        assert spec(api)["acquireTime"] == "2027-01-15T08:00:00.250000Z"
        assert beat.age == pytest.approx(4.9)


async def test_announcing_writes_at_once_and_returns_when_written(api: FakeApi, clock: VirtualClock) -> None:
    """A new state does not wait for the next beat, and whoever announced it knows when it stands."""
    async with beating(make_beat(api, clock)) as beat:
        await clock.advance(1)
        await beat.announce({"aliquot.dev/state": "draining"})
        assert state(api) == "draining"
        assert clock.monotonic() == 1
        await clock.advance(4.9)
        assert len(api.writes) == 2
        await clock.advance(0.2)
        assert len(api.writes) == 3


async def test_announcing_during_a_beat_is_not_lost(api: FakeApi, clock: VirtualClock) -> None:
    """What is announced while a write is on its way is written right after it."""
    beat = make_beat(api, clock)
    announcing: list[asyncio.Task[None]] = []

    def announce(_: Question) -> None:
        announcing.append(asyncio.ensure_future(beat.announce({"aliquot.dev/state": "away"})))

    api.after = [announce]
    async with beating(beat):
        await clock.advance(0.1)
        await announcing[0]
        assert state(api) == "away"


async def test_announcing_waits_until_a_server_that_is_away_is_back(api: FakeApi, clock: VirtualClock) -> None:
    """Nobody is told that a state stands before it does, and tries do not come in a busy loop."""
    async with beating(make_beat(api, clock)) as beat:
        await clock.advance(1)
        asked = len(api.asked)
        api.before = [AWAY] * 3
        announcing = asyncio.create_task(beat.announce({"aliquot.dev/state": "draining"}))
        await clock.advance(1.0)
        assert not announcing.done()
        assert len(api.asked) - asked == 2
        await clock.advance(4.0)
        assert announcing.done()
        assert state(api) == "draining"


async def test_interval_changes_at_run_time(api: FakeApi, clock: VirtualClock) -> None:
    """A shorter interval takes effect within itself, a longer one after the beat that was due."""
    async with beating(make_beat(api, clock)) as beat:
        await clock.advance(0.5)
        beat.interval = 1.0
        await clock.advance(3.1)
        assert len(api.writes) == 1 + 3
        assert spec(api)["leaseDurationSeconds"] == 2
        beat.interval = 60.0
        await clock.advance(59)
        assert len(api.writes) == 1 + 3 + 1
        assert spec(api)["leaseDurationSeconds"] == 120


async def test_failed_beats_are_made_up_for_sooner_than_the_next(api: FakeApi, clock: VirtualClock) -> None:
    """Two lost beats do not cost two intervals: the node is alive again well before its lease runs out."""
    async with beating(make_beat(api, clock)) as beat:
        await clock.advance(0)
        api.before = [AWAY, ServerTroubleError("etcd", status=500)]
        await clock.advance(7)
        assert spec(api)["renewTime"] > "2027-01-15T08:00:05.250000Z"
        assert beat.age is not None
        assert beat.age < 2


async def test_write_of_unknown_outcome_is_read_before_it_is_repeated(api: FakeApi, clock: VirtualClock) -> None:
    """A renewal whose answer was lost is no conflict with ourselves."""
    async with beating(make_beat(api, clock)) as beat:
        await clock.advance(0)
        api.after = [AWAY]
        await clock.advance(9)
        assert [question.method for question in api.asked] == ["GET", "POST", "PATCH", "GET", "PATCH"]
        assert beat.rival is None


async def test_lease_that_was_deleted_is_made_again(api: FakeApi, clock: VirtualClock) -> None:
    """Whoever deletes the lease gets a new one with the next beat."""
    async with beating(make_beat(api, clock)):
        await clock.advance(0)
        api.objects.clear()
        await clock.advance(5)
        assert spec(api)["holderIdentity"] == "me"


async def test_predecessor_is_replaced_and_is_no_rival(api: FakeApi, clock: VirtualClock) -> None:
    """A restarted agent takes its node's lease over at once and counts the change."""
    api.put(PATH, {"metadata": {"name": "node1"}, "spec": {"holderIdentity": "before", "leaseTransitions": 3}})
    async with beating(make_beat(api, clock)) as beat:
        await clock.advance(0)
        assert (spec(api)["holderIdentity"], spec(api)["leaseTransitions"]) == ("me", 4)
        assert beat.rival is None


async def test_rival_is_noticed_with_the_next_beat(api: FakeApi, clock: VirtualClock) -> None:
    """Somebody else who renews our lease while we live is named."""
    async with beating(make_beat(api, clock)) as beat:
        await clock.advance(0)
        api.put(PATH, {"metadata": {"name": "node1"}, "spec": {"holderIdentity": "other"}})
        await clock.advance(5)
        assert beat.rival == "other"
        assert spec(api)["holderIdentity"] == "me"


async def test_races_lost_again_and_again_are_an_error(api: FakeApi) -> None:
    """A keeper does not fight for ever over one write."""

    def interfere(question: Question) -> None:
        if question.method == "PATCH":
            api.put(PATH, {"metadata": {"name": "node1"}, "spec": {"holderIdentity": "other"}})

    api.put(PATH, {"metadata": {"name": "node1"}, "spec": {}})
    api.before = [interfere] * 20
    with pytest.raises(ConflictError, match="races"):
        await keeper_of(api).write(Claim(holder="me", duration=10, wall=0))
    assert len(api.writes) == 4


async def test_only_the_version_that_was_judged_is_written_over_or_let_go(api: FakeApi) -> None:
    """Whoever elects by this lease has looked at one version, and what came after it is somebody's claim."""
    keeper = keeper_of(api)
    made = await keeper.make()
    assert api.objects[PATH].get("spec", {}) == {}
    claim = Claim(holder="me", duration=10, wall=0)
    taken = await keeper.put(claim, over=made)
    for write in (keeper.put(claim, over=made), keeper.release(over=made), keeper.make()):
        with pytest.raises(ConflictError):
            await write
    assert spec(api)["holderIdentity"] == "me"
    await keeper.release(over=taken)
    assert "holderIdentity" not in spec(api)
    assert spec(api)["renewTime"] == taken.spec.renew_time


Interfere = Callable[[FakeApi], None]


@pytest.mark.parametrize(
    "interfere",
    [
        lambda api: api.put(PATH, {"metadata": {"name": "node1"}, "spec": {"holderIdentity": "other"}}),
        lambda api: api.objects.clear(),
    ],
)
@pytest.mark.parametrize("step", [0, 1, 2, 3])
async def test_whoever_interferes_at_any_step_the_claim_stands_in_the_end(
    api: FakeApi, step: int, interfere: Interfere
) -> None:
    """A lease written or deleted by others before any of our requests is written over what they left."""
    keeper = keeper_of(api)
    claim = Claim(holder="me", duration=10, wall=0)
    await keeper.write(claim)
    first = len(api.asked)

    def at_step(_: Question) -> None:
        if len(api.asked) - first - 1 == step:
            interfere(api)

    api.before = [at_step] * 20
    if step:
        keeper.lease = None
    await keeper.write(claim)
    assert spec(api)["holderIdentity"] == "me"
