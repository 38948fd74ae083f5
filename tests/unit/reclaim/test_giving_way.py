"""Who is moved harms no owner: what is kept for its next pod gives way; and it is moved only where that is let in."""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from aliquot_core.instants import second_time
from aliquot_scheduler.queues.said.spec import Preemption, QueueSpec
from support.centre import failing, gpus, make_node
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage

AN_HOUR = 3_600.0
A_PAUSE = 600.0
GRACE = 30
OWNED = {"k": queue(guarantee=200), "blue": queue()}
OPEN = {"k": queue(), "blue": queue()}


class Board(ReclaimStage):
    """Two cards or more, on the first of which a job of one that may borrow lies; that card fails."""

    def __init__(self, specs: dict[str, QueueSpec] | None = None, *, cards: int = 2, **more: Any) -> None:
        super().__init__(OPEN if specs is None else specs, nodes=(cards,), **more)
        self.submit_made("b0", 100, by="job", queue="blue")
        assert self.run(after=1.0) == ["b0"]
        ((_, self.bad),) = self.picture.holdings.of("b0")
        self.wear(self.bad, count=cards)
        self.consolidation.anybody(now=self.now)

    def lies(self, uid: str) -> list[str]:
        """On which cards a pod lies."""
        return sorted(gpu for _, gpu in self.picture.holdings.of(uid))


# --- an owner that comes after somebody was moved --------------------------------------------------------------------
def test_an_owner_gets_what_is_kept_for_a_borrower_s_next_pod() -> None:
    """The card would stand idle for one that is not let in before the owner is."""
    stage = Board()
    assert stage.consolidate(after=AN_HOUR) == ["b0"]
    stage.evict(grace=GRACE)
    stage.queues.queues_seen(OWNED)
    for uid in ("k0", "k1"):
        stage.submit(uid, 100, queue="k")
    assert len(stage.run(after=1.0)) == 1
    stage.gone("b0")
    # What fails is taken once it is known that nobody has borrowed what is sound.
    assert stage.run(after=1.0) == []
    assert stage.decide() == []
    assert len(stage.run(after=1.0)) == 1
    assert len(stage.queues.register.refuges) == 0


def test_who_was_not_asked_yet_stays_when_an_owner_wants_the_room() -> None:
    """It was chosen in the very second."""
    stage = Board()
    assert stage.consolidate(after=AN_HOUR) == ["b0"]
    stage.queues.queues_seen(OWNED)
    stage.submit("k0", 100, queue="k")
    stage.submit("k1", 100, queue="k")
    stage.run(after=1.0)
    assert stage.evict() == []


def test_room_that_no_owner_needs_is_kept_on() -> None:
    """There is enough beside it for all that is demanded."""
    stage = Board(cards=3)
    assert stage.consolidate(after=AN_HOUR) == ["b0"]
    stage.evict(grace=GRACE)
    stage.queues.queues_seen({"k": queue(guarantee=100), "blue": queue()})
    stage.submit("k0", 100, queue="k")
    assert stage.run(after=1.0) == ["k0"]
    stage.gone("b0")
    stage.submit("other", 100, queue="k", notes={"gpu-uuid": f"!{stage.bad}"})
    assert stage.run(after=1.0) == []
    stage.submit_made("b1", 100, by="job", queue="blue")
    assert stage.run(after=1.0) == ["b1"]
    assert stage.lies("b1") != [stage.bad]


def test_room_inside_the_guarantee_of_who_was_moved_is_no_other_owner_s() -> None:
    """Its next pod takes its own, whoever else demands theirs."""
    stage = Board({"k": queue(guarantee=100), "blue": queue(guarantee=100)})
    assert stage.consolidate(after=AN_HOUR) == ["b0"]
    stage.evict(grace=GRACE)
    stage.submit("k0", 100, queue="k")
    assert stage.run(after=1.0) == []
    stage.gone("b0")
    stage.submit_made("b1", 100, by="job", queue="blue")
    assert stage.run(after=1.0) == ["b1"]
    assert stage.decide() == []
    assert stage.run(after=1.0) == ["k0"]
    assert stage.lies("k0") == [stage.bad]


IN_PIECES = {"k": queue(guarantee=100), "blue": queue(), "grey": queue()}


