"""No owner gets a GPU that fails while one that has borrowed sits on a sound one that could be had back."""

from __future__ import annotations

import os
from random import Random
from typing import Literal

import pytest

from aliquot_scheduler.queues.letting_in.sound_first import WHY
from aliquot_scheduler.queues.said.spec import Preemption
from aliquot_scheduler.reclaim.residents import Budget
from support.centre import failing, gpus, make_node
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage

GRACE = 30
AN_HOUR = 3_600.0
WORLDS = range(400 if os.environ.get("ALIQUOT_SOAK") else 40)


class Board(ReclaimStage):
    """Two cards; of a queue that may borrow a pod lies on the sound one, and nobody on the one that fails."""

    def __init__(
        self, *, reclaim: Literal["", "Never"] = "", min_run: int | None = None, blue: int | None = None
    ) -> None:
        lent = Preemption(min_run_seconds=min_run)
        guaranteed = queue(guarantee=100, preemption=Preemption(reclaim=reclaim))
        super().__init__({"k": guaranteed, "blue": queue(guarantee=blue, preemption=lent)}, nodes=(2,))
        self.wear("GPU-n0-0")
        self.submit_made("b0", 100, by="job", queue="blue")
        assert self.run(after=1.0) == ["b0"]
        assert self.lies("b0") == ["GPU-n0-1"]

    def lies(self, uid: str) -> list[str]:
        """On which cards a pod lies."""
        return sorted(gpu for _, gpu in self.picture.holdings.of(uid))


def test_an_owner_waits_until_a_borrower_has_left_it_the_sound_card() -> None:
    """Though the one that fails is free; whoever borrows lies there next."""
    stage = Board()
    stage.submit("k0", 100, queue="k")
    assert stage.run(after=1.0) == []
    (waiter,) = stage.queues.waiting()
    assert WHY in stage.queues.notice(waiter).message
    assert [victim.uid for clearing in stage.decide(after=1.0) for victim in clearing.victims] == ["b0"]
    assert stage.evict(grace=GRACE) == ["b0"]
    assert stage.run(after=GRACE - 1.0) == []
    stage.gone("b0")
    stage.submit_made("b1", 100, by="job", queue="blue")
    assert sorted(stage.run(after=1.0)) == ["b1", "k0"]
    assert (stage.lies("k0"), stage.lies("b1")) == (["GPU-n0-1"], ["GPU-n0-0"])


@pytest.mark.parametrize("why", ["it has not run for long", "a budget", "it is inside its own guarantee"])
def test_an_owner_takes_what_fails_as_soon_as_it_is_known_that_nobody_goes(why: str) -> None:
    """A look, and no longer."""
    stage = Board(
        min_run=864_000 if why == "it has not run for long" else None,
        blue=100 if why == "it is inside its own guarantee" else None,
    )
    budgets = [Budget(pods=frozenset({"b0"}), allowed=0)] if why == "a budget" else []
    stage.submit("k0", 100, queue="k")
    assert stage.run(after=1.0) == []
    assert stage.decide(after=1.0, budgets=budgets) == []
    assert stage.run(after=0.1) == ["k0"]
    assert stage.lies("k0") == ["GPU-n0-0"]


def test_of_owners_who_come_at_once_all_take_what_fails_after_the_same_look() -> None:
    """None of them is looked at twice, so nobody goes for one that has room; nor does each wait for the one before."""
    stage = ReclaimStage({"k": queue(guarantee=400), "blue": queue()}, nodes=(4,))
    stage.submit_made("b0", 50, by="job", queue="blue")
    assert stage.run(after=1.0) == ["b0"]
    stage.picture.node_seen(make_node("n0", [failing(card) for card in gpus("n0", 4)]))
    for number in range(4):
        stage.submit(f"k{number}", 100, queue="k")
    assert stage.run(after=1.0) == []
    assert stage.decide() == []
    assert sorted(stage.run(after=1.0)) == ["k0", "k1", "k2"]
    assert stage.victims() == ["b0"]


def test_what_was_found_for_one_owner_holds_for_none_that_comes_later() -> None:
    """By then somebody else may have left, or have run for long enough."""
    stage = ReclaimStage({"k": queue(guarantee=200), "blue": queue()}, nodes=(3,))
    stage.picture.node_seen(make_node("n0", [failing(card) for card in gpus("n0", 3)]))
    stage.submit("k0", 100, queue="k")
    stage.run(after=1.0)
    stage.decide()
    assert stage.run(after=1.0) == ["k0"]
    stage.submit("k1", 100, queue="k")
    assert stage.run(after=2.0) == []
    stage.decide()
    assert stage.run(after=1.0) == ["k1"]


def test_an_owner_waits_no_longer_than_a_few_seconds_where_nobody_looks() -> None:
    """As where its queue takes nothing back."""
    stage = Board(reclaim="Never")
    stage.submit("k0", 100, queue="k")
    assert stage.run(after=1.0) == []
    assert stage.run(after=3.9) == []
    stage.decide()
    assert stage.run(after=1.1) == ["k0"]


def test_who_would_be_shown_to_an_autoscaler_takes_what_fails_at_once() -> None:
    """No node is brought for one that has room."""
    stage = Board()
    stage.queues.queues_seen({"k": queue(guarantee=100, autoscale=True), "blue": queue()})
    stage.submit("k0", 100, queue="k")
    assert stage.run(after=1.0) == ["k0"]
    assert stage.lies("k0") == ["GPU-n0-0"]


