"""Disruption budgets over what is borrowed: they keep it for a while, and not from its owner for ever.

Whoever has borrowed may write budgets in its own namespace, before or after it borrows. So where the operator says so
(`queues.budget_grace`), what one keeps is bounded, counted from when it is first in an owner's way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from aliquot_core.instants import second_time
from aliquot_core.objects import PodCondition
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import Preemption, QueueSpec
from aliquot_scheduler.reclaim.reclaim import Reclaim
from aliquot_scheduler.reclaim.residents import Budget
from support.centre import NAMES
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage

replace = msgspec.structs.replace

GRACE = 600.0
# As often as the centre looks again at one for whom nobody went.
LOOK = 11.0
HOG = ("b0", "b1", "b2", "b3")
BORROWER: Mapping[str, QueueSpec] = {"a": queue(guarantee=200), "b": queue(guarantee=100)}


def guard(*pods: str, allowed: int = 0, name: str = "b/mine") -> Budget:
    """A budget over these."""
    return Budget(pods=frozenset(pods or HOG), allowed=allowed, name=name)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """On four GPUs that `b` has borrowed but for one: the budgets, what an owner asks, and what goes when."""

    budgets: tuple[Budget, ...]
    asks: Sequence[int] = (100,)
    # How many of them go at once, and how many of those that stayed go after the grace.
    at_once: int
    later: int
    queues: Mapping[str, QueueSpec] = msgspec.field(default_factory=lambda: BORROWER)


ROWS = {
    "no budget": Row(budgets=(), at_once=1, later=0),
    "a budget that lets one go": Row(budgets=(guard(allowed=1),), at_once=1, later=0),
    "a budget that lets nobody go": Row(budgets=(guard(),), at_once=0, later=1),
    "one that lets one go where two have to": Row(budgets=(guard(allowed=1),), asks=(200,), at_once=0, later=2),
    "two budgets over each: no such pod is ever evicted": Row(
        budgets=(guard(allowed=4), guard(allowed=4, name="b/too")), at_once=0, later=1
    ),
    "it lets some go, and for the others it is set aside": Row(
        budgets=(guard(allowed=1),), asks=(100, 100), at_once=1, later=1
    ),
    "what lies inside a guarantee is kept": Row(
        budgets=(guard(),), at_once=0, later=0, queues={"a": queue(guarantee=200), "b": queue(guarantee=400)}
    ),
    "whom no budget covers goes first": Row(budgets=(guard("b0", "b1", "b2"),), at_once=1, later=0),
    "who takes nothing back": Row(
        budgets=(guard(),),
        at_once=0,
        later=0,
        queues={"a": queue(guarantee=200, preemption=Preemption(reclaim="Never")), "b": queue(guarantee=100)},
    ),
}


def stage_of(row: Row, **more: Any) -> ReclaimStage:
    """All is lent, and then the owner comes."""
    limits = {"settings": QueueSettings(budget_grace=GRACE), **more}
    stage = ReclaimStage({"a": queue(), "b": queue(guarantee=400)}, nodes=(4,), **limits)
    for uid in HOG:
        stage.submit(uid, 100, queue="b")
    assert len(stage.run()) == len(HOG)
    stage.queues.queues_seen(row.queues)
    for number, asked in enumerate(row.asks):
        stage.submit(f"a{number}", asked, queue="a")
    stage.run(after=1.0)
    return stage


def going(stage: ReclaimStage, row: Row, *, until: float) -> dict[str, bool]:
    """Who goes by then, each with whether its budget is set aside; it is looked at as the centre does."""
    found = dict[str, bool]()
    while stage.now < until:
        # Nobody comes in the place of those who go, so budgets let fewer go each time.
        left = [replace(one, allowed=max(0, one.allowed - len(one.pods & {*stage.evicted}))) for one in row.budgets]
        for clearing in stage.decide(budgets=left, after=LOOK):
            found |= {victim.uid: victim.uid in clearing.against_budgets for victim in clearing.victims}
        for uid in stage.evict():
            stage.gone(uid)
        stage.run()
    return found


@pytest.mark.parametrize("name", ROWS)
def test_a_budget_keeps_what_is_borrowed_for_its_grace(name: str) -> None:
    """Before it is over nobody goes against a budget, and after it as many as the owner needs and no more."""
    row = ROWS[name]
    stage = stage_of(row)
    begun = stage.now
    first = going(stage, row, until=begun + GRACE - LOOK)
    assert (len(first), set(first.values())) == (row.at_once, {False} if first else set())
    second = going(stage, row, until=begun + GRACE + 3 * LOOK)
    assert len(second) == row.later
    assert any(second.values()) is bool(row.later)


def test_of_two_who_go_one_is_evicted_as_its_budget_allows() -> None:
    """Budgets are set aside for whom they keep, and for nobody else."""
    row = ROWS["one that lets one go where two have to"]
    stage = stage_of(row)
    found = going(stage, row, until=stage.now + GRACE + 3 * LOOK)
    assert sorted(found.values()) == [False, True]


def test_the_grace_begins_anew_where_nobody_waited_for_a_minute() -> None:
    """It is counted for an owner who waits, and not from some time when one did."""
    row = ROWS["a budget that lets nobody go"]
    stage = stage_of(row)
    assert going(stage, row, until=stage.now + GRACE / 2) == {}
    pod = stage.pods["a0"]
    stage.gone("a0")
    assert stage.decide(budgets=row.budgets, after=70.0) == []
    stage.see(pod)
    assert going(stage, row, until=stage.now + GRACE - LOOK) == {}
    assert len(going(stage, row, until=stage.now + 3 * LOOK)) == 1


def told(stage: ReclaimStage, uid: str) -> None:
    """The leader writes why the pod waits, as it does when that is another reason than is written."""
    (waiter,) = (one for one in stage.queues.waiting() if one.uid == uid)
    notice, pod = stage.queues.notice(waiter), stage.pods[uid]
    if any(one.reason == notice.reason for one in pod.status.conditions):
        return
    said = PodCondition(
        type=NAMES.admitted,
        status="False",
        reason=notice.reason,
        message=notice.message,
        last_transition_time=second_time(stage.wall),
    )
    stage.see(replace(pod, status=replace(pod.status, conditions=[said])))


@pytest.mark.parametrize(("tells", "goes"), [(True, 1), (False, 0)])
def test_leaders_that_change_do_not_lengthen_the_grace(tells: bool, goes: int) -> None:
    """What a pod was told says since when budgets are in its way; who was told nothing waits for another grace."""
    row = ROWS["a budget that lets nobody go"]
    stage = stage_of(row)
    begun = stage.now
    for leader in range(1, 4):
        assert going(stage, row, until=begun + leader * GRACE / 4) == {}
        if tells:
            told(stage, "a0")
        stage.reclaim = Reclaim(queues=stage.queues, picture=stage.picture)
    assert going(stage, row, until=begun + GRACE - LOOK) == {}
    # It was told a quarter of the grace after it came, when the first leader ended.
    assert len(going(stage, row, until=begun + 1.25 * GRACE + 3 * LOOK)) == goes


def test_what_a_pod_was_told_long_ago_is_no_reason_for_a_leader_that_knows() -> None:
    """Budgets were in nobody's way since: from the next time on they have their whole grace."""
    row = ROWS["a budget that lets nobody go"]
    stage = stage_of(row)
    assert going(stage, row, until=stage.now + GRACE / 2) == {}
    told(stage, "a0")
    stage.now += GRACE / 2
    stage.run(after=1.0)
    assert going(stage, row, until=stage.now + GRACE - LOOK) == {}
    assert len(going(stage, row, until=stage.now + 3 * LOOK)) == 1


