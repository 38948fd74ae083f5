"""Who is moved, for whom, and where to: on few cards, by hand; and what must hold of all plans."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_scheduler.reclaim.allowance import Allowance
from aliquot_scheduler.reclaim.residents import Budget
from support.moving_stage import APART, LONG, MovingStage
from support.queue_stage import queue


def test_one_of_two_halves_is_moved_beside_the_other_for_one_that_wants_a_whole_card() -> None:
    """The card is kept for it, and a place for the half's successor, which nobody else gets."""
    stage = MovingStage(nodes=(2,))
    stage.scattered()
    stage.submit("whole", 100, queue="red")
    assert stage.run() == []
    (moved,) = stage.consolidate(after=LONG)
    assert stage.goes() == [moved]
    # Somebody else who would have room there comes before the successor does.
    stage.submit("other", 50, queue="red")
    assert stage.run(after=1.0) == ["whole"]
    stage.submit_made("again", 50, by=f"job{moved[-1]}", queue="blue", notes=APART)
    assert stage.run(after=1.0) == ["again"]
    stayed = "half1" if moved == "half0" else "half0"
    assert stage.lies("again") == stage.lies(stayed)
    assert len(stage.queues.register.refuges) == 0


def test_nobody_is_moved_before_it_pays() -> None:
    """What is lost is never more than what was waited for already; and then it is done."""
    stage = MovingStage(nodes=(2,))
    stage.scattered()
    stage.submit("whole", 100, queue="red")
    stage.run()
    for _ in range(10):
        assert stage.consolidate(after=600.0) == []
    assert len(stage.consolidate(after=LONG)) == 1


@pytest.mark.parametrize("theirs", ["amber", "violet"])
def test_whoever_has_waited_for_as_much_is_helped_though_one_before_it_has_not(theirs: str) -> None:
    """What moving costs for one is known for all who ask for the same: whoever has paid it is not put off with them."""
    stage = MovingStage({"blue": queue(), "red": queue(), theirs: queue()}, nodes=(2,))
    stage.scattered()
    stage.submit("old", 100, queue="red")
    stage.run()
    stage.run(after=LONG)
    stage.submit("young", 100, queue=theirs)
    stage.run()
    assert len(stage.consolidate(after=1.0)) == 1
    (clearing,) = stage.queues.register.clearings
    assert clearing.candidate.uid == "old"


def test_whoever_leaves_counts_as_gone_when_it_is_asked_whether_there_is_enough() -> None:
    """Two halves and one on the way out: without its half there would be too little for a whole card."""
    stage = MovingStage(nodes=(2,))
    stage.scattered()
    stage.submit("last", 50, queue="blue")
    stage.run()
    stage.submit("whole", 100, queue="red")
    stage.run()
    assert stage.consolidate(after=LONG) == []
    stage.leave("last", grace=240.0)
    assert len(stage.consolidate(after=61.0)) == 1


@pytest.mark.parametrize(
    "why",
    [
        "off",
        "nobody makes it anew",
        "not preemptible",
        "in a group",
        "no place left",
        "a budget",
        "spread by kubernetes",
    ],
)
def test_nobody_is_moved_who_may_not_be_or_has_no_place(why: str) -> None:
    """And nobody goes for one that waits then."""
    stage = MovingStage(nodes=(2,), moves_per_hour=0 if why == "off" else 10)
    notes = APART | ({"preemptible": "false"} if why == "not preemptible" else {})
    constraint = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    spec = {"topologySpreadConstraints": [constraint]} if why == "spread by kubernetes" else {}
    size = {"group-size": "1"} if why == "in a group" else {}
    for number in range(2):
        asked: dict[str, Any] = {"queue": "blue", "notes": notes | size, "spec": spec}
        asked |= {"group": f"g{number}"} if why == "in a group" else {}
        compute = 60 if why == "no place left" else 50
        if why == "nobody makes it anew":
            stage.submit(f"half{number}", compute, **asked)
        else:
            stage.submit_made(f"half{number}", compute, by=f"job{number}", **asked)
        stage.run(after=1.0)
    if why == "not preemptible":
        assert not stage.pods["half0"].spec.node_name, "it may lie only within a guarantee"
        return
    assert stage.lies("half0") != stage.lies("half1") != []
    stage.submit("whole", 100, queue="red")
    stage.run()
    budgets = [Budget(pods=frozenset({"half0", "half1"}), allowed=0)] if why == "a budget" else []
    assert stage.consolidate(after=LONG, budgets=budgets) == []
    assert stage.consolidate(after=LONG, budgets=budgets) == []
    assert stage.evict() == []


def test_nobody_is_moved_for_one_that_its_quota_keeps_out() -> None:
    """It would not be let in, whatever card is free: its queue has used up what it may."""
    stage = MovingStage({"blue": queue(), "red": queue(limit=120)}, nodes=(2,))
    stage.scattered(compute=35)
    stage.submit("first", 30, queue="red")
    stage.run()
    stage.submit("whole", 100, queue="red")
    stage.run()
    assert stage.consolidate(after=LONG) == []


def test_one_that_its_quota_keeps_out_keeps_nobody_else_from_being_helped() -> None:
    """Though it is the first of its queue whenever that is asked who is next."""
    stage = MovingStage({"blue": queue(), "red": queue(limit=150)}, nodes=(3,))
    stage.scattered()
    stage.submit("part", 60, queue="red", user="c")
    stage.run()
    stage.submit("too much", 100, queue="red", user="a")
    stage.submit("most", 80, queue="red", user="b")
    stage.run()
    assert len(stage.consolidate(after=2 * LONG)) == 1
    (clearing,) = stage.queues.register.clearings
    assert clearing.candidate.uid == "most"


