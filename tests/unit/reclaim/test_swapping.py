"""A GPU that begins to fail while it is cleared for an owner is exchanged for a sound one, where that can be."""

from __future__ import annotations

from aliquot_scheduler.queues.said.spec import Preemption
from aliquot_scheduler.reclaim.residents import Budget
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage, ran_for

GRACE = 30


def test_an_owner_has_other_room_made_where_a_card_fails_that_is_cleared_for_it() -> None:
    """Once: whoever lies on the sound one goes, and what fails is for others."""
    stage = ReclaimStage({"k": queue(guarantee=100), "blue": queue()}, nodes=(2,))
    for uid in ("b0", "b1"):
        stage.submit_made(uid, 100, by=f"job-{uid}", queue="blue")
        stage.run(after=1.0)
    stage.submit("k0", 100, queue="k")
    stage.run(after=1.0)
    (clearing,) = stage.decide(after=1.0)
    ((_, cleared),) = clearing.places[0].room
    assert len(stage.evict(grace=GRACE)) == 1
    stage.wear(cleared)
    first = stage.evicted[0]
    stage.run(after=1.0)
    stage.decide()
    (second,) = stage.evict(grace=GRACE)
    assert {first, second} == {"b0", "b1"}
    stage.gone(first)
    assert stage.run(after=1.0) == []
    stage.gone(second)
    assert stage.run(after=GRACE) == ["k0"]
    assert cleared not in {card for _, card in stage.picture.holdings.of("k0")}


def test_who_borrows_goes_for_no_third_card_where_one_fails_after_the_other() -> None:
    """What fails after that is the owner's: what breaks each card would else send everybody away for one."""
    stage = ReclaimStage({"k": queue(guarantee=100), "blue": queue()}, nodes=(3,))
    for uid in ("b0", "b1", "b2"):
        stage.submit_made(uid, 100, by=f"job-{uid}", queue="blue")
        stage.run(after=1.0)
    stage.submit("k0", 100, queue="k")
    bad = list[str]()
    for _ in range(3):
        stage.run(after=1.0)
        stage.decide(after=1.0)
        stage.evict(grace=GRACE)
        bad += _cleared(stage)
        stage.wear(*bad, count=3)
    assert len(stage.evicted) == len({*bad}) == 2
    for uid in stage.evicted:
        stage.gone(uid)
    assert stage.run(after=1.0) == ["k0"]
    assert {card for _, card in stage.picture.holdings.of("k0")} == {bad[-1]}


def _cleared(stage: ReclaimStage) -> list[str]:
    return [gpu for clearing in stage.queues.register.clearings for place in clearing.places for _, gpu in place.room]


def _one_of_two_goes() -> tuple[ReclaimStage, str, str]:
    """For an owner, off a card that fails from then on; who goes, and who stays on the sound one."""
    stage = ReclaimStage({"k": queue(guarantee=100), "blue": queue()}, nodes=(2,))
    for uid in ("b0", "b1"):
        stage.submit_made(uid, 100, by=f"job-{uid}", queue="blue")
        stage.run(after=1.0)
    stage.submit("k0", 100, queue="k")
    stage.run(after=1.0)
    stage.decide()
    (goes,) = stage.evict(grace=GRACE)
    stage.wear(*_cleared(stage))
    (stays,) = {"b0", "b1"} - {goes}
    return stage, goes, stays


def test_an_owner_has_other_room_made_where_the_last_one_goes_before_anybody_has_looked() -> None:
    """The card began to fail within the same second: its gate is not lifted for that one."""
    stage, goes, stays = _one_of_two_goes()
    sound = {card for _, card in stage.picture.holdings.of(stays)}
    stage.gone(goes)
    assert stage.run(after=0.1) == []
    stage.decide()
    assert stage.evict(grace=GRACE) == [stays]
    assert stage.run(after=1.0) == []
    stage.gone(stays)
    assert stage.run(after=1.0) == ["k0"]
    assert {card for _, card in stage.picture.holdings.of("k0")} == sound


def test_it_is_looked_at_once_more_when_the_room_is_there() -> None:
    """Whom a budget kept a moment ago may go by now."""
    stage, goes, stays = _one_of_two_goes()
    assert stage.decide(after=1.0, budgets=[Budget(pods=frozenset({stays}), allowed=0)]) == []
    assert stage.run(after=3.0) == []
    stage.gone(goes)
    assert stage.run(after=0.1) == []
    stage.decide()
    assert stage.evict(grace=GRACE) == [stays]