@pytest.mark.parametrize(
    "said", [QueueSettings(), QueueSettings(budget_grace=0.0), QueueSettings(budget_grace=366 * 86_400.0)]
)
def test_a_budget_keeps_what_is_borrowed_for_ever_unless_the_operator_says_otherwise(said: QueueSettings) -> None:
    """Said nothing, said 0, or longer than anybody waits."""
    row = ROWS["a budget that lets nobody go"]
    stage = stage_of(row, settings=said)
    assert going(stage, row, until=stage.now + 6 * GRACE) == {}


def test_a_budget_may_be_given_no_time_at_all() -> None:
    """A moment is over by the second look."""
    row = ROWS["a budget that lets nobody go"]
    stage = stage_of(row, settings=QueueSettings(budget_grace=0.001))
    assert len(going(stage, row, until=stage.now + 2 * LOOK)) == 1


def test_inside_a_queue_a_budget_holds_for_ever() -> None:
    """Whose priority is higher takes nothing back: nobody has borrowed of it."""
    specs = {"q": queue(guarantee=400, preemption=Preemption(within_queue="SameUser"))}
    stage = ReclaimStage(specs, nodes=(4,), settings=QueueSettings(budget_grace=GRACE))
    for uid in HOG:
        stage.submit(uid, 100, queue="q")
    assert len(stage.run()) == len(HOG)
    stage.submit("high", 100, queue="q", priority=10)
    stage.run(after=1.0)
    row = ROWS["a budget that lets nobody go"]
    assert going(stage, row, until=stage.now + 3 * GRACE) == {}
    row = ROWS["no budget"]
    assert len(going(stage, row, until=stage.now + LOOK)) == 1