@pytest.mark.parametrize(("per_hour", "count"), [(1, 0), (2, 2)])
def test_no_more_are_moved_than_the_budget_has(per_hour: int, count: int) -> None:
    """Both have to be moved for the one that waits, or nobody: a part of a plan is none."""
    stage = MovingStage(nodes=(2, 1), moves_per_hour=per_hour)
    stage.scattered(3, compute=30)
    stage.submit("pair", 200, queue="red")
    stage.run()
    assert len(stage.consolidate(after=LONG)) == count


def test_of_those_who_are_moved_whom_a_budget_covers_is_asked_first() -> None:
    """By that the others are not moved in vain."""
    stage = MovingStage(nodes=(2, 1))
    stage.scattered(3, compute=30)
    stage.submit("pair", 200, queue="red")
    stage.run()
    moved = stage.consolidate(after=LONG, budgets=[Budget(pods=frozenset({"half0", "half1"}), allowed=2)])
    (clearing,) = stage.queues.register.clearings
    assert clearing.covered == {"half0", "half1"} & {*moved}
    assert clearing.covered


def test_an_allowance_grows_from_nothing_and_never_beyond_an_hours() -> None:
    """So leaders that follow each other quickly move no more than one would."""
    allowance = Allowance(per_hour=6)
    assert [allowance.at(now) for now in (1_000.0, 1_599.0, 1_600.0, 90_000.0)] == [0, 0, 1, 6]
    allowance.used(5)
    assert [allowance.at(now) for now in (90_000.0, 91_200.0)] == [1, 3]


def test_a_refuge_is_closed_when_nobody_comes_and_when_its_pod_has_ended_by_itself() -> None:
    """Others have the room again."""
    for ended in (True, False):
        stage = MovingStage(nodes=(2,))
        stage.scattered()
        stage.submit("whole", 100, queue="red")
        stage.run()
        (moved,) = stage.consolidate(after=LONG)
        if ended:
            stage.end(moved)
        else:
            stage.goes()
        stage.submit("other", 50, queue="red")
        assert sorted(stage.run(after=1.0)) == (["other", "whole"] if ended else ["whole"])
        assert len(stage.queues.register.refuges) == (0 if ended else 1)
        stage.run(after=300.0)
        assert len(stage.queues.register.refuges) == 0
        assert stage.pods["other"].spec.node_name


def test_room_is_kept_though_the_end_of_who_is_moved_is_told_before_its_pod_is_gone() -> None:
    """As a kubelet does: first that its containers have ended, and then the pod is taken away."""
    stage = MovingStage(nodes=(2,))
    stage.scattered()
    stage.submit("whole", 100, queue="red")
    stage.run()
    (moved,) = stage.consolidate(after=LONG)
    assert stage.evict() == [moved]
    stage.end(moved)
    stage.submit("other", 50, queue="red")
    assert stage.run(after=1.0) == ["whole"]
    stage.submit_made("again", 50, by=f"job{moved[-1]}", queue="blue", notes=APART)
    assert stage.run(after=1.0) == ["again"]


def test_whoever_waits_no_more_lets_those_stay_who_were_not_asked() -> None:
    """It was deleted between the decision and the asking."""
    stage = MovingStage(nodes=(2,))
    stage.scattered()
    stage.submit("whole", 100, queue="red")
    stage.run()
    assert len(stage.consolidate(after=LONG)) == 1
    stage.gone("whole")
    stage.run(after=1.0)
    assert stage.evict() == []
    assert len(stage.queues.register.refuges) == 0


def test_one_plan_at_a_time() -> None:
    """While somebody is on the way nothing else is begun."""
    stage = MovingStage(nodes=(2, 2))
    stage.scattered(4)
    for number in range(2):
        stage.submit(f"whole{number}", 100, queue="red")
    stage.run()
    assert len(stage.consolidate(after=LONG)) == 1
    assert stage.consolidate(after=LONG) == []


@given(
    sizes=st.lists(st.sampled_from([20, 30, 40, 50, 60]), min_size=2, max_size=8),
    wants=st.sampled_from([50, 70, 100, 200]),
    nodes=st.sampled_from([(2,), (3,), (2, 2)]),
)
@settings(max_examples=40, deadline=None)
def test_all_who_are_moved_lie_somewhere_again_and_the_one_that_waited_is_in(
    sizes: list[int], wants: int, nodes: tuple[int, ...]
) -> None:
    """Whatever is decided comes true: nobody is left without a place, and no card is given twice."""
    stage = MovingStage(nodes=nodes)
    for number, size in enumerate(sizes):
        stage.submit_made(f"s{number}", size, by=f"job{number}", queue="blue", notes=APART)
        stage.run(after=1.0)
    stage.submit("big", wants, queue="red")
    stage.run(after=1.0)
    running = {uid for uid, pod in stage.pods.items() if pod.spec.node_name}
    moved = stage.consolidate(after=20 * LONG)
    if "big" in running:
        assert moved == []
        return
    assert set(moved) <= running
    assert stage.goes() == moved
    for uid in moved:
        stage.submit_made(f"{uid}-again", sizes[int(uid[1:])], by=f"job{uid[1:]}", queue="blue", notes=APART)
    let_in = stage.run(after=1.0)
    if moved:
        assert {"big", *(f"{uid}-again" for uid in moved)} <= set(let_in)
    for node, known in stage.picture.nodes.items():
        for gpu in known.inventory.gpus:
            total, _ = stage.picture.holdings.total((node, gpu.uuid))
            assert total.compute.value <= 100
