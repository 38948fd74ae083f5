"""What pods say of room that the leader before was making: read back as it was, believed as far as it may be."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from aliquot_core.quantities import MiB, Percent
from aliquot_scheduler.queues.room.clearings import Clearing
from aliquot_scheduler.queues.room.recalling import recalled, words_for
from aliquot_scheduler.queues.telling.notices import making_room
from aliquot_scheduler.queues.waiting.waiter import Waiter
from support.centre import NAMES
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage

OWNER = {"red": queue(guarantee=200), "blue": queue()}


def _full() -> ReclaimStage:
    """All four cards are lent."""
    stage = ReclaimStage(OWNER)
    for number in range(4):
        stage.submit(f"b{number}", 100, queue="blue")
    stage.run()
    return stage


def _made(count: int) -> Clearing:
    """Room for a group of so many, whose victims are to go."""
    stage = _full()
    for number in range(count):
        stage.submit(f"r{number}", 100, queue="red", group="g", notes={"group-size": str(count)})
    (clearing,) = stage.decide()
    return clearing


def _saying(waiter: Waiter, words: str) -> Waiter:
    notes = {**waiter.pod.metadata.annotations, NAMES.room: words}
    meta = msgspec.structs.replace(waiter.pod.metadata, annotations=notes)
    return waiter.of(msgspec.structs.replace(waiter.pod, metadata=meta))


def _told(clearing: Clearing) -> list[Waiter]:
    """All for whom it is, as the next leader sees them: in whatever order."""
    return [_saying(place.waiter, words_for(clearing, place)) for place in reversed(clearing.places)]


def test_who_goes_already_is_not_told_of_as_if_it_had_to() -> None:
    """The leader before has asked them: all that is known of them is that room is kept."""
    (again,) = recalled(_told(_made(2)), word=NAMES.room, until=7.0)
    assert making_room(again) == "room is kept for it on n0"


def test_what_all_of_them_say_is_the_room_that_was_made() -> None:
    """Who, where, and how much of which GPU; of victims nothing is said."""
    clearing = _made(2)
    (again,) = recalled(_told(clearing), word=NAMES.room, until=7.0)
    there, before = ([(one.waiter.uid, one.room) for one in made.places] for made in (again, clearing))
    assert there == before
    assert (again.uid, again.candidate.amounts) == (clearing.uid, clearing.candidate.amounts)
    assert (again.victims, again.until) == ((), 7.0)


def test_of_a_group_all_say_it_or_none_has() -> None:
    """One is gone, or goes to another queue: those who are left ask anew."""
    told = _told(_made(2))
    assert recalled(told[:1], word=NAMES.room, until=0.0) == []
    assert recalled([told[0], msgspec.structs.replace(told[1], queue="blue")], word=NAMES.room, until=0.0) == []


@pytest.mark.parametrize(
    "change",
    [
        {"claims": {"GPU-n0-0": [-100, 0, False]}},
        {"claims": {"GPU-n0-0": [2**40, 0, False]}},
        {"claims": None},
        {"count": 0},
        {"count": -1},
        {"node": 7},
    ],
)
def test_what_nobody_of_us_wrote_keeps_nothing(change: dict[str, Any]) -> None:
    """Less than nothing would be room that is not there, and too much no number of ours."""
    clearing = _made(1)
    (waiter,) = _told(clearing)
    said = json.loads(waiter.pod.metadata.annotations[NAMES.room])
    assert len(recalled([_saying(waiter, json.dumps(said))], word=NAMES.room, until=0.0)) == 1
    assert recalled([_saying(waiter, json.dumps(said | change))], word=NAMES.room, until=0.0) == []


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"whose":'])
def test_what_can_t_be_read_keeps_nothing(text: str) -> None:
    """Room is made anew then."""
    (waiter,) = _told(_made(1))
    assert recalled([_saying(waiter, text)], word=NAMES.room, until=0.0) == []


def test_room_that_is_not_there_is_called_off_at_the_first_look() -> None:
    """The word is of a GPU that is full, and nobody who lies there goes: no card is overdrawn, nobody kept out."""
    clearing = _made(1)
    (waiter,) = _told(clearing)
    stage = ReclaimStage(OWNER)
    for pod in (*_full().pods.values(), waiter.pod):
        stage.see(pod)
    stage.run()
    assert [(one.uid, one.victims) for one in stage.queues.register.clearings] == [("r0", ())]
    (anew,) = stage.decide()
    assert [victim.uid for victim in anew.victims] == [victim.uid for victim in clearing.victims]


def test_room_that_is_free_and_reserved_is_made_anew_where_nobody_goes() -> None:
    """The leader died before it had asked whoever was to go, so that a reservation is whole: another asks at once."""
    specs = {"red": queue(guarantee=100), "blue": queue(), "kept": queue(guarantee=100, lend=0)}
    before = ReclaimStage(specs)
    for number in range(3):
        before.submit(f"b{number}", 100, queue="blue")
    before.run()
    before.submit("r0", 100, queue="red")
    (clearing,) = before.decide()
    stage = ReclaimStage(specs)
    for pod in (*(before.pods[f"b{number}"] for number in range(3)), _told(clearing)[0].pod):
        stage.see(pod)
    assert stage.run() == []
    (anew,) = stage.decide(after=1.0)
    assert [victim.uid for victim in anew.victims] == [victim.uid for victim in clearing.victims] == ["b2"]
    # Its room is free before anybody was asked: it is waited for.
    assert stage.run(after=2.0) == []
    (standing,) = stage.queues.register.clearings
    assert standing == anew
    for uid in stage.evict():
        assert stage.run(after=2.0) == []
        stage.gone(uid)
    assert stage.run(after=2.0) == ["r0"]


def test_a_node_that_is_gone_is_kept_for_nobody() -> None:
    """It left while nobody led."""
    (waiter,) = _told(_made(1))
    said = json.loads(waiter.pod.metadata.annotations[NAMES.room]) | {"node": "lost"}
    stage = ReclaimStage(OWNER)
    stage.see(_saying(waiter, json.dumps(said)).pod)
    assert [*stage.run(), *stage.run(after=1.0)] == ["r0"]
    assert len(stage.queues.register.clearings) == 0


def test_whoever_was_let_in_and_is_not_bound_keeps_its_room() -> None:
    """The leader died when it had lifted the gate; who has less of the cluster would come first."""
    (waiter,) = _told(_made(1))
    spec = msgspec.structs.replace(waiter.pod.spec, scheduling_gates=[])
    before = _full()
    before.gone("b3")
    stage = ReclaimStage({**OWNER, "green": queue()})
    for pod in (*before.pods.values(), msgspec.structs.replace(waiter.pod, spec=spec)):
        stage.see(pod)
    stage.submit("other", 100, queue="green", user="other")
    assert stage.run() == ["r0"]
    assert stage.turns["r0"].number == 1


def test_of_a_group_those_keep_theirs_who_are_not_bound_yet() -> None:
    """The leader died in the middle of binding it."""
    clearing = _made(2)
    told = _told(clearing)
    (again,) = recalled(told[:1], bound=told[1:], word=NAMES.room, until=0.0)
    assert [one.waiter.uid for one in again.places] == [told[0].uid]
    assert again.candidate.amounts == told[0].amounts


@pytest.mark.parametrize("memory", [20_000, 80_000])
def test_claims_are_read_in_percent_and_mib(memory: int) -> None:
    """Neither is taken for the other."""
    stage = _full()
    stage.submit("r0", 30, memory, queue="red")
    (clearing,) = stage.decide()
    (again,) = recalled(_told(clearing), word=NAMES.room, until=0.0)
    ((_, claim),) = again.places[0].claims.items()
    assert (claim.compute, claim.memory, claim.closes) == (Percent(30), MiB(memory), False)