def test_what_goes_against_one_budget_keeps_nobody_from_going_as_another_allows() -> None:
    """In the same look, for an owner who has waited for no time at all."""
    row = Row(
        budgets=(guard("b0", "b1", "b2"), guard("b3", allowed=1, name="b/too")),
        asks=(),
        at_once=0,
        later=2,
        queues={"a": queue(guarantee=100), "b": queue(guarantee=100), "c": queue(guarantee=100)},
    )
    stage = stage_of(row)
    ((_, card),) = stage.picture.holdings.of("b0")
    stage.submit("a0", 100, queue="a", notes={"gpu-uuid": card})
    stage.run(after=1.0)
    assert going(stage, row, until=stage.now + GRACE - LOOK) == {}
    stage.now += 3 * LOOK
    stage.submit("c0", 100, queue="c")
    stage.run(after=1.0)
    found = stage.decide(budgets=row.budgets)
    assert [sorted(victim.uid for victim in clearing.victims) for clearing in found] == [["b0"], ["b3"]]


def test_two_owners_have_theirs_in_one_look() -> None:
    """What goes against a budget for one does not keep the others of it, nor those of other budgets, from going."""
    row = Row(
        budgets=(guard("b0", "b1", "b2"), guard("b3", allowed=0, name="b/too")), asks=(100, 100), at_once=0, later=2
    )
    stage = stage_of(row)
    assert going(stage, row, until=stage.now + GRACE - LOOK) == {}
    stage.now += 3 * LOOK
    assert [len(clearing.victims) for clearing in stage.decide(budgets=row.budgets)] == [1, 1]


def test_what_was_chosen_and_not_asked_yet_has_spent_its_budget() -> None:
    """The API server could not be asked for a while, and counts it among those who stay: the next look does not."""
    stage = ReclaimStage({"a": queue(guarantee=100), "c": queue(guarantee=200), "b": queue()}, nodes=(4,))
    for uid in HOG:
        stage.submit(uid, 100, queue="b")
    stage.run()
    budget = guard("b0", "b1", "b2", allowed=1)
    stage.submit("a0", 100, queue="a", notes={"gpu-uuid": "GPU-n0-0"})
    stage.run(after=1.0)
    (clearing,) = stage.decide(budgets=[budget])
    assert {victim.uid for victim in clearing.victims} <= {"b0", "b1", "b2"}
    # Besides the one who is under no budget it would take one more.
    stage.submit("c0", 200, queue="c")
    stage.run(after=1.0)
    assert stage.decide(budgets=[budget], after=1.0) == []
