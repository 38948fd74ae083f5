"""kube-scheduler's watch may be faster than ours: a pod that we have not been told of is waited for, not refused."""

from __future__ import annotations

import asyncio
import random

import pytest

from aliquot_scheduler.centre.binder import Binder
from aliquot_scheduler.queues.said.spec import QueueSpec
from support.centre import NAMES, asks, bound, make_pod, with_grant
from support.centre_means import means
from support.centre_race import SlowApi, Trial
from support.clocks import VirtualClock

POD = asks("u1", 60, 1_000)


class Early:
    """A binder that is asked to bind a pod of which the watch has told nothing; it was given room at filter."""

    def __init__(self) -> None:
        self.api = SlowApi([POD], chance=random.Random(1))
        self.clock = VirtualClock()
        trial = Trial([], api=self.api)
        self.desk, self.picture = trial.desk, trial.picture
        self.turns = trial.turns
        self.binder = Binder(
            desk=self.desk,
            means=means(self.api, clock=self.clock),
            charged_in=trial.turns.charged_in,
            labels_of=lambda _: {},
        )

    def bind(self) -> asyncio.Task[str]:
        """Ask."""
        meta = POD.metadata
        return asyncio.ensure_future(
            self.binder.bind(namespace=meta.namespace, name=meta.name, uid=meta.uid, node="n1")
        )

    def tell(self) -> None:
        """The watch tells of the pod, as the reign hands it on."""
        self.desk.pod_seen(POD)
        self.binder.told(POD)


@pytest.mark.parametrize("calls", [1, 2])
async def test_a_bind_before_the_watch_waits_for_it_and_is_done_once(calls: int) -> None:
    """Also if kube-scheduler asks twice: one of the two is bound, and both have an answer."""
    early = Early()
    early.binder.filter(POD, ["n1"])
    asked = [early.bind() for _ in range(calls)]
    await early.clock.advance(1.0)
    assert early.api.bound == []
    early.tell()
    await early.clock.advance(0.0)
    answers = [await one for one in asked]
    assert answers.count("") == 1
    assert early.api.bound == ["u1"]


@pytest.mark.parametrize("queues", [{}, {"a": QueueSpec()}], ids=["without queues", "with queues"])
async def test_the_binding_says_in_which_queue_the_pod_is_charged(queues: dict[str, QueueSpec]) -> None:
    """If there are queues: its namespace may be at home in another one by the time the next leader reads it."""
    early = Early()
    early.turns.queues_seen(queues)
    early.turns.namespace_seen(POD.metadata.namespace, queue=next(iter(queues), ""))
    early.binder.filter(POD, ["n1"])
    asked = early.bind()
    await early.clock.advance(1.0)
    early.tell()
    await early.clock.advance(0.0)
    assert await asked == ""
    assert early.api.notes["u1"].get(NAMES.charged) == ("a" if queues else None)


async def test_a_pod_of_which_nothing_is_told_is_refused_before_kube_scheduler_gives_up() -> None:
    """If it were deleted meanwhile, nobody would tell us: so no room is kept for it either."""
    early = Early()
    early.binder.filter(POD, ["n1"])
    asked = early.bind()
    await early.clock.advance(1.9)
    assert not asked.done()
    assert early.desk.promises.of("u1") is not None
    await early.clock.advance(0.2)
    assert "has not been told of this pod yet" in await asked
    assert early.api.bound == []
    assert early.desk.promises.of("u1") is None


async def test_a_pod_without_promised_room_is_refused_at_once() -> None:
    """There is nothing to wait for."""
    early = Early()
    asked = early.bind()
    await early.clock.advance(0.0)
    assert "no room is promised" in await asked
    assert early.clock.monotonic() == 0.0


@pytest.mark.parametrize("as_we_would", [True, False])
async def test_a_conflict_may_be_with_the_leader_before_us(*, as_we_would: bool) -> None:
    """Its last write may have landed: then it counts from now on, though the watch has not told of it yet."""
    early = Early()
    early.tell()
    early.binder.filter(POD, ["n1"])
    promise = early.desk.promises.of("u1")
    assert promise is not None
    ours, theirs = with_grant(POD, promise.plan.grant), bound(POD, node="n1", held={"GPU-n1-0": (90, 9_000)})
    early.api.is_bound_already(ours if as_we_would else theirs)
    assert ("is already assigned" in await early.bind()) is not as_we_would
    claims = early.picture.holdings.on(("n1", "GPU-n1-0"))
    assert {uid: claim.compute.value for uid, claim in claims.items()} == {"u1": 60 if as_we_would else 90}


async def test_kube_scheduler_is_offered_no_victim_of_its_own_choice() -> None:
    """The second net: its profile has no preemption, but a cluster's own may; it would evict across tenants."""
    early = Early()
    early.tell()
    offered = {"n1": ["victim", "another"], "n2": ["victim"]}
    assert early.binder.preempt(asks("u2", 90, 1_000), offered) == {}
    assert early.binder.preempt(make_pod("u2", {"name": "main"}), {"n1": ["u1"]}) == {}
    assert early.desk.pods.keys() == {"u1"}