def test_who_borrows_takes_what_fails_at_once() -> None:
    """It has no right to anything else."""
    stage = Board()
    stage.submit_made("b1", 100, by="other", queue="blue")
    assert stage.run(after=1.0) == ["b1"]
    assert stage.lies("b1") == ["GPU-n0-0"]


def test_an_owner_of_two_cards_gets_two_sound_ones_where_one_that_fails_is_free() -> None:
    """Of three cards two are lent, and fewer would have to go if it took the third."""
    stage = ReclaimStage({"k": queue(guarantee=200), "blue": queue()}, nodes=(3,))
    stage.wear("GPU-n0-0", count=3)
    for uid in ("b0", "b1"):
        stage.submit_made(uid, 100, by=f"job-{uid}", queue="blue")
        stage.run(after=1.0)
    stage.submit("k0", 200, queue="k")
    stage.run(after=1.0)
    assert stage.victims(after=1.0) == ["b0", "b1"]


@pytest.mark.parametrize("bad", ["GPU-n0-0", "GPU-n0-2"])
def test_an_owner_of_two_cards_waits_whichever_of_those_that_are_free_fails(bad: str) -> None:
    """It has room on both; one that has borrowed lies on the third."""
    stage = ReclaimStage({"k": queue(guarantee=200), "blue": queue()}, nodes=(3,))
    stage.submit_made("b0", 100, by="job", queue="blue", notes={"gpu-uuid": "GPU-n0-1"})
    assert stage.run(after=1.0) == ["b0"]
    stage.wear(bad, count=3)
    stage.submit("k0", 200, queue="k")
    assert stage.run(after=1.0) == []
    assert stage.victims(after=1.0) == ["b0"]


@pytest.mark.parametrize("after", range(1, 13))
def test_an_owner_waits_anew_for_a_sound_card_where_room_is_made_no_more(after: int) -> None:
    """However long it has waited by then: another one who has borrowed goes, and not what fails to the owner."""
    stage = ReclaimStage({"k": queue(guarantee=100), "blue": queue()}, nodes=(3,))
    stage.wear("GPU-n0-0", count=3)
    for uid, card in (("b0", "GPU-n0-1"), ("b1", "GPU-n0-2")):
        stage.submit_made(uid, 100, by=f"job-{uid}", queue="blue", notes={"gpu-uuid": card})
        stage.run(after=1.0)
    stage.submit("k0", 100, queue="k")
    asked = list[str]()
    for second in range(after + 2):
        assert stage.run(after=1.0) == []
        asked += [victim.uid for clearing in stage.decide() for victim in clearing.victims]
        if second == after:
            stage.reclaim.refused(stage.queues.register.inside.bound[asked[0]], now=stage.now)
    assert sorted(asked) == ["b0", "b1"]


@pytest.mark.parametrize("seed", WORLDS)
def test_whoever_comes_when_an_owner_lies_on_no_card_that_fails_while_a_borrower_lies_on_a_sound_one(seed: int) -> None:
    """In random worlds, in which pods are moved off what fails as well; and nobody is asked twice in an hour."""
    luck = Random(seed)
    count = luck.choice((2, 3, 4))
    owned = luck.randint(1, count) * 100
    stage = ReclaimStage({"k": queue(guarantee=owned), "blue": queue()}, nodes=(count,))
    for number in range(luck.randint(1, 2 * count)):
        stage.submit_made(f"b{number}", luck.choice((30, 50, 100)), by=f"job{number}", queue="blue")
        stage.run(after=1.0)
    cards = gpus("n0", count)
    bad = {card.uuid for card in luck.sample(cards, luck.randint(1, max(1, count - owned // 100)))}
    stage.picture.node_seen(make_node("n0", [failing(card) if card.uuid in bad else card for card in cards]))
    stage.now += AN_HOUR
    _owners_come(stage, luck, owners=min(owned // 100, count - len(bad)), bad=bad)
    assert len(stage.evicted) == len({*stage.evicted})


def _owners_come(stage: ReclaimStage, luck: Random, *, owners: int, bad: set[str]) -> None:
    """One after the other, each a whole card; they are in when the grace is over."""
    gone_at = dict[str, int]()
    comes = sorted(luck.randint(0, 90) for _ in range(owners))
    for second in range(comes[-1] + GRACE + 8 if comes else 0):
        stage.run(after=1.0)
        for number, at in enumerate(comes):
            if at == second:
                stage.submit(f"k{number}", 100, queue="k")
        for uid in [uid for uid, at in gone_at.items() if at == second]:
            _comes_again(stage, uid)
        stage.decide()
        stage.consolidate()
        gone_at |= dict.fromkeys(stage.evict(grace=GRACE), second + GRACE)
    for number in range(owners):
        lies = {gpu for _, gpu in stage.picture.holdings.of(f"k{number}")}
        assert lies, f"k{number} waits"
        assert not lies & bad, f"k{number} lies on what fails"


def _comes_again(stage: ReclaimStage, uid: str) -> None:
    pod = stage.pods[uid]
    stage.gone(uid)
    compute = int(pod.spec.containers[0].resources.limits["aliquot.dev/compute"])
    owner, whose = pod.metadata.owner_references[0].name, pod.metadata.labels["aliquot.dev/queue"]
    stage.submit_made(f"{uid}r", compute, by=owner, queue=whose)
