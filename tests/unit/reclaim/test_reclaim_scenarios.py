"""Who has to go for whom: for owners, and for higher priority; and never more than are needed."""

from __future__ import annotations

from typing import Literal

import pytest

from aliquot_scheduler.queues.said.spec import Preemption
from support.centre import gpus, make_node, sick
from support.queue_stage import queue
from support.reclaim_stage import OWNER, ReclaimStage, filled


def test_an_owner_takes_back_what_it_lent() -> None:
    """As much as its guarantee asks for, the youngest first, and no more; then it is let in."""
    stage = ReclaimStage(OWNER)
    filled(stage, "blue", 4)
    for number in range(3):
        stage.submit(f"red{number}", 100, queue="red")
    assert stage.reclaimed() == ["blue2", "blue3"]
    assert sorted(stage.run()) == ["red0", "red1"]
    assert stage.used("red")[0] == 200
    assert stage.victims(after=60.0) == []


def test_nobody_goes_where_there_is_room() -> None:
    """Whoever fits waits for its turn alone."""
    stage = ReclaimStage(OWNER)
    filled(stage, "blue", 3)
    stage.submit("red0", 100, queue="red")
    assert stage.victims() == []


def test_nobody_goes_for_one_that_then_does_not_fit() -> None:
    """Two halves on two cards are no whole card, whoever may be sent away of them."""
    stage = ReclaimStage({"red": queue(guarantee=200), "blue": queue(), "green": queue(guarantee=100)}, nodes=(2,))
    for number in range(2):
        stage.submit(f"green{number}", 50, queue="green", notes={"placement": "spread"})
    stage.run()
    filled(stage, "blue", 2, 50)
    assert {gpu for uid in ("green0", "green1") for _, gpu in stage.picture.holdings.of(uid)} == {
        "GPU-n0-0",
        "GPU-n0-1",
    }
    stage.submit("red0", 100, queue="red")
    assert stage.victims() == []


def test_of_lower_priority_of_the_same_user_goes() -> None:
    """Inside a queue, and no more than is needed; others' pods and equals stay."""
    stage = ReclaimStage({"red": queue(preemption=Preemption(within_queue="SameUser"))}, nodes=(3,))
    stage.submit("low", 100, queue="red")
    stage.submit("equal", 100, queue="red", priority=10)
    stage.submit("other", 100, queue="red", user="else")
    stage.run()
    stage.submit("high", 100, queue="red", priority=10)
    assert stage.reclaimed() == ["low"]
    assert stage.run() == ["high"]


def test_a_limit_is_freed_where_it_was_taken() -> None:
    """Who borrowed under a parent's limit goes for the guarantee there, though cards are free elsewhere."""
    specs = {"org": queue(limit=200), "red": queue("org", guarantee=100), "blue": queue("org"), "green": queue()}
    stage = ReclaimStage(specs)
    filled(stage, "blue", 2)
    filled(stage, "green", 1)
    stage.submit("red0", 100, queue="red")
    assert stage.reclaimed() == ["blue1"]
    assert stage.run() == ["red0"]


def test_what_a_limit_wants_gone_is_not_spared() -> None:
    """The card on which the owner will lie is free already; what is lacking is the limit alone."""
    specs = {"org": queue(limit=200), "red": queue("org", guarantee=100), "blue": queue("org")}
    stage = ReclaimStage(specs)
    filled(stage, "blue", 2)
    stage.submit("red0", 100, queue="red", notes={"gpu-uuid": "GPU-n0-3"})
    assert stage.reclaimed() == ["blue1"]
    assert stage.run() == ["red0"]


def test_the_small_goes_before_the_large() -> None:
    """Though it has run a little longer: what is lost is percent times seconds."""
    stage = ReclaimStage(OWNER, nodes=(2,))
    stage.submit("small", 60, queue="blue")
    stage.submit("large", 100, queue="blue")
    stage.run()
    stage.submit("red0", 50, queue="red")
    assert stage.victims() == ["small"]


def test_whoever_goes_by_itself_is_not_asked() -> None:
    """It was decided that it has to go, and its owner deletes it before it is asked."""
    stage = ReclaimStage(OWNER)
    filled(stage, "blue", 4)
    stage.submit("red0", 100, queue="red")
    assert stage.victims() == ["blue3"]
    stage.leave("blue3")
    assert stage.evict() == []