class InPieces(Board):
    """Of three cards one fails; of a pod that lies there a tenth is kept of the next, and the third is half in use."""

    def __init__(self, specs: dict[str, QueueSpec]) -> None:
        ReclaimStage.__init__(self, {name: queue() for name in specs}, nodes=(3,))
        self.submit_made("b0", 10, by="job", queue="blue")
        assert self.run(after=1.0) == ["b0"]
        ((_, self.bad),) = self.picture.holdings.of("b0")
        self.wear(self.bad, count=3)
        self.consolidation.anybody(now=self.now)
        assert self.consolidate(after=AN_HOUR) == ["b0"]
        (self.kept,) = self.queues.register.refuges
        assert self.evict(grace=GRACE) == ["b0"]
        (self.third,) = {gpu.uuid for gpu in gpus("n0", 3)} - {self.bad, *self.kept.claims}
        self.submit("g0", 50, queue="grey", notes={"gpu-uuid": self.third})
        assert self.run(after=1.0) == ["g0"]
        self.queues.queues_seen(specs)

    def owner_comes(self, uid: str = "k0", *, compute: int = 100) -> list[str]:
        """It wants a card that is well. Who is let in."""
        self.submit(uid, compute, queue="k", notes={"gpu-uuid": f"!{self.bad}"})
        return self.run(after=1.0)

    def told(self) -> str:
        """Why nobody goes for the one that waits."""
        (waiter,) = (one for one in self.queues.waiting() if one.uid[0] == "k")
        return self.queues.register.standoffs.of(waiter)


def test_a_tenth_of_a_card_is_not_kept_from_an_owner_that_wants_it_whole() -> None:
    """There is enough free in sum. Rather than that somebody goes who runs nobody comes."""
    stage = InPieces(IN_PIECES)
    assert stage.owner_comes() == []
    (clearing,) = stage.decide()
    assert not clearing.victims
    assert clearing.gives_up == {"b0"}
    assert stage.run(after=1.0) == ["k0"]
    assert len(stage.queues.register.refuges) == 0
    # Who comes in its place lies where there is room.
    stage.gone("b0")
    stage.submit_made("b1", 10, by="job", queue="blue")
    assert stage.run(after=1.0) == ["b1"]


def test_what_is_kept_is_kept_on_where_owners_have_room_beside_it() -> None:
    """One wants nine tenths of that card, the other the free half."""
    stage = InPieces({**IN_PIECES, "k": queue(guarantee=140)})
    assert stage.owner_comes(compute=90) == ["k0"]
    assert stage.owner_comes("k1", compute=50) == ["k1"]
    stage.decide()
    assert [one.uid for one in stage.queues.register.refuges] == ["b0"]


def test_what_lies_inside_a_guarantee_is_kept_and_the_owner_is_told_until_when() -> None:
    """Its next pod has as much right to be there."""
    stage = InPieces({**IN_PIECES, "blue": queue(guarantee=10), "grey": queue(guarantee=50)})
    assert stage.owner_comes() == []
    assert stage.decide() == []
    assert [one.uid for one in stage.queues.register.refuges] == ["b0"]
    until = second_time(stage.wall + stage.kept.until - stage.now)
    words = f"room is kept until {until} at the latest for the next of 1 pod of queue blue that was moved"
    assert stage.told().endswith(words)


def test_an_owner_is_told_of_no_room_that_would_be_given_up_for_it() -> None:
    """It is not what keeps it out: the card that it wants is half in use, by who is as much in its right."""
    stage = InPieces({**IN_PIECES, "grey": queue(guarantee=50)})
    stage.submit("k0", 100, queue="k", notes={"gpu-uuid": stage.third})
    assert stage.run(after=1.0) == []
    assert stage.decide() == []
    assert "room is kept" not in stage.told()


@pytest.mark.parametrize("seed", range(400 if os.environ.get("ALIQUOT_SOAK") else 30))
def test_no_owner_waits_longer_than_the_grace_though_others_are_moved_off_cards_that_fail(seed: int) -> None:
    """In random worlds, whenever it comes and whenever its queue is guaranteed anything."""
    luck = Random(seed)
    count = luck.choice((2, 3, 4))
    stage = ReclaimStage({"k": queue(), "blue": queue(), "grey": queue()}, nodes=(count,))
    asks = {f"b{number}": luck.choice((30, 50, 100)) for number in range(luck.randint(1, count))}
    for uid, compute in asks.items():
        stage.submit_made(uid, compute, by=f"job-{uid}", queue=luck.choice(("blue", "grey")))
        stage.run(after=1.0)
    for uid in asks:
        if not stage.pods[uid].spec.node_name:
            stage.gone(uid)
    cards = [failing(card) if luck.random() < 0.4 else card for card in gpus("n0", count)]
    stage.picture.node_seen(make_node("n0", cards))
    stage.now += AN_HOUR
    stage.consolidation.anybody(now=stage.now)
    late, twice = _owners_come(stage, asks, luck, count)
    assert (late, twice) == ([], [])