def test_an_owner_comes_to_what_was_cleared_where_nobody_looks() -> None:
    """After a few seconds."""
    stage, goes, _ = _one_of_two_goes()
    stage.gone(goes)
    assert stage.run(after=1.0) == []
    assert stage.run(after=3.9) == []
    assert stage.run(after=1.1) == ["k0"]


def test_no_other_room_is_looked_for_before_all_have_been_asked_who_go_for_the_first() -> None:
    """They count as gone meanwhile: who was not asked would keep the second one, and nobody would ask it."""
    stage = ReclaimStage({"k": queue(guarantee=100), "blue": queue()}, nodes=(2,))
    for number in range(4):
        stage.submit_made(f"b{number}", 50, by=f"job-{number}", queue="blue")
        stage.run(after=1.0)
    stage.submit("k0", 100, queue="k")
    stage.run(after=1.0)
    stage.decide()
    first = _cleared(stage)
    stage.wear(*first)
    assert stage.decide(after=1.0) == []
    assert _cleared(stage) == first
    assert len(stage.evict(grace=GRACE)) == 2
    stage.decide(after=1.0)
    assert _cleared(stage) != first


def test_by_priority_who_goes_is_not_chosen_anew() -> None:
    """It has no right to a sound card, and whoever waits might have what it leaves."""
    specs = {"k": queue(preemption=Preemption(within_queue="AnyUser"))}
    stage = ReclaimStage(specs, nodes=(2,))
    for uid in ("b0", "b1"):
        stage.submit(uid, 100, queue="k")
        stage.run(after=1.0)
    stage.submit("k0", 100, queue="k", priority=10)
    stage.run(after=1.0)
    stage.decide(after=1.0)
    (went,) = stage.evict(grace=GRACE)
    (cleared,) = _cleared(stage)
    stage.wear(cleared)
    stage.run(after=1.0)
    assert _cleared(stage) == [cleared]
    stage.gone(went)
    assert stage.run(after=1.0) == ["k0"]


def test_an_owner_has_what_was_cleared_where_nobody_else_can_go() -> None:
    """A card that fails is better than none, and nobody is asked for it again."""
    stage = ReclaimStage({"k": queue(guarantee=100), "blue": queue()}, nodes=(1,))
    stage.submit_made("b0", 100, by="job", queue="blue")
    stage.run(after=1.0)
    stage.submit("k0", 100, queue="k")
    stage.run(after=1.0)
    stage.decide(after=1.0)
    assert stage.evict(grace=GRACE) == ["b0"]
    stage.wear("GPU-n0-0", count=1)
    for _ in range(5):
        assert stage.run(after=1.0) == []
        stage.decide()
        assert stage.evict(grace=GRACE) == []
    stage.gone("b0")
    _comes_once_looked_at(stage)


def test_what_was_cleared_stays_the_owners_where_nobody_else_can_go_and_who_borrows_has_room_in_it() -> None:
    """Half of the card is free, and those on the others have not run for long: nobody went for nothing."""
    stage = _among_the_young(guarantee=100, cards=6, old=50)
    stage.submit("k0", 100, queue="k")
    stage.run(after=1.0)
    stage.decide()
    assert stage.evict(grace=GRACE) == ["b0"]
    stage.submit("late", 50, queue="blue", user="late")
    stage.wear("GPU-n0-0", count=6)
    _nobody_comes(stage, seconds=15)
    stage.gone("b0")
    _comes_once_looked_at(stage)


def test_what_was_cleared_stays_the_owners_though_its_next_pod_was_searched_for_in_vain() -> None:
    """A moment ago: who borrows would come to it meanwhile, and be sent away for the owner once more."""
    stage = _among_the_young(guarantee=200, cards=4, old=100)
    for uid in ("k0", "k1"):
        stage.submit(uid, 100, queue="k")
    stage.run(after=1.0)
    stage.decide()
    assert stage.evict(grace=GRACE) == ["b0"]
    stage.submit("late", 100, queue="blue", user="late")
    stage.wear("GPU-n0-0", count=4)
    stage.gone("b0")
    _comes_once_looked_at(stage)


