"""Pods that are never to be evicted: how much of each dimension may be given for good, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from aliquot_scheduler.queues.charged.ledger import Charge, Ledger
from aliquot_scheduler.queues.said.dues import Hardware
from aliquot_scheduler.queues.said.spec import ModelQuota, QueueSpec, Quota
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY, ROOT, plant
from support.centre import gpus, make_node
from support.queue_stage import Stage, queue
from support.reclaim_stage import ReclaimStage

FIRM = {"preemptible": "false"}
# Four cards of 80,000 MiB, of which two are H100 and two A100.
CARD = 80_000
CAPACITY = (400, 4 * CARD, 200, 2 * CARD, 200, 2 * CARD)
A100, H100 = "*A100*", "*H100*"
HARDWARE = Hardware(
    largest={"": CARD, A100: CARD, H100: CARD},
    there={"": (400, 4 * CARD), A100: (200, 2 * CARD), H100: (200, 2 * CARD)},
    kinds={"": frozenset({0, 1}), A100: frozenset({0}), H100: frozenset({1})},
)


def of_model(name: str, **compute: Any) -> dict[str, ModelQuota]:
    """A quota of the compute of one model."""
    return {name: ModelQuota(compute=Quota(**compute))}


# What goes with each in compute, memory, and both again of A100 and of H100.
DUES: dict[str, tuple[QueueSpec, tuple[int, ...]]] = {
    "nothing said, nothing due": (QueueSpec(), (0, 0, 0, 0, 0, 0)),
    "two cards' compute bring their memory, of any model": (
        queue(guarantee=200),
        (200, 2 * CARD, 200, 2 * CARD, 200, 2 * CARD),
    ),
    "a tenth of a card's memory brings a tenth of its compute": (
        QueueSpec(memory=Quota(guarantee=8_000)),
        (10, 8_000, 10, 8_000, 10, 8_000),
    ),
    "what is said of memory holds, and be it nothing": (
        queue(guarantee=200, memory=Quota(guarantee=0)),
        (200, 0, 200, 0, 200, 0),
    ),
    "a model alone is due of that model alone": (
        QueueSpec(models=of_model(H100, guarantee=100)),
        (100, CARD, 0, 0, 100, CARD),
    ),
    "a model and all cards are each what is said of them": (
        queue(guarantee=200, models=of_model(H100, guarantee=100)),
        (200, 2 * CARD, 200, 2 * CARD, 100, CARD),
    ),
}


@pytest.mark.parametrize("row", DUES)
def test_what_goes_with_a_guarantee_is_counted_by_the_largest_card(row: str) -> None:
    """Of each dimension of which a queue says nothing, by what it says of the others."""
    spec, due = DUES[row]
    tree = plant({"q": spec, "named": QueueSpec(models={A100: ModelQuota(), H100: ModelQuota()})}, hardware=HARDWARE)
    assert tree.nodes["q"].due[: len(due)] == due


def test_of_two_patterns_for_the_same_cards_one_is_due_what_the_other_is() -> None:
    """A queue that speaks of all A100 is due of the large ones too, which another queue names."""
    kinds = {"": frozenset({0, 1}), A100: frozenset({0, 1}), "*80GB": frozenset({1}), H100: frozenset({2})}
    hardware = Hardware(largest=dict.fromkeys(kinds, CARD), kinds=kinds)
    other = QueueSpec(models={"*80GB": ModelQuota(), H100: ModelQuota()})
    tree = plant({"q": QueueSpec(models=of_model(A100, guarantee=100)), "named": other}, hardware=hardware)
    names = tree.dimensions.names
    due = dict(zip(names, tree.nodes["q"].due, strict=True))
    assert (due[f"compute of {A100}"], due["compute of *80GB"], due[f"compute of {H100}"]) == (100, 100, 0)


def test_memory_alone_does_not_hold_every_card_for_good() -> None:
    """With 8,000 MiB guaranteed no pod of 99 % is let in for good, and one of a tenth of a card is."""
    stage = Stage({"a": queue(memory=Quota(guarantee=8_000)), "b": queue(guarantee=300)}, nodes=(4,))
    stage.submit("large", 99, 1_000, queue="a", notes=FIRM)
    stage.submit("small", 10, 1_000, queue="a", notes=FIRM)
    assert stage.run() == ["small"]
    (large,) = stage.queues.waiting()
    notice = stage.queues.notice(large)
    assert notice.reason == "NeverFits"
    assert "99 % of compute never to be taken back, and queue a is guaranteed 10 %" in notice.message


@pytest.mark.parametrize("memory", [None, 26_915])
def test_a_guarantee_of_compute_alone_is_of_use_for_good(memory: int | None) -> None:
    """Slices that are rounded up, and those of which nobody said how much memory they take, fit in it together."""
    stage = Stage({"a": queue(guarantee=99)}, nodes=(4,), memory=81_559)
    for number in range(4):
        stage.submit(f"p{number}", 33, memory, queue="a", notes=FIRM)
    assert stage.run() == ["p0", "p1", "p2"]


def test_who_is_never_evicted_takes_no_memory_that_is_guaranteed_to_another() -> None:
    """Though its queue is due it: all but one card's memory is another's, and could never be given back to that."""
    specs = {"a": queue(guarantee=200), "b": queue(memory=Quota(guarantee=3 * CARD))}
    stage = Stage(specs, nodes=(4,))
    for number in range(2):
        stage.submit(f"a{number}", 50, CARD, queue="a", notes=FIRM)
    assert stage.run() == ["a0"]
    (other,) = stage.queues.waiting()
    assert stage.queues.notice(other).reason == "OutsideGuarantee"
    # Who may be evicted borrows it as before.
    stage.submit("lent", 50, CARD, queue="a")
    assert stage.run() == ["lent"]


def test_what_is_given_for_good_leaves_room_for_every_guarantee_below_a_limit() -> None:
    """Of a parent's limit of two cards' memory one is guaranteed to b: for good a gets the other one and no more."""
    ledger = Ledger(
        plant(
            {
                "p": queue(memory=Quota(limit=2 * CARD)),
                "a": queue("p", guarantee=200),
                "b": queue("p", memory=Quota(guarantee=CARD)),
            },
            hardware=HARDWARE,
        )
    )
    card = (100, CARD, 0, 0)
    assert ledger.unsure("a", card, capacity=CAPACITY) is None
    ledger.charge("first", Charge(queue="a", amounts=card, firm=True))
    assert ledger.unsure("a", card, capacity=CAPACITY) == ("p", MEMORY)
    # b's own guarantee is no part of that.
    ledger.charge("own", Charge(queue="b", amounts=(0, CARD, 0, 0), firm=True))
    assert ledger.accounts["p"].sure == [200, 2 * CARD, 0, 0]
    ledger.release("first")
    assert ledger.unsure("a", card, capacity=CAPACITY) is None
    assert ledger.unsure("a", card, capacity=(100, CAPACITY[MEMORY])) is None
    assert ledger.unsure("a", card, capacity=(400, CARD)) == (ROOT, MEMORY)


def test_inside_what_is_said_pods_may_stay_for_good_though_cards_are_out() -> None:
    """More is guaranteed than there is at the moment: nobody loses by a pod that lies in its own guarantee."""
    ledger = Ledger(plant({"a": queue(guarantee=300), "b": queue(guarantee=100)}, hardware=HARDWARE))
    assert ledger.unsure("a", (300, 0, 0, 0), capacity=(200, 2 * CARD)) is None
    ledger.charge("all", Charge(queue="a", amounts=(300, 0, 0, 0), firm=True))
    assert ledger.unsure("a", (1, 0, 0, 0), capacity=CAPACITY) == ("a", COMPUTE)


def test_of_a_group_those_count_for_good_who_say_so() -> None:
    """One of three is never to be evicted: a guarantee of one card is enough, and the other two are borrowed."""
    stage = Stage({"a": queue(guarantee=100), "b": queue()}, nodes=(4,))
    notes = {"group-size": "3", "group-min": "3"}
    for uid in ("x0", "x1"):
        stage.submit(uid, 100, queue="a", notes=notes, group="x")
    stage.submit("x2", 100, queue="a", notes={**notes, **FIRM}, group="x")
    assert stage.run() == ["x0", "x1", "x2"]
    stage.submit("second", 1, queue="a", notes=FIRM)
    assert stage.run() == []


def mixed_gang(stage: Stage) -> None:
    """A group of three of whom the first is never to be evicted."""
    notes = {"group-size": "3", "group-min": "3"}
    stage.submit("head", 100, queue="a", notes={**notes, **FIRM}, group="x")
    for number in range(2):
        stage.submit(f"w{number}", 100, queue="a", notes=notes, group="x")
    assert stage.run() == ["head", "w0", "w1"]


def test_one_who_is_never_evicted_guards_none_of_its_group() -> None:
    """The others go as a whole for an owner, and it waits for them where it is; else one percent would guard all."""
    stage = ReclaimStage({"a": queue(guarantee=100), "b": queue(guarantee=300)}, nodes=(4,))
    mixed_gang(stage)
    for number in range(3):
        stage.submit(f"b{number}", 100, queue="b")
    assert stage.run() == ["b0"]
    assert sorted(stage.reclaimed()) == ["w0", "w1"]
    assert "head" in stage.pods
    assert stage.queues.stale_gangs(now=stage.now) == []
    assert stage.queues.stale_gangs(now=stage.now + 1_000.0) == []


def test_of_a_group_that_can_not_run_those_are_sent_back_who_may_be() -> None:
    """It lacks one for good; who is never evicted stays while the others wait as a whole."""
    stage = Stage({"a": queue(guarantee=100), "b": queue()}, nodes=(4,))
    mixed_gang(stage)
    stage.gone("w1")
    assert stage.queues.stale_gangs(now=stage.now) == []
    assert [pod.metadata.uid for pod in stage.queues.stale_gangs(now=stage.now + 1_000.0)] == ["w0"]


def test_a_group_that_is_never_evicted_as_a_whole_is_sent_back_as_a_whole() -> None:
    """Two of them could hold what the other lacks for ever."""
    stage = Stage({"a": queue(guarantee=400)}, nodes=(4,))
    for number in range(3):
        notes = {"group-size": "3", "group-min": "3", **FIRM}
        stage.submit(f"w{number}", 100, queue="a", notes=notes, group="x")
    assert len(stage.run()) == 3
    stage.gone("w2")
    assert stage.queues.stale_gangs(now=stage.now) == []
    assert len(stage.queues.stale_gangs(now=stage.now + 1_000.0)) == 2


def test_what_can_never_be_given_for_good_keeps_nothing_from_others() -> None:
    """All memory is guaranteed to b, so what a asks for good waits in no line; cards that come later are given so."""
    specs = {"a": queue(guarantee=100), "b": queue(memory=Quota(guarantee=4 * CARD)), "c": queue()}
    stage = Stage(specs, nodes=(4,))
    stage.submit("firm", 100, queue="a", notes=FIRM)
    for number in range(4):
        stage.submit(f"c{number}", 100, queue="c")
    assert stage.run() == ["c0", "c1", "c2", "c3"]
    (waiter,) = stage.queues.waiting()
    notice = stage.queues.notice(waiter)
    assert (notice.reason, "others are guaranteed what is left of it" in notice.message) == ("NeverFits", True)
    stage.picture.node_seen(make_node("later", gpus("later", 1)))
    assert stage.run() == ["firm"]


def test_who_may_not_have_a_model_for_good_lies_on_others() -> None:
    """All of that model is guaranteed to another queue; the pod may lie elsewhere, and was told that it never fits."""
    specs = {"a": queue(guarantee=200), "b": QueueSpec(models=of_model(H100, guarantee=200))}
    stage = Stage(specs, nodes=(2, 2), models={0: "NVIDIA H100 80GB HBM3"})
    for number in range(3):
        stage.submit(f"firm{number}", 100, queue="a", notes=FIRM)
    assert stage.run() == ["firm0", "firm1"]
    assert {node for number in range(2) for node, _ in stage.picture.holdings.of(f"firm{number}")} == {"n1"}