def _owners_come(stage: ReclaimStage, asks: dict[str, int], luck: Random, count: int) -> tuple[list[str], list[str]]:
    """Which owners were not in by then, and who was asked twice."""
    comes, gone_at = luck.randint(0, 60), dict[str, int]()
    owners = [f"k{number}" for number in range(count)]
    for second in range(comes + GRACE + 3):
        stage.run(after=1.0)
        if second == comes:
            stage.queues.queues_seen({"k": queue(guarantee=100 * count), "blue": queue(), "grey": queue()})
            for uid in owners:
                stage.submit(uid, 100, queue="k")
        for uid in [uid for uid, at in gone_at.items() if at == second]:
            _comes_again(stage, uid, asks, luck)
        stage.decide()
        stage.consolidate()
        gone_at |= dict.fromkeys(stage.evict(grace=GRACE), second + GRACE)
    stage.run(after=1.0)
    late = [uid for uid in owners if not stage.pods[uid].spec.node_name]
    return late, sorted({uid for uid in stage.evicted if stage.evicted.count(uid) > 1})


def _comes_again(stage: ReclaimStage, uid: str, asks: dict[str, int], luck: Random) -> None:
    pod = stage.pods[uid]
    stage.gone(uid)
    if luck.random() < 0.7:
        asks[f"{uid}r"] = asks[uid]
        owner, whose = pod.metadata.owner_references[0].name, pod.metadata.labels["aliquot.dev/queue"]
        stage.submit_made(f"{uid}r", asks[uid], by=owner, queue=whose)


# --- who is not moved ------------------------------------------------------------------------------------------------
NOT_LET_IN = "its queue would not let in who comes in its place"
DEMANDED = "what is free of healthy GPUs is demanded by, or kept for, others who are guaranteed it"


def test_a_borrower_stays_while_an_owner_waits_for_what_is_free() -> None:
    """The owner's queue takes nothing back; who comes in the place of one that went would stand back for it."""
    stage = Board({"k": queue(guarantee=200, preemption=Preemption(reclaim="Never")), "blue": queue()})
    stage.submit("k0", 200, queue="k")
    stage.run(after=1.0)
    assert stage.consolidate(after=AN_HOUR) == []
    assert stage.consolidation.staying == {"b0": NOT_LET_IN}


def test_nobody_is_moved_for_one_that_waits_while_an_owner_would_keep_its_next_pod_out() -> None:
    """A half would make way for a whole card; what it would come to is an owner's who waits."""
    found = [_moved_for_a_whole_card(owner_waits=waits) for waits in (False, True)]
    assert [len(moved) for moved in found] == [1, 0]


def _moved_for_a_whole_card(*, owner_waits: bool) -> Sequence[str]:
    """Of three cards two are half free, and the third, on which alone the owner may lie, is not."""
    never = Preemption(reclaim="Never")
    specs = {"k": queue(guarantee=50, preemption=never), "red": queue(guarantee=100), "blue": queue()}
    stage = ReclaimStage(specs, nodes=(3,), moves_per_hour=10)
    stage.consolidate()
    third = gpus("n0", 3)[2].uuid
    stage.submit("there", 100, queue="blue", notes={"gpu-uuid": third})
    for number in range(2):
        stage.submit_made(f"half{number}", 50, by=f"job{number}", queue="blue", notes={"placement": "spread"})
        stage.run(after=1.0)
    if owner_waits:
        stage.submit("k0", 50, queue="k", notes={"gpu-uuid": third})
    stage.submit("whole", 100, queue="red", notes={"gpu-uuid": f"!{third}"})
    stage.run()
    return stage.consolidate(after=60_000.0)


def test_a_borrower_moves_to_a_healthy_card_that_nobody_demands() -> None:
    """Though it is guaranteed to somebody: who wants it takes it back."""
    stage = Board({"k": queue(guarantee=100), "blue": queue()})
    assert stage.consolidate(after=AN_HOUR) == ["b0"]