def test_siblings_share_what_their_parent_is_guaranteed() -> None:
    """None of them is the owner of it, so who has borrowed from both goes, and not the sibling that came first."""
    specs = {"org": queue(guarantee=400), "red": queue("org"), "blue": queue("org"), "green": queue()}
    stage = ReclaimStage(specs)
    filled(stage, "green", 1)
    filled(stage, "blue", 3)
    stage.submit("red0", 100, queue="red")
    assert stage.reclaimed() == ["green0"]
    assert stage.run() == ["red0"]
    stage.submit("red1", 100, queue="red")
    assert stage.victims(after=11.0) == []


def test_whoever_is_never_to_be_evicted_stays() -> None:
    """Whatever others are guaranteed; another goes."""
    specs = {"red": queue(guarantee=200), "blue": queue(guarantee=200)}
    stage = ReclaimStage(specs)
    filled(stage, "blue", 2)
    for number in (2, 3):
        stage.submit(f"blue{number}", 100, queue="blue")
    stage.run()
    stage.submit("firm", 100, queue="blue", notes={"preemptible": "false"})
    for number in range(3):
        stage.submit(f"red{number}", 100, queue="red")
    assert stage.reclaimed() == ["blue2", "blue3"]
    assert not {"firm"} & set(stage.evicted)


def test_whoever_has_not_run_long_enough_stays() -> None:
    """As long as its queue grants it, by its own word or the nearest above."""
    specs = {
        "org": queue(preemption=Preemption(min_run_seconds=11 * 3600)),
        "red": queue(guarantee=200),
        "blue": queue("org"),
    }
    stage = ReclaimStage(specs)
    filled(stage, "blue", 4)
    stage.submit("red0", 100, queue="red")
    assert stage.victims() == []
    assert stage.victims(after=2 * 3600.0) == ["blue3"]


def test_a_queue_may_waive_what_it_lent() -> None:
    """It waits until others end."""
    stage = ReclaimStage({"red": queue(guarantee=200, preemption=Preemption(reclaim="Never")), "blue": queue()})
    filled(stage, "blue", 4)
    stage.submit("red0", 100, queue="red")
    assert stage.victims() == []


@pytest.mark.parametrize(("within", "goes"), [("SameUser", ["mine"]), ("AnyUser", ["theirs"]), ("Never", [])])
def test_a_queue_says_whose_lower_priority_goes(
    within: Literal["SameUser", "AnyUser", "Never"], goes: list[str]
) -> None:
    """Of anybody's the one that is lost with least harm."""
    stage = ReclaimStage({"red": queue(preemption=Preemption(within_queue=within))}, nodes=(2,))
    stage.submit("mine", 100, queue="red")
    stage.submit("theirs", 100, queue="red", user="else")
    stage.run()
    stage.submit("high", 100, queue="red", priority=10)
    assert stage.victims() == goes


def test_of_an_elastic_group_the_surplus_goes_alone() -> None:
    """Pod by pod down to its minimum; a whole group goes only where that is the least harm."""
    stage = ReclaimStage(OWNER)
    notes = {"group-size": "4", "group-min": "2"}
    for number in range(4):
        stage.submit(f"g{number}", 100, queue="blue", group="gang", notes=notes)
    while stage.run(after=1.0):
        pass
    stage.submit("red0", 100, queue="red")
    stage.submit("red1", 100, queue="red")
    assert stage.reclaimed() == ["g2", "g3"]
    assert sorted(stage.run()) == ["red0", "red1"]


def test_below_its_minimum_a_group_goes_whole() -> None:
    """All of it, since it could not run; and what of it is not needed is free for others."""
    stage = ReclaimStage(OWNER)
    for number in range(4):
        stage.submit(f"g{number}", 100, queue="blue", group="gang", notes={"group-size": "4"})
    stage.run()
    stage.submit("red0", 100, queue="red")
    assert stage.reclaimed() == ["g0", "g1", "g2", "g3"]


def test_a_single_pod_goes_before_a_group() -> None:
    """It is the lesser harm, though it has run as long."""
    stage = ReclaimStage(OWNER)
    for number in range(2):
        stage.submit(f"g{number}", 100, queue="blue", group="gang", notes={"group-size": "2"})
    stage.submit("alone", 200, 2000, queue="blue")
    stage.run()
    stage.submit("red0", 100, queue="red")
    assert stage.victims() == ["alone"]


