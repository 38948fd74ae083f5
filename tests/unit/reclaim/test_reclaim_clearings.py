"""Room that is being made is kept for whom it is made, and called off when it can be of no use."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import pytest

from aliquot_core.instants import second_time
from aliquot_scheduler.deciding.promises import PROMISE
from aliquot_scheduler.queues.room.clearings import Clearing
from aliquot_scheduler.queues.said.spec import ModelQuota, Quota
from support.queue_stage import queue
from support.reclaim_stage import OWNER, ReclaimStage, filled


def test_the_room_is_kept_for_whom_it_was_made() -> None:
    """A card that is free already while its group waits for the other one goes to nobody, however small their share."""
    stage = ReclaimStage(OWNER | {"green": queue()})
    filled(stage, "blue", 4)
    for number in range(2):
        stage.submit(f"red{number}", 100, queue="red", group="pair", notes={"group-size": "2"})
    stage.decide()
    first, second = stage.evict()
    stage.submit("green0", 10, queue="green")
    stage.gone(first)
    assert stage.run(after=1.0) == []
    stage.gone(second)
    assert sorted(stage.run(after=1.0)) == ["red0", "red1"]


def test_room_that_is_kept_on_is_not_free_for_others() -> None:
    """One that is still kept out by a limit lets nobody take, instead of its card, what is another's guarantee."""
    small = queue("o", guarantee=100)
    tree = {"o": queue(limit=150), "red": small, "blue": queue("o"), "pink": queue(guarantee=100), "green": queue()}
    stage = ReclaimStage(tree, nodes=(4,))
    filled(stage, "blue", 2, 50)
    filled(stage, "green", 2, 50, notes={"placement": "spread"})
    stage.submit("red0", 100, queue="red")
    assert len(stage.victims()) == 1
    # Two halves are free, and the card that is kept.
    stage.submit("pink0", 100, queue="pink")
    stage.submit("green9", 50, queue="green")
    assert stage.run(after=1.0) == []
    for uid in stage.evict():
        stage.gone(uid)
    assert sorted(stage.run(after=1.0)) == ["green9", "red0"]


def test_for_whom_room_is_made_counts_as_let_in() -> None:
    """Of a guarantee of two cards no third is taken while the first two are on their way."""
    stage = ReclaimStage(OWNER)
    filled(stage, "blue", 4)
    for number in range(2):
        stage.submit(f"red{number}", 100, queue="red")
    assert stage.victims() == ["blue2", "blue3"]
    stage.submit("red2", 100, queue="red")
    assert stage.victims(after=11.0) == []
    for uid in stage.evict():
        stage.gone(uid)
    assert sorted(stage.run()) == ["red0", "red1"]


def test_a_group_is_called_off_when_its_queue_is_deleted() -> None:
    """Whoever waits goes where it may; nothing is kept for it, and a card that comes to another sum is no trouble."""
    stage = ReclaimStage(OWNER)
    filled(stage, "blue", 4)
    for number in range(2):
        stage.submit(f"p{number}", 100, queue="red", group="pair", notes={"group-size": "2"})
    stage.decide()
    stage.gone("p1")
    model = {"*A100*": ModelQuota(compute=Quota(limit=400))}
    stage.queues.queues_seen({"blue": queue(models=model)})
    assert stage.victims(after=11.0) == []
    assert len(stage.queues.register.clearings) == 0


def test_who_goes_to_another_queue_loses_what_was_made_for_the_first() -> None:
    """The right was that queue's; where the pod waits now it has none."""
    stage = ReclaimStage(OWNER)
    filled(stage, "blue", 4)
    stage.queues.namespace_seen("late", queue="red")
    stage.submit("red0", 100, user="late")
    stage.decide()
    assert len(stage.queues.register.clearings) == 1
    stage.queues.namespace_seen("late", queue="blue")
    for uid in stage.evict():
        stage.gone(uid)
    stage.run()
    assert len(stage.queues.register.clearings) == 0
    assert stage.used("red")[0] == 0


def test_whoever_was_asked_is_not_asked_for_another() -> None:
    """The one for whom it was asked is gone, and the watch has not told yet that the victim goes: it is counted so."""
    stage = ReclaimStage(OWNER)
    filled(stage, "blue", 4)
    stage.submit("red0", 100, queue="red")
    (clearing,) = stage.decide()
    stage.queues.register.clearings.asked(clearing.victims[0].uid)
    stage.gone("red0")
    stage.run()
    stage.submit("red1", 100, queue="red")
    (clearing,) = stage.decide()
    assert clearing.victims == ()
    stage.gone("blue3")
    assert stage.run() == ["red1"]


def test_room_outlives_a_change_of_queues() -> None:
    """Another model is named, so all is counted in more dimensions: who waited for its room gets it."""
    stage = ReclaimStage(OWNER)
    filled(stage, "blue", 4)
    stage.submit("red0", 100, queue="red")
    stage.decide()
    stage.queues.queues_seen(OWNER | {"green": queue(models={"*A100*": ModelQuota(compute=Quota(limit=400))})})
    for uid in stage.evict():
        stage.gone(uid)
    assert stage.run() == ["red0"]


def test_two_do_not_get_the_same_room() -> None:
    """What is made free for one counts as taken when the next one is decided on."""
    stage = ReclaimStage(OWNER)
    filled(stage, "blue", 4)
    stage.submit("red0", 100, queue="red")
    assert stage.victims() == ["blue3"]
    stage.submit("red1", 100, queue="red")
    assert stage.victims(after=1.0) == ["blue2"]
    for uid in stage.evict():
        stage.gone(uid)
    assert sorted(stage.run()) == ["red0", "red1"]


