"""kube-scheduler's watch may be faster than ours: a pod that we have not been told of is waited for, not refused."""

from __future__ import annotations

import asyncio
import random

import pytest

from aliquot_scheduler.centre.binder import Binder
from aliquot_scheduler.queues.spec import QueueSpec
from support.centre import NAMES, asks
from support.centre_means import means
from support.centre_race import SlowApi, Trial
from support.clocks import VirtualClock

POD = asks("u1", 60, 1_000)


class Early:
    """A binder that is asked to bind a pod of which the watch has told nothing; it was given room at filter."""

    def __init__(self) -> None:
        self.api = SlowApi([POD], chance=random.Random(1))  # noqa: S311 - repeats itself, guards nothing
        self.clock = VirtualClock()
        trial = Trial([], api=self.api)
        self.desk = trial.desk
        self.turns = trial.turns
        self.binder = Binder(desk=self.desk, means=means(self.api, clock=self.clock), charged_in=trial.turns.charged_in)

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
    early.turns.namespace_seen(POD.metadata.namespace, queue="a")
    early.binder.filter(POD, ["n1"])
    asked = early.bind()
    await early.clock.advance(1.0)
    early.tell()
    await early.clock.advance(0.0)
    assert await asked == ""
    assert early.api.notes["u1"].get(NAMES.charged) == ("a" if queues else None)


async def test_a_pod_of_which_nothing_is_told_is_refused_before_kube_scheduler_gives_up() -> None:
    """If it were deleted meanwhile, nobody would tell us."""
    early = Early()
    early.binder.filter(POD, ["n1"])
    asked = early.bind()
    await early.clock.advance(1.9)
    assert not asked.done()
    await early.clock.advance(0.2)
    assert "has not been told of this pod yet" in await asked
    assert early.api.bound == []


async def test_a_pod_without_promised_room_is_refused_at_once() -> None:
    """There is nothing to wait for."""
    early = Early()
    asked = early.bind()
    await early.clock.advance(0.0)
    assert "no room is promised" in await asked
    assert early.clock.monotonic() == 0.0
