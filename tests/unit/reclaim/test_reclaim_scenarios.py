"""Who has to go for whom, on few cards: who lies there, who comes, who goes, and who lies there then."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from aliquot_core.instants import second_time
from aliquot_core.objects import Node
from aliquot_scheduler.deciding.promises import PROMISE
from aliquot_scheduler.queues.said.spec import ModelQuota, Preemption, Quota
from support.centre import gpus, make_node, sick
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage

OWNER = {"red": queue(guarantee=200), "blue": queue()}


def filled(stage: ReclaimStage, name: str, count: int, compute: int = 100, **more: Any) -> None:
    """So many pods of a queue run."""
    for number in range(count):
        stage.submit(f"{name}{number}", compute, queue=name, **more)
    while stage.run(after=1.0):
        pass
    assert all(stage.pods[f"{name}{number}"].spec.node_name for number in range(count))


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


def test_a_node_that_is_short_of_cpu_is_no_place() -> None:
    """Victims give back theirs; where that is not enough, nobody goes."""
    stage = ReclaimStage(OWNER | {"own": queue(guarantee=100)}, nodes=(3,))
    stage.picture.node_seen(small(make_node("n0", gpus("n0", 3)), cpu="6"))
    stage.submit("own0", 100, queue="own", requests={"cpu": "2"})
    for number in range(2):
        stage.submit(f"blue{number}", 100, queue="blue", requests={"cpu": "2"})
    stage.run()
    stage.submit("large", 100, queue="red", requests={"cpu": "5"})
    assert stage.victims() == []
    stage.submit("red0", 100, queue="red", requests={"cpu": "2"})
    assert stage.reclaimed() == ["blue1"]
    assert stage.run() == ["red0"]


@pytest.mark.parametrize(("asked", "gone"), [("1", ["small"]), ("3", ["large"]), ("4", ["large", "small"])])
def test_for_cpus_alone_those_go_who_hold_them(asked: str, gone: list[str]) -> None:
    """A card is free, and no CPU beside it: what is guaranteed is had all the same, at least harm."""
    stage = ReclaimStage(OWNER, nodes=(3,))
    stage.picture.node_seen(small(make_node("n0", gpus("n0", 3)), cpu="4"))
    stage.submit("large", 60, queue="blue", requests={"cpu": "3"})
    stage.submit("small", 50, queue="blue", requests={"cpu": "1"})
    stage.run()
    stage.submit("red0", 100, queue="red", requests={"cpu": asked})
    assert stage.run() == []
    assert stage.reclaimed() == gone
    assert stage.run() == ["red0"]


def test_what_cpus_cost_is_compared_without_those_who_need_not_go() -> None:
    """The small one is tried first, and is of no use: the other node would cost more than the large one alone."""
    stage = ReclaimStage(OWNER, nodes=(3, 3))
    for node in ("n0", "n1"):
        stage.picture.node_seen(small(make_node(node, gpus(node, 3)), cpu="4"))
    for name, compute, cpus, node in (("large", 60, "3", "n0"), ("small", 50, "1", "n0"), ("mid", 80, "4", "n1")):
        notes = {"gpu-uuid": f"GPU-{node}-*"}
        stage.submit(name, compute, queue="blue", requests={"cpu": cpus}, notes=notes)
    stage.run()
    stage.submit("red0", 100, queue="red", requests={"cpu": "3"})
    assert stage.victims() == ["large"]


def test_whoever_gives_back_cpus_already_is_waited_for() -> None:
    """Nobody goes in addition, and what it gives back is kept: a pod of another with a small slice waits."""
    stage = ReclaimStage(OWNER, nodes=(3,))
    stage.picture.node_seen(small(make_node("n0", gpus("n0", 3)), cpu="4"))
    for number in range(2):
        stage.submit(f"blue{number}", 60, queue="blue", requests={"cpu": "2"})
    stage.run()
    stage.leave("blue0")
    ((_, gpu),) = stage.picture.holdings.of("blue0")
    stage.submit("red0", 100, queue="red", requests={"cpu": "2"}, notes={"gpu-uuid": f"!{gpu}"})
    (clearing,) = stage.decide()
    assert clearing.victims == ()
    stage.submit("other", 10, queue="blue", user="other", requests={"cpu": "2"})
    stage.gone("blue0")
    assert stage.run(after=1.0) == ["red0"]


def test_one_that_asks_too_much_keeps_nothing_from_those_behind_it() -> None:
    """A group that no rights make room for, and single pods of the same shape."""
    stage = ReclaimStage({"red": queue(guarantee=300), "blue": queue(guarantee=200)})
    filled(stage, "blue", 4)
    for number in range(3):
        stage.submit(f"g{number}", 100, queue="red", group="gang", notes={"group-size": "3"})
    stage.submit("red0", 100, queue="red")
    assert stage.victims() == ["blue3"]


def small(node: Node, *, cpu: str) -> Node:
    """The same node, with so few CPUs."""
    return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, allocatable={"cpu": cpu}))


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
    (after,) = stage.decide(after=91.0)
    assert not {one.uid for one in before.victims} & {one.uid for one in after.victims}
    assert [clearing.uid for clearing in stage.queues.register.clearings] == [after.uid] == ["red0"]


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


def test_what_only_kube_scheduler_knows_sends_nobody_away() -> None:
    """Whether it then fits depends on where other pods are."""
    stage = ReclaimStage(OWNER)
    filled(stage, "blue", 4)
    strict = {
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
    }
    stage.submit("red0", 100, queue="red", spec=strict)
    assert stage.victims() == []


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


def test_without_queues_nobody_goes() -> None:
    """Whatever priorities say: nobody has said that they count."""
    stage = ReclaimStage({}, nodes=(1,))
    stage.submit("low", 100)
    stage.run()
    stage.submit("high", 100, priority=1_000)
    assert stage.victims() == []


# --- what nodes have beside cards ------------------------------------------------------------------------------------


def _with_cpus(stage: ReclaimStage, cpus: int, *, cards: int = 4) -> None:
    """The node says what it has."""
    node = make_node("n0", gpus("n0", cards))
    said = msgspec.structs.replace(node.status, allocatable={"cpu": str(cpus), "memory": "64Gi", "pods": "20"})
    stage.picture.node_seen(msgspec.structs.replace(node, status=said))


def test_cpus_are_kept_with_the_cards_for_whom_room_is_made() -> None:
    """A small pod that a card has room for waits: it would take the CPU that victims give back one by one."""
    stage = ReclaimStage(OWNER | {"green": queue(guarantee=60)}, nodes=(5,))
    _with_cpus(stage, 16, cards=5)
    filled(stage, "green", 1, 50)
    filled(stage, "blue", 4, requests={"cpu": "4"})
    for number in range(2):
        stage.submit(f"red{number}", 100, queue="red", requests={"cpu": "4"}, group="pair", notes={"group-size": "2"})
    stage.decide()
    first, second = stage.evict()
    stage.gone(first)
    stage.submit("green9", 10, queue="green", requests={"cpu": "1"})
    assert stage.run(after=1.0) == []
    stage.gone(second)
    assert sorted(stage.run(after=1.0)) == ["red0", "red1"]
    # What was kept is held now, and nothing of it twice.
    assert stage.picture.hosts.free[0].tolist()[0] == 0
    stage.end("red0")
    assert stage.run(after=1.0) == ["green9"]


def test_what_is_kept_of_cpus_is_counted_once_in_the_same_look() -> None:
    """Two owners one after the other take one victim's CPUs each."""
    stage = ReclaimStage(OWNER)
    _with_cpus(stage, 16)
    filled(stage, "blue", 4, requests={"cpu": "4"})
    for number in range(2):
        stage.submit(f"red{number}", 100, queue="red", requests={"cpu": "4"})
    assert len(stage.victims()) == 2
    for uid in stage.evict():
        stage.gone(uid)
    assert sorted(stage.run(after=1.0)) == ["red0", "red1"]


def test_cpus_that_were_kept_are_free_again_when_it_is_called_off() -> None:
    """Whoever it was made for is gone."""
    stage = ReclaimStage(OWNER | {"green": queue()})
    _with_cpus(stage, 16)
    filled(stage, "blue", 4, requests={"cpu": "4"})
    stage.submit("red0", 100, queue="red", requests={"cpu": "4"})
    stage.decide()
    (victim,) = stage.evict()
    assert stage.picture.hosts.free[0].tolist()[0] == -4_000
    stage.gone("red0")
    stage.run(after=1.0)
    assert stage.picture.hosts.free[0].tolist()[0] == 0
    stage.gone(victim)
    assert stage.picture.hosts.free[0].tolist()[0] == 4_000


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
