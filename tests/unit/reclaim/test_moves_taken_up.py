"""The leader dies while pods are moved: the next one keeps the room of those who come in their place, and no more."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aliquot_scheduler.queues.room.recalling import drained_said, words_for, words_left, words_of_drained
from support.centre import NAMES
from support.queue_scenarios import Step
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage, begun, followed

# Whoever is of `first` goes before all others.
QUEUES = {"blue": queue(), "red": queue(), "first": queue(priority=1)}
APART = {"placement": "spread"}
# So long a whole card waits until it pays to move a half that has run for ten hours.
LONG = 60_000.0
# For two whole cards that is long enough to move small ones, and for a leader that begins while it keeps their room.
SOON = 100.0


def moving() -> tuple[ReclaimStage, str]:
    """A half is moved beside another for one that wants a card whole, and all is told; and which half that is."""
    stage = ReclaimStage(QUEUES, nodes=(2,), moves_per_hour=10)
    stage.consolidate()
    stage.consolidate(after=3_600.0)
    for number in range(2):
        stage.submit_made(f"half{number}", 50, by=f"job{number}", queue="blue", notes=APART)
        stage.run(after=1.0)
    stage.submit("whole", 100, queue="red")
    stage.run()
    (moved,) = stage.consolidate(after=LONG)
    (clearing,) = stage.queues.register.clearings
    (place,) = clearing.places
    say(stage, words_for(clearing, place, refuges=stage.queues.register.refuges.of("whole")))
    return stage, moved


def say(stage: ReclaimStage, words: str, *, whose: str = "whole") -> None:
    """What the pod says for which others are moved."""
    stage.note(whose, {NAMES.room: words})


def next_leader(before: ReclaimStage, *, nodes: tuple[int, ...] = (2,), moves_per_hour: int = 10) -> ReclaimStage:
    """What the one before has only thought is lost."""
    return followed(before, ReclaimStage(QUEUES, nodes=nodes, moves_per_hour=moves_per_hour))


def again(stage: ReclaimStage, moved: str, **more: Any) -> None:
    """Whoever made it makes another."""
    asked: dict[str, Any] = {"compute": 50, "by": f"job{moved[-1]}", "queue": "blue", "notes": APART}
    stage.submit_made("again", **asked | more)


def bound(stage: ReclaimStage, uid: str) -> bool:
    """Whether it lies somewhere."""
    return bool(stage.pods[uid].spec.node_name)


@pytest.mark.parametrize("comes", ["before", "after"])
def test_whoever_comes_in_the_place_of_one_that_is_gone_has_its_room(comes: str) -> None:
    """The leader died between its going and the coming of the next, and somebody else would be first."""
    stage, moved = moving()
    assert stage.evict() == [moved]
    stage.gone(moved)
    if comes == "before":
        again(stage, moved)
    stage = next_leader(stage)
    stage.submit("other", 50, queue="first")
    let_in = stage.run(after=1.0)
    if comes == "after":
        assert let_in == ["whole"]
        again(stage, moved)
        let_in += stage.run(after=1.0)
    assert sorted(let_in) == ["again", "whole"]
    assert not bound(stage, "other")
    assert len(stage.queues.register.refuges) == 0


def test_one_that_is_on_the_way_out_is_not_asked_again_and_its_room_is_kept() -> None:
    """It goes after the next leader has begun."""
    stage, moved = moving()
    assert stage.evict() == [moved]
    stage = next_leader(stage)
    stage.submit("other", 50, queue="first")
    assert stage.run(after=1.0) == []
    stage.decide(after=1.0)
    assert stage.evict() == []
    stage.gone(moved)
    assert stage.run(after=1.0) == ["whole"]
    again(stage, moved)
    assert stage.run(after=1.0) == ["again"]


def test_for_one_that_was_not_asked_yet_nothing_is_kept() -> None:
    """Whether it is moved is decided anew: it may stay where it is."""
    stage, _ = moving()
    stage = next_leader(stage)
    stage.submit("other", 50, queue="first")
    assert stage.run(after=1.0) == ["other"]
    assert stage.evict() == []


def cut_off() -> tuple[ReclaimStage, str]:
    """Two are moved for one that wants two cards whole, and the leader dies when one has gone; which that is."""
    stage = ReclaimStage(QUEUES, nodes=(4,), moves_per_hour=10)
    stage.consolidate()
    stage.consolidate(after=3_600.0)
    for number in range(4):
        stage.submit_made(f"small{number}", 5, by=f"job{number}", queue="blue", notes=APART)
        stage.run(after=1.0)
    begun(stage, Step(ran=["blue"], held={}))
    stage.submit("whole", 200, queue="red")
    stage.run()
    gone, _ = stage.consolidate(after=2 * SOON)
    (clearing,) = stage.queues.register.clearings
    (place,) = clearing.places
    say(stage, words_for(clearing, place, refuges=stage.queues.register.refuges.of("whole")))
    stage.leave(gone)
    stage.gone(gone)
    stage = next_leader(stage, nodes=(4,), moves_per_hour=3_600)
    stage.run()
    stage.decide()
    # Its moves grow from nothing.
    stage.consolidate()
    return stage, gone


def test_a_plan_that_was_cut_off_is_completed_while_room_is_kept_for_who_has_gone() -> None:
    """Nobody waits until that is kept no more; and whoever comes in the place of the first has its room."""
    stage, gone = cut_off()
    (second,) = stage.consolidate(after=SOON)
    assert stage.evict() == [second]
    stage.gone(second)
    assert stage.run(after=1.0) == ["whole"]
    again(stage, gone, compute=5)
    assert stage.run(after=1.0) == ["again"]


def test_nobody_else_has_others_moved_while_a_plan_was_cut_off() -> None:
    """One plan at a time, though the one for whom it was has been deleted."""
    stage, _ = cut_off()
    stage.gone("whole")
    stage.submit("other", 200, queue="red")
    stage.run(after=1.0)
    assert len(stage.queues.register.refuges) == 1
    assert stage.consolidate(after=SOON) == []


def test_once_the_one_that_waited_is_bound_the_next_leader_keeps_it_still() -> None:
    """Its word counts on for those who were moved: whoever comes in the place of one has its room."""
    stage, moved = moving()
    stage.evict()
    stage.gone(moved)
    assert stage.run(after=1.0) == ["whole"]
    stage = next_leader(stage)
    stage.submit("other", 50, queue="first")
    assert stage.run(after=1.0) == []
    again(stage, moved)
    assert stage.run(after=1.0) == ["again"]
    assert len(stage.queues.register.refuges) == 0


def test_who_is_bound_says_no_more_than_is_kept() -> None:
    """Where room is kept for nobody any more, the next leader is told of none."""
    stage, moved = moving()
    words = stage.pods["whole"].metadata.annotations[NAMES.room]
    assert _left(words, moved) == words
    less = _left(words, "another")
    assert (json.loads(less).get("refuges"), json.loads(less)["claims"]) == (None, json.loads(words)["claims"])
    assert _left(less) == less
    assert _left("not of us") == "not of us"


def _left(words: str, *kept: str) -> str:
    return words_left(words, kept=kept)


def draining() -> tuple[ReclaimStage, str, str]:
    """A half is moved off a degraded card, for nobody; which card that is, and on which it is to lie."""
    stage = ReclaimStage(QUEUES, nodes=(2,), moves_per_hour=10)
    stage.consolidate()
    stage.consolidate(after=3_600.0)
    stage.submit_made("half0", 50, by="job0", queue="blue", notes=APART)
    stage.run(after=1.0)
    ((_, bad),) = stage.picture.holdings.of("half0")
    stage.wear(bad)
    assert stage.consolidate(after=3_600.0) == ["half0"]
    return stage, bad, _card(stage)


def put_down(stage: ReclaimStage) -> str:
    """What is kept for the next leader, as the one who leads knows it."""
    return words_of_drained(stage.queues.register.refuges.draining())


def drained_by(before: ReclaimStage, bad: str, words: str) -> ReclaimStage:
    """The next leader, who has read what was put down."""
    stage = next_leader(before)
    stage.wear(bad)
    stage.queues.register.making_room.drained_before = words
    return stage


# What has happened by the time that a leader dies, and at which of the two times.
STEPS = ("asked", "gone", "come again")


@pytest.mark.parametrize("dies", [*((step,) for step in STEPS), STEPS], ids="+".join)
def test_room_of_one_that_goes_off_a_degraded_card_is_kept(dies: tuple[str, ...]) -> None:
    """Whoever comes in its place has it, and nobody else, whenever leaders die."""
    stage, bad, good = draining()
    assert stage.evict() == ["half0"]
    for step in STEPS:
        # Who dies with the step has put down nothing of it.
        words = put_down(stage)
        if step == "gone":
            stage.gone("half0")
        elif step == "come again":
            again(stage, "half0")
        if step in dies:
            stage = drained_by(stage, bad, words)
            assert stage.evict() == []
        if "whole" not in stage.pods:
            stage.submit("whole", 100, queue="first", notes={"gpu-uuid": good})
        let_in = stage.run(after=1.0)
        assert let_in == (["again"] if step == "come again" else [])
    assert [gpu for _, gpu in stage.picture.holdings.of("again")] == [good]
    assert put_down(stage) == ""


def test_one_that_has_come_again_says_itself_where_its_room_is() -> None:
    """Once it does nothing of it need stand elsewhere."""
    stage, bad, good = draining()
    stage.evict()
    stage.gone("half0")
    again(stage, "half0")
    (clearing,) = stage.queues.register.clearings
    say(stage, words_for(clearing, clearing.places[0]), whose="again")
    stage = drained_by(stage, bad, put_down(stage))
    stage.submit("whole", 100, queue="first", notes={"gpu-uuid": good})
    assert stage.run(after=1.0) == ["again"]


def test_one_that_was_let_in_where_room_was_kept_for_it_keeps_it_from_nobody() -> None:
    """The leader died before it could put down that room is kept no more: no card is overdrawn, and it ends in time."""
    stage, bad, _ = draining()
    words = put_down(stage)
    stage.evict()
    stage.gone("half0")
    again(stage, "half0")
    assert stage.run(after=1.0) == ["again"]
    stage = drained_by(stage, bad, words)
    stage.submit("other", 50, queue="first")
    stage.run(after=1.0)
    stage.run(after=130.0)
    assert bound(stage, "other")
    assert len(stage.queues.register.refuges) == 0


def test_of_one_that_was_not_asked_to_leave_a_degraded_card_nothing_is_kept() -> None:
    """Whether it is moved is decided anew."""
    stage, bad, good = draining()
    stage = drained_by(stage, bad, put_down(stage))
    stage.submit("whole", 100, queue="first", notes={"gpu-uuid": good})
    assert stage.run(after=1.0) == ["whole"]
    assert stage.evict() == []


def test_what_can_t_be_read_of_those_who_were_moved_says_nothing() -> None:
    """Room is kept for nobody then."""
    assert drained_said("", until=1.0) == drained_said("[{", until=1.0) == drained_said('{"a": 1}', until=1.0) == []


def test_for_one_whose_room_somebody_has_by_now_nothing_is_kept() -> None:
    """No card is overdrawn by it: the leader in between knew nothing of the room."""
    stage, moved = moving()
    assert stage.evict() == [moved]
    stage.gone(moved)
    whole = stage.pods.pop("whole")
    between = next_leader(stage)
    between.submit("other", 50, queue="first", notes={"gpu-uuid": _card(stage)})
    assert between.run(after=1.0) == ["other"]
    between.pods["whole"] = whole
    after = next_leader(between)
    assert after.run(after=1.0) == ["whole"]
    assert len(after.queues.register.refuges) == 0


def _card(stage: ReclaimStage) -> str:
    (refuge,) = stage.queues.register.refuges
    (card,) = refuge.claims
    return card


@pytest.mark.parametrize(
    "change", [{"by": "another job"}, {"compute": 40}, {"queue": "red"}, {"notes": {}}], ids=lambda one: next(iter(one))
)
def test_room_is_kept_for_nobody_else(change: dict[str, Any]) -> None:
    """Another maker's, or one that asks for something else, stands in line as all do."""
    stage, moved = moving()
    stage.evict()
    stage.gone(moved)
    stage = next_leader(stage)
    assert stage.run(after=1.0) == ["whole"]
    again(stage, moved, **change)
    stage.run(after=1.0)
    assert not bound(stage, "again")
    assert len(stage.queues.register.refuges) == 1


def test_nobody_comes_and_others_have_the_room_in_time() -> None:
    """It is kept for no longer than whoever goes may take, and two minutes."""
    stage, moved = moving()
    stage.evict()
    stage.gone(moved)
    stage = next_leader(stage)
    stage.submit("other", 50, queue="first")
    assert stage.run(after=1.0) == ["whole"]
    assert stage.run(after=60.0) == []
    assert stage.run(after=61.0) == ["other"]


def test_what_is_less_than_nothing_is_no_room() -> None:
    """Nobody of us wrote it."""
    stage, moved = moving()
    stage.evict()
    stage.gone(moved)
    said = json.loads(stage.pods["whole"].metadata.annotations[NAMES.room])
    (refuge,) = said["refuges"]
    refuge["claims"] = {card: [-50, 0, False] for card in refuge["claims"]}
    say(stage, json.dumps(said))
    stage = next_leader(stage)
    stage.run(after=1.0)
    assert len(stage.queues.register.refuges) == 0
