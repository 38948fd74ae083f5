"""Demanded guarantees beside reservations: room is made by those who borrow, and what is reserved stays so."""

from __future__ import annotations

import pytest

from aliquot_scheduler.queues.said.spec import Preemption, QueueSpec, Quota
from support.centre import gpus, make_node, sick
from support.lent_scenes import Scene, expect, stage_of
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage

CARD = 80_000
HELD = queue(guarantee=100, lend=0)
MEMORY = QueueSpec(memory=Quota(guarantee=CARD), namespaces=("*",))


WHOLE = (100, None)
ROWS = {
    "by compute alone": Scene(
        queues={"a": queue(guarantee=100), "b": queue(), "k": HELD},
        runs={"b0": WHOLE, "b1": WHOLE, "b2": WHOLE},
        comes={"a0": WHOLE},
        gone=("b2",),
        let_in=("a0",),
    ),
    "of both": Scene(
        queues={"a": queue(guarantee=100, memory=Quota(guarantee=CARD)), "b": queue(), "k": HELD},
        runs={"b0": WHOLE, "b1": WHOLE, "b2": WHOLE},
        comes={"a0": WHOLE},
        gone=("b2",),
        let_in=("a0",),
    ),
    "two of one guarantee": Scene(
        queues={"a": queue(guarantee=200), "b": queue(), "k": HELD},
        runs={"b0": WHOLE, "b1": WHOLE, "b2": WHOLE},
        comes={"a0": WHOLE, "a1": WHOLE, "a2": WHOLE},
        gone=("b1", "b2"),
        let_in=("a0", "a1"),
    ),
    "of a guarantee above": Scene(
        queues={"org": queue(guarantee=100), "a": queue("org"), "b": queue(), "k": HELD},
        runs={"b0": WHOLE, "b1": WHOLE, "b2": WHOLE},
        comes={"a0": WHOLE},
        gone=("b2",),
        let_in=("a0",),
    ),
    "memory that goes with the guarantee above": Scene(
        queues={"org": queue(guarantee=100), "a": queue("org", guarantee=50), "b": queue(), "k": HELD},
        runs={"b0": (60, CARD), "b1": (60, CARD), "b2": (60, CARD)},
        comes={"a0": (50, 60_000)},
        gone=("b2",),
        let_in=("a0",),
    ),
    "one lacks a limit, and one what all have": Scene(
        queues={
            "org": queue(limit=100),
            "red": queue("org", guarantee=100),
            "blue": queue("org"),
            "a": queue(guarantee=100),
            "b": queue(),
            "k": HELD,
        },
        runs={"blue0": WHOLE, "b0": WHOLE, "b1": WHOLE},
        comes={"red0": WHOLE, "a0": WHOLE},
        gone=("b1", "blue0"),
        let_in=("a0", "red0"),
    ),
    "under a limit that they share": Scene(
        queues={
            "org": queue(limit=300),
            "a": queue("org", guarantee=100),
            "b": queue("org"),
            "k": queue("org", guarantee=100, lend=0),
            "far": queue(),
        },
        runs={"b0": WHOLE, "b1": WHOLE, "far0": WHOLE},
        comes={"a0": WHOLE},
        # The youngest of all is not under the limit: nothing is gained by its going.
        gone=("b1",),
        let_in=("a0",),
        nodes=(1,) * 6,
    ),
    "nobody goes who is within a guarantee": Scene(
        queues={"a": queue(guarantee=100), "b": queue(guarantee=300), "k": HELD},
        runs={"b0": WHOLE, "b1": WHOLE, "b2": WHOLE},
        comes={"a0": WHOLE},
        gone=(),
        let_in=(),
    ),
    "nobody goes for one that borrows": Scene(
        queues={"a": queue(), "b": queue(), "k": HELD},
        runs={"b0": WHOLE, "b1": WHOLE, "b2": WHOLE},
        comes={"a0": WHOLE},
        gone=(),
        let_in=(),
    ),
    "nobody goes for memory beyond what goes with the guarantee": Scene(
        queues={"a": queue(guarantee=10), "b": queue(), "k": HELD},
        runs={"b0": (60, CARD), "b1": (60, CARD), "b2": (60, CARD)},
        comes={"a0": (10, 40_000)},
        gone=(),
        let_in=(),
    ),
    "memory for compute that is free": Scene(
        queues={"a": queue(guarantee=100), "b": queue(), "k": HELD},
        runs={"b0": (None, CARD), "b1": (None, CARD), "b2": (50, CARD)},
        comes={"a0": WHOLE},
        gone=("b1",),
        let_in=("a0",),
    ),
    "what another guarantee asks for is left to it": Scene(
        queues={"a": queue(guarantee=100), "b": queue(), "k": HELD, "c": MEMORY},
        runs={"b0": WHOLE, "b1": WHOLE, "b2": WHOLE},
        comes={"a0": WHOLE, "c0": (None, CARD)},
        gone=("b1", "b2"),
        let_in=("a0", "c0"),
    ),
    "a reservation that others have is whole again before anybody else comes in": Scene(
        queues={"a": queue(guarantee=100), "b": queue(), "k": HELD},
        runs={"b0": WHOLE, "b1": WHOLE, "b2": WHOLE, "b3": WHOLE},
        comes={"a0": WHOLE},
        gone=("b2", "b3"),
        let_in=("a0",),
    ),
    "all that is not reserved": Scene(
        queues={"a": queue(guarantee=100), "b": queue(), "k": queue(guarantee=300, lend=0)},
        runs={"b0": WHOLE, "b1": WHOLE},
        comes={"a0": WHOLE},
        gone=("b0", "b1"),
        let_in=("a0",),
    ),
    "reserved beyond all there is": Scene(
        queues={"a": queue(guarantee=100), "b": queue(), "k": queue(guarantee=400, lend=0)},
        runs={"b0": WHOLE, "b1": WHOLE, "b2": WHOLE},
        comes={"a0": WHOLE},
        gone=(),
        let_in=(),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_whose_guarantee_is_demanded_gets_it_and_not_what_is_reserved(name: str) -> None:
    """Those who borrow go for it, and nobody for one that is not let in then; the reserved card serves its owner."""
    stage = expect(ROWS[name])
    stage.submit("owner", *WHOLE, queue="k")
    assert stage.run(after=1.0) == ["owner"]


def test_whoever_may_not_be_sent_away_is_waited_for() -> None:
    """The pod is told whose reservation keeps it out; once one of them ends, it is in."""
    firm = {"preemptible": "false"}
    specs = {"a": queue(guarantee=100), "b": queue(guarantee=200), "c": queue(), "k": HELD}
    stage = ReclaimStage(specs)
    for number in range(2):
        stage.submit(f"b{number}", *WHOLE, queue="b", notes=firm)
    stage.submit("c0", *WHOLE, queue="c")
    assert len(stage.run()) == 3
    stage.queues.queues_seen(specs | {"c": queue(preemption=Preemption(min_run_seconds=36_000 * 9))})
    stage.submit("a0", *WHOLE, queue="a")
    assert stage.run(after=1.0) == []
    assert stage.victims() == []
    notice = stage.queues.notice(stage.queues.waiting()[0])
    assert (notice.reason, notice.message) == (
        "NobodyGoes",
        (
            "it asks 100 % of compute; 100 of 400 % are free, and 100 % is reserved (k 100 %); "
            "inside the guarantee of queue a; others have borrowed 100 % of compute (c 100 %); nobody goes for it: "
            "1 pod has not run for minRunSeconds (it may go at 2026-11-24T18:00:03Z)"
        ),
    )
    stage.end("c0")
    assert stage.run(after=1.0) == ["a0"]


def test_who_waives_what_was_lent_sends_nobody_away_for_a_reservation() -> None:
    """It waits until others end."""
    waives = queue(guarantee=100, preemption=Preemption(reclaim="Never"))
    stage = ReclaimStage({"a": waives, "b": queue(), "k": HELD})
    for number in range(3):
        stage.submit(f"b{number}", *WHOLE, queue="b")
    assert len(stage.run()) == 3
    stage.submit("a0", *WHOLE, queue="a")
    assert stage.run(after=1.0) == []
    assert stage.victims() == []
    stage.end("b0")
    assert stage.run(after=1.0) == ["a0"]


def test_room_that_is_made_on_an_idle_card_does_not_count_twice() -> None:
    """It is kept where nobody has to go, and its victim leaves another card: one more goes for the next, not two."""
    stage = stage_of(ROWS["two of one guarantee"])
    stage.submit("a0", *WHOLE, queue="a")
    assert stage.victims() == ["b2"]
    stage.submit("a1", *WHOLE, queue="a")
    assert stage.victims(after=1.0) == ["b1"]
    for uid in stage.evict():
        stage.gone(uid)
    assert sorted(stage.run(after=1.0)) == ["a0", "a1"]


def test_what_is_too_little_for_a_group_may_do_for_one_behind_it() -> None:
    """Of two cards that a pair needs one can be had: the pair waits, and a single pod of the same queue gets it."""
    mine = queue(guarantee=100)
    stage = ReclaimStage({"a": queue(guarantee=200), "b": mine, "c": mine, "d": queue(), "k": HELD}, nodes=(5,))
    for uid in ("b0", "c0", "d0", "d1"):
        firm = {"preemptible": "false"} if uid in ("b0", "c0") else {}
        stage.submit(uid, *WHOLE, queue=uid[0], notes=firm)
    assert len(stage.run()) == 4
    stage.picture.node_seen(make_node("n0", [*gpus("n0", 4), sick(gpus("n0", 5)[4])]))
    for number in range(2):
        stage.submit(f"g{number}", *WHOLE, queue="a", group="pair", notes={"group-size": "2"})
    stage.submit("a0", *WHOLE, queue="a")
    assert stage.reclaimed() == ["d0", "d1"]
    assert stage.run(after=1.0) == ["a0"]


@pytest.mark.parametrize("cordoned", [False, True])
def test_who_leaves_nothing_behind_is_not_sent_away(*, cordoned: bool) -> None:
    """The youngest runs on a card that is sick, or on a node to which nothing may be bound: an older one goes."""
    small, kept = (100, 1000), queue(guarantee=100, lend=0, memory=Quota(guarantee=0))
    stage = ReclaimStage({"a": queue(guarantee=100), "b": queue(), "k": kept}, nodes=(1,) * 4)
    for number in range(3):
        stage.submit(f"b{number}", *small, queue="b")
        assert stage.run(after=1.0) == [f"b{number}"]
    ((node, _),) = stage.picture.holdings.of("b2")
    cards = gpus(node, 1)
    stage.picture.node_seen(make_node(node, cards if cordoned else [sick(cards[0])], cordoned=cordoned))
    stage.submit("a0", *small, queue="a")
    assert stage.reclaimed() == ["b1"]
    assert stage.run(after=1.0) == ["a0"]


def test_of_a_limit_as_much_is_given_back_as_is_borrowed() -> None:
    """Two go for a pair, and who lent the rest keeps exactly what it is guaranteed."""
    specs = {"org": queue(limit=400), "red": queue("org", guarantee=200), "blue": queue("org", guarantee=200)}
    stage = ReclaimStage(specs, nodes=(8,))
    for number in range(4):
        stage.submit(f"blue{number}", *WHOLE, queue="blue")
    assert len(stage.run()) == 4
    for number in range(2):
        stage.submit(f"red{number}", *WHOLE, queue="red", group="pair", notes={"group-size": "2"})
    assert stage.reclaimed() == ["blue2", "blue3"]
    assert sorted(stage.run(after=1.0)) == ["red0", "red1"]


def test_who_goes_for_a_limit_leaves_a_card_too() -> None:
    """The youngest of all is not under the limit: its card is not needed, since one is left there anyway."""
    specs = {"org": queue(limit=200), "red": queue("org", guarantee=100), "blue": queue("org"), "green": queue()}
    stage = ReclaimStage(specs)
    for uid in ("blue0", "blue1", "green0", "green1"):
        stage.submit(uid, *WHOLE, queue=uid[:-1])
        assert stage.run(after=1.0) == [uid]
    stage.submit("red0", *WHOLE, queue="red")
    assert stage.reclaimed() == ["blue1"]
    assert stage.run(after=1.0) == ["red0"]


def test_who_goes_for_a_card_may_leave_what_all_lack() -> None:
    """A pair would be the lesser harm, and can't be spared once it goes: the one on the card is enough for both."""
    stage = ReclaimStage({"a": queue(guarantee=30, memory=Quota(guarantee=24_000)), "b": queue(), "k": HELD})
    for number in range(2):
        stage.submit(f"b{number}", 80, 1000, queue="b")
        stage.submit(f"g{number}", 10, 1000, queue="b", group="pair", notes={"group-size": "2"})
    stage.submit("b2", 100, 1000, queue="b")
    while stage.run(after=1.0):
        pass
    assert stage.used("b")[0] == 280
    ((_, gpu),) = stage.picture.holdings.of("b2")
    stage.submit("a0", 30, 1000, queue="a", notes={"gpu-uuid": gpu})
    assert stage.reclaimed() == ["b2"]
    assert stage.run(after=1.0) == ["a0"]