@pytest.mark.parametrize("cards", [2, 3])
def test_a_borrower_does_not_take_the_last_healthy_card_that_is_kept_idle(cards: int) -> None:
    """Its owner lends nothing, and will want it healthy; another one that fails is free, or there is none."""
    stage = Board({"k": queue(guarantee=100, lend=0), "blue": queue()}, cards=cards)
    healthy = gpus("n0", cards)[-1].uuid
    worn = [card if card.uuid == healthy else failing(card) for card in gpus("n0", cards)]
    stage.picture.node_seen(make_node("n0", worn))
    assert stage.consolidate(after=AN_HOUR) == []
    assert stage.consolidation.staying == {"b0": DEMANDED}
    stage.queues.queues_seen(OPEN)
    assert stage.consolidate(after=AN_HOUR) == ["b0"]


def test_of_two_borrowers_one_goes_where_the_second_healthy_card_is_kept_idle() -> None:
    """What the first takes is not free for the second, though both would go at once."""
    stage = Board({"k": queue(guarantee=100, lend=0), "blue": queue()}, cards=4)
    stage.submit_made("b1", 100, by="other", queue="blue")
    assert stage.run(after=1.0) == ["b1"]
    bad = {stage.bad, *stage.lies("b1")}
    worn = [failing(card) if card.uuid in bad else card for card in gpus("n0", 4)]
    stage.picture.node_seen(make_node("n0", worn))
    assert len(stage.consolidate(after=AN_HOUR)) == 1


@pytest.mark.parametrize(("guarantee", "moved"), [(200, ["b0"]), (60, [])])
def test_who_came_first_is_inside_the_guarantee_though_its_queue_has_borrowed(guarantee: int, moved: list[str]) -> None:
    """Beside an owner that waits for a card of its own choice; of 210 % that are used the last 10 % are borrowed."""
    specs = {"k": queue(guarantee=100), "blue": queue(guarantee=guarantee)}
    stage = Board(specs, cards=4)
    for uid, compute in (("b1", 100), ("b2", 10)):
        stage.submit_made(uid, compute, by=f"job-{uid}", queue="blue")
        assert stage.run(after=1.0) == [uid]
    stage.submit("full", 90, queue="k", notes={"gpu-uuid": "GPU-n0-2"})
    assert stage.run(after=1.0) == ["full"]
    ((_, third),) = stage.picture.holdings.of("b2")
    assert third == "GPU-n0-2"
    stage.submit("k0", 10, queue="k", notes={"gpu-uuid": "GPU-n0-2"})
    stage.run(after=1.0)
    assert stage.consolidate(after=AN_HOUR) == moved


def test_whoever_is_inside_its_own_guarantee_moves_to_the_last_healthy_card() -> None:
    """It has as much right to it as any owner."""
    stage = Board({"k": queue(guarantee=100), "blue": queue(guarantee=100)})
    assert stage.consolidate(after=AN_HOUR) == ["b0"]


# --- how often -------------------------------------------------------------------------------------------------------
def test_whose_pods_come_late_is_left_alone_each_time_for_twice_as_long() -> None:
    """Somebody else had its room by then, and it lies on the same card again."""
    stage = Board()
    assert stage.consolidate(after=AN_HOUR) == ["b0"]
    _comes_too_late(stage, "b0", "b1")
    assert stage.consolidate(after=A_PAUSE - 70.0) == []
    told = "one of its controller was moved lately, and it is left alone for a while"
    assert stage.consolidation.staying == {"b1": told}
    assert stage.consolidate(after=70.0) == ["b1"]
    _comes_too_late(stage, "b1", "b2")
    assert stage.consolidate(after=2 * A_PAUSE - 70.0) == []
    assert stage.consolidate(after=70.0) == ["b2"]


def _comes_too_late(stage: Board, uid: str, again: str) -> None:
    for each in stage.evict():
        stage.gone(each)
    stage.run(after=300.0)
    stage.submit(f"thief-{uid}", 100, queue="k", notes={"gpu-uuid": f"!{stage.bad}"})
    stage.run(after=1.0)
    stage.submit_made(again, 100, by="job", queue="blue")
    assert stage.run(after=1.0) == [again]
    stage.gone(f"thief-{uid}")
    # As the centre looks, each second.
    stage.consolidation.anybody(now=stage.now)
    assert stage.lies(again) == [stage.bad]