def test_whoever_counted_on_one_that_stays_after_all_is_called_off_too() -> None:
    """A budget keeps it: room for the second would never come, and its other victims would go for nothing."""
    stage = ReclaimStage({"red": queue(guarantee=200), "blue": queue()}, nodes=(2,))
    filled(stage, "blue", 2)
    stage.submit("red0", 40, queue="red", notes={"gpu-uuid": "GPU-n0-1"})
    (first,) = stage.decide()
    (kept,) = first.victims
    stage.submit("red1", 40, queue="red", notes={"gpu-uuid": "GPU-n0-1"})
    found = [*stage.decide(), *stage.decide(after=6.0), *stage.decide(after=6.0)]
    (second,) = found
    assert second.victims == ()
    stage.reclaim.refused(kept, now=stage.now)
    assert list(stage.queues.register.clearings) == []
    assert stage.picture.holdings.kept(("n0", "GPU-n0-1")) == {}
    assert stage.victims(after=1.0) == []


def test_what_is_dropped_is_what_is_kept_by_now() -> None:
    """Whoever comes with an older word on it leaves nothing behind, of whomever it is by now."""
    stage = ReclaimStage(OWNER)
    filled(stage, "blue", 4)
    for number in range(2):
        stage.submit(f"red{number}", 100, queue="red", group="g", notes={"group-size": "2"})
    (clearing,) = stage.decide()
    clearings = stage.queues.register.clearings
    clearings.drop(clearing)
    clearings.make(msgspec.structs.replace(clearing, places=clearing.places[:1]))
    clearings.drop(clearing)
    assert not any(uid in clearings for uid in ("red0", "red1"))
    assert all(stage.picture.holdings.kept(place_key) == {} for one in clearing.places for place_key in one.room)


def test_whoever_goes_through_clearings_meets_those_that_stand() -> None:
    """What is done with one may end another."""
    stage = ReclaimStage(OWNER)
    filled(stage, "blue", 4)
    for number in range(2):
        stage.submit(f"red{number}", 100, queue="red")
    clearings, met = stage.queues.register.clearings, []
    assert len(stage.decide()) == 2
    for clearing in clearings:
        met.append(clearing)
        for other in clearings:
            clearings.drop(other)
    assert len(met) == 1


def test_it_is_told_where_room_is_made() -> None:
    """The condition of a pod that waits for it."""
    stage = ReclaimStage(OWNER)
    filled(stage, "blue", 4)
    stage.submit("red0", 100, queue="red")
    stage.decide()
    (waiter,) = [one for one in stage.queues.waiting() if one.uid == "red0"]
    notice = stage.queues.notice(waiter)
    since, until = second_time(stage.wall), second_time(stage.wall + 90.0)
    assert notice.reason == "MakingRoom"
    assert notice.message == (
        f"1 pod has to go for it since {since}, until {until} at the latest, and it gets the room on n0"
    )


def test_who_has_lost_a_turn_is_told_that_room_is_made_all_the_same() -> None:
    """It rests for either: what counts is what it waits for now."""
    stage = ReclaimStage(OWNER)
    filled(stage, "blue", 3)
    stage.submit("red0", 100, queue="red")
    assert stage.round() == ["red0"]
    stage.lift("red0")
    stage.submit("blue9", 100, queue="blue")
    assert stage.run(after=PROMISE + 1.0) == ["blue9"]
    stage.queues.missed(stage.pods["red0"], now=stage.now)
    assert stage.run(after=60.0) == []
    assert len(stage.decide()) == 1
    (waiter,) = stage.queues.waiting()
    assert stage.queues.notice(waiter).reason == "MakingRoom"
    assert "1 pod has to go for it" in stage.queues.why_not(stage.pods["red0"])


def test_for_whom_room_is_made_is_read_anew_when_queues_change() -> None:
    """In as many dimensions as are counted by now: else it would be charged with too little."""
    stage = ReclaimStage(OWNER)
    filled(stage, "blue", 4)
    stage.submit("red0", 100, queue="red")
    stage.decide()
    stage.queues.queues_seen(OWNER | {"green": queue(models={"*A100*": ModelQuota(compute=Quota(limit=400))})})
    register = stage.queues.register
    (clearing,) = register.clearings
    (place,) = clearing.places
    assert len(clearing.candidate.amounts) == register.books.ledger.width > 2
    assert clearing.candidate.first == place.waiter == register.hall.resting("red0")


def test_many_are_called_off_together_in_one_look_at_who_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one after the other asked everybody whether others had counted on it, 640 took a second."""
    many = 24
    stage = ReclaimStage({"red": queue(guarantee=100 * many), "blue": queue()}, nodes=(8, 8, 8))
    filled(stage, "blue", many)
    for number in range(many):
        stage.submit(f"red{number}", 100, queue="red")
    stage.run(after=1.0)
    while stage.decide(after=1.0):
        stage.evict()
    clearings, asked = stage.queues.register.clearings, list[str]()
    assert len(clearings) == many
    comes_true = clearings.comes_true

    def counted(clearing: Clearing, *, leaving: Collection[str]) -> bool:
        asked.append(clearing.uid)
        return comes_true(clearing, leaving=leaving)

    monkeypatch.setattr(clearings, "comes_true", counted)
    for number in range(many // 2):
        stage.gone(f"red{number}")
    stage.queues.register.making_room.call_off_void(now=stage.now)
    assert len(clearings) == many // 2
    assert len(asked) <= many
    assert stage.run(after=1.0) == []
    stage.now += 1_000.0
    stage.beat()
    stage.queues.register.making_room.call_off_void(now=stage.now)
    assert len(clearings) == 0