def test_a_group_of_an_owner_gets_room_as_a_whole_or_none() -> None:
    """Three of two cards are more than is guaranteed; two are let in together once both are there."""
    stage = ReclaimStage(OWNER)
    filled(stage, "blue", 4)
    for number in range(3):
        stage.submit(f"t{number}", 100, queue="red", group="three", notes={"group-size": "3"})
    assert stage.victims() == []
    for number in range(2):
        stage.submit(f"p{number}", 100, queue="red", group="pair", notes={"group-size": "2"})
    stage.decide(after=11.0)
    first, second = stage.evict()
    stage.gone(first)
    assert stage.run(after=1.0) == []
    stage.gone(second)
    assert sorted(stage.run(after=1.0)) == ["p0", "p1"]


@pytest.mark.parametrize("topology", ["node", "spread"])
def test_a_group_lies_as_it_wants_to(topology: str) -> None:
    """On one node, or each on a node of its own; for that those go who lie there."""
    stage = ReclaimStage(OWNER, nodes=(2, 2))
    filled(stage, "blue", 4)
    for number in range(2):
        notes = {"group-size": "2", "group-topology": topology}
        stage.submit(f"g{number}", 100, queue="red", group="gang", notes=notes)
    (clearing,) = stage.decide()
    nodes = {node for victim in clearing.victims for node, _ in stage.picture.holdings.of(victim.uid)}
    assert len(nodes) == (1 if topology == "node" else 2)
    for uid in stage.evict():
        stage.gone(uid)
    assert sorted(stage.run()) == ["g0", "g1"]


def test_the_harmful_is_spared_if_another_is_enough() -> None:
    """The least go first, and come back when one that goes too made all the room that is needed."""
    stage = ReclaimStage(OWNER, nodes=(1,))
    stage.submit("large", 70, queue="blue")
    stage.submit("small", 20, queue="blue")
    stage.run()
    stage.submit("red0", 60, queue="red")
    assert stage.victims() == ["large"]


def test_who_runs_on_a_card_that_fell_sick_is_spared_if_another_is_enough() -> None:
    """A limit is freed by one alone: the card of the other gives nothing any more, but holds who is on it."""
    specs = {"org": queue(limit=200), "red": queue("org", guarantee=100), "blue": queue("org")}
    stage = ReclaimStage(specs, nodes=(3,))
    stage.submit("small", 50, queue="blue", notes={"gpu-uuid": "GPU-n0-0"})
    stage.submit("large", 150, queue="blue")
    stage.run()
    cards = gpus("n0", 3)
    stage.picture.node_seen(make_node("n0", [sick(cards[0]), *cards[1:]]))
    stage.submit("red0", 100, queue="red", notes={"gpu-uuid": "GPU-n0-1"})
    assert stage.victims() == ["large"]


def test_whoever_leaves_already_is_counted_as_gone() -> None:
    """Nobody goes in addition; and the room is kept for who is owed it."""
    stage = ReclaimStage(OWNER)
    filled(stage, "blue", 4)
    stage.leave("blue0")
    stage.submit("red0", 100, queue="red")
    (clearing,) = stage.decide()
    assert clearing.victims == ()
    stage.submit("blue9", 100, queue="blue")
    stage.gone("blue0")
    assert stage.run(after=1.0) == ["red0"]


def test_what_is_over_by_time_counts_for_nothing_in_a_look() -> None:
    """Whoever was to go for it is there still: somebody else goes, whether or not a round of turns was since."""
    stage = ReclaimStage(OWNER)
    filled(stage, "blue", 4)
    stage.submit("red0", 100, queue="red")
    (before,) = stage.decide()
    stage.evict()
    stage.now += 91.0
    stage.beat()
    # As if somebody else were there to look for.
    (after,) = stage.reclaim.decide(now=stage.now, wall=stage.wall)
    assert not {one.uid for one in before.victims} & {one.uid for one in after.victims}
    assert [clearing.uid for clearing in stage.queues.register.clearings] == [after.uid] == ["red0"]


def test_what_only_kube_scheduler_knows_sends_nobody_away() -> None:
    """Whether it then fits depends on where other pods are."""
    stage = ReclaimStage(OWNER)
    filled(stage, "blue", 4)
    strict = {
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
    }
    stage.submit("red0", 100, queue="red", spec=strict)
    assert stage.victims() == []


def test_without_queues_nobody_goes() -> None:
    """Whatever priorities say: nobody has said that they count."""
    stage = ReclaimStage({}, nodes=(1,))
    stage.submit("low", 100)
    stage.run()
    stage.submit("high", 100, priority=1_000)
    assert stage.victims() == []