def test_an_owner_has_other_room_made_though_its_next_pod_was_searched_for_in_vain() -> None:
    """What hides the next one for a while does not hide the one whose card began to fail."""
    stage = _among_the_young(guarantee=200, cards=3, old=100)
    for uid in ("k0", "k1"):
        stage.submit(uid, 100, queue="k")
    stage.run(after=1.0)
    stage.decide()
    assert stage.evict(grace=GRACE) == ["b0"]
    stage.gone("b1")
    stage.wear("GPU-n0-0", count=3)
    stage.decide()
    assert _cleared(stage) == ["GPU-n0-1"]
    assert stage.run(after=1.0) == ["k0"]


def test_of_owners_whose_cards_fail_at_once_each_keeps_what_was_cleared_or_has_what_is_no_others() -> None:
    """One borrower is left on a sound card: the first owner has that, and the other one what was cleared for it."""
    stage = ReclaimStage({"k": queue(guarantee=200), "blue": queue()}, nodes=(3,))
    for number in range(3):
        stage.submit_made(f"b{number}", 100, by=f"job-{number}", queue="blue")
        stage.run(after=1.0)
    for uid in ("k0", "k1"):
        stage.submit(uid, 100, queue="k")
    stage.run(after=1.0)
    stage.decide(after=1.0)
    assert len(stage.evict(grace=GRACE)) == 2
    first, second = _cleared(stage)
    stage.wear(first, second, count=3)
    stage.decide(after=1.0)
    assert len(stage.evict(grace=GRACE)) == 1
    assert sorted(_cleared(stage)) == sorted({f"GPU-n0-{at}" for at in range(3)} - {first})
    for uid in ("b0", "b1", "b2"):
        stage.gone(uid)
    assert sorted(stage.run(after=1.0)) == ["k0", "k1"]


def test_what_stays_cleared_for_an_owner_counts_for_who_comes_after_it() -> None:
    """Its next pod is beyond the guarantee beside it, so nobody goes for that one."""
    stage = _among_the_young(guarantee=100, cards=2, old=100)
    stage.submit("b2", 30, queue="old")
    stage.run(after=1.0)
    ran_for(stage, "old", 10.0)
    stage.submit("k0", 100, queue="k")
    stage.run(after=1.0)
    stage.decide()
    assert stage.evict(grace=GRACE) == ["b0"]
    stage.wear("GPU-n0-0")
    stage.submit("k1", 30, queue="k")
    _nobody_comes(stage, seconds=2)


def _among_the_young(*, guarantee: int, cards: int, old: int) -> ReclaimStage:
    """On the first card one that may go, and on each of the others one that has not run for long."""
    young = queue(preemption=Preemption(min_run_seconds=3600))
    stage = ReclaimStage({"k": queue(guarantee=guarantee), "old": queue(), "blue": young}, nodes=(cards,))
    stage.submit("b0", old, queue="old", notes={"gpu-uuid": "GPU-n0-0"})
    for number in range(1, cards):
        stage.submit(f"b{number}", 70, queue="blue", user=f"u{number}", notes={"gpu-uuid": f"GPU-n0-{number}"})
    while stage.run(after=1.0):
        pass
    for name in ("old", "blue"):
        ran_for(stage, name, 10.0)
    return stage


def _comes_once_looked_at(stage: ReclaimStage) -> None:
    """Its room is there, and it is looked at once more whether anybody else can go."""
    assert stage.run(after=1.0) == []
    assert stage.decide() == []
    assert stage.run(after=0.1) == ["k0"]


def _nobody_comes(stage: ReclaimStage, *, seconds: int) -> None:
    """Nor is anybody asked to go."""
    for _ in range(seconds):
        assert stage.run(after=1.0) == []
        stage.decide()
        assert stage.evict(grace=GRACE) == []


def test_room_on_a_card_that_failed_when_it_was_chosen_is_kept() -> None:
    """There was nothing better, and whoever waits is not to have what is freed."""
    stage = ReclaimStage({"k": queue(guarantee=100), "blue": queue()}, nodes=(1,))
    stage.submit_made("b0", 100, by="job", queue="blue")
    stage.run(after=1.0)
    stage.wear("GPU-n0-0", count=1)
    stage.submit("k0", 100, queue="k")
    stage.run(after=1.0)
    stage.decide(after=1.0)
    stage.run(after=1.0)
    assert _cleared(stage) == ["GPU-n0-0"]
