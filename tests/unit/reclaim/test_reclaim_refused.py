"""For whom nobody goes though it is inside its guarantee: the pod is told who has borrowed, and what keeps each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from aliquot_core.disruptions import PodDisruptionBudget
from aliquot_scheduler.queues.said.entry import Plan
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import Preemption, QueueSpec, Quota
from aliquot_scheduler.queues.said.tree import plant
from aliquot_scheduler.queues.telling.standing import Standing
from aliquot_scheduler.reclaim.inquiry import Inquiry
from aliquot_scheduler.reclaim.residents import budgets_of
from support.centre import NAMES
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage

CARD = 80_000
WHOLE: Mapping[str, Any] = {"compute": 100, "memory": CARD}
OWNER = queue(guarantee=100)
SLOW = queue(preemption=Preemption(min_run_seconds=36_600))
WAIVES = queue(guarantee=100, preemption=Preemption(reclaim="Never"))
FIRM = {"preemptible": "false"}
APART: Mapping[str, Any] = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}}
NEVER_ASIDE = "whose it is may raise it, and it is never set aside (queues.budget_grace is 0)"
GUARDED = f"PodDisruptionBudget team/mine: {NEVER_ASIDE}"
GUARDED_BY_SOME = f"a PodDisruptionBudget of queue b: {NEVER_ASIDE}"
BORROWED = "inside the guarantee of queue a; others have borrowed 200 % of compute (b 200 %)"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """On two cards: who runs there, under which queues then; who comes, and what it is told."""

    queues: Mapping[str, QueueSpec] = msgspec.field(default_factory=lambda: {"a": OWNER, "b": queue()})
    # When those came who run.
    before: Mapping[str, QueueSpec] = msgspec.field(default_factory=lambda: {"a": queue(), "b": queue(guarantee=200)})
    runs: Mapping[str, Mapping[str, Any]] = msgspec.field(default_factory=lambda: {"b1": WHOLE, "b2": WHOLE})
    comes: Mapping[str, Any] = msgspec.field(default_factory=lambda: WHOLE)
    # How many of all pods a disruption budget lets go; none means that there is no budget.
    budget: int | None = None
    said: str
    # To the one that waits, where it is told fewer names.
    told: str = ""


ROWS = {
    "never to be evicted": Row(
        runs={uid: {**WHOLE, "notes": FIRM} for uid in ("b1", "b2")},
        said=f"{BORROWED}; nobody goes for it: 2 pods are never to be evicted (preemptible: false), "
        "team/pod-b1 and 1 more: whose they are may end them",
        told=f"{BORROWED}; nobody goes for it: 2 pods are never to be evicted (preemptible: false), "
        "of queue b: whose they are may end them",
    ),
    "too short a time": Row(
        queues={"a": OWNER, "b": SLOW},
        said=f"{BORROWED}; nobody goes for it: 2 pods have not run for minRunSeconds "
        "(the first may go at 2026-11-21T10:10:01Z)",
    ),
    "a budget": Row(
        budget=0,
        said=f"{BORROWED}; nobody goes for it: 2 pods are kept by {GUARDED}",
        told=f"{BORROWED}; nobody goes for it: 2 pods are kept by {GUARDED_BY_SOME}",
    ),
    "a budget that keeps one of two who go together": Row(
        runs={uid: {**WHOLE, "group": "pair", "notes": {"group-size": "2"}} for uid in ("b1", "b2")},
        budget=1,
        said=f"{BORROWED}; nobody goes for it: 2 pods are kept by {GUARDED}",
        told=f"{BORROWED}; nobody goes for it: 2 pods are kept by {GUARDED_BY_SOME}",
    ),
    "one of each": Row(
        runs={"b1": {**WHOLE, "notes": FIRM}, "b2": WHOLE},
        budget=0,
        said=f"{BORROWED}; nobody goes for it: 1 pod is never to be evicted (preemptible: false), "
        f"team/pod-b1: whose it is may end it; 1 pod is kept by {GUARDED}",
        told=f"{BORROWED}; nobody goes for it: 1 pod is never to be evicted (preemptible: false), "
        f"of queue b: whose it is may end it; 1 pod is kept by {GUARDED_BY_SOME}",
    ),
    "it takes nothing back": Row(
        queues={"a": WAIVES, "b": queue()},
        said=f"{BORROWED}; nobody goes for it: queue a takes nothing back (preemption.reclaim: Never)",
    ),
    "kube-scheduler alone knows": Row(
        comes={**WHOLE, "spec": APART},
        said=f"{BORROWED}; nobody goes for it: only kube-scheduler knows where it may lie "
        "(affinity between pods, or topology spread)",
    ),
    "room in pieces": Row(
        runs={
            f"{uid}{card}": {"compute": much, "memory": 1_000, "notes": {**notes, "gpu-uuid": f"GPU-n0-{card}"}}
            for card in (0, 1)
            for uid, much, notes in (("b", 70, {}), ("f", 30, FIRM))
        },
        queues={"a": OWNER, "b": queue(), "f": queue(guarantee=60)},
        before={"a": queue(), "b": queue(guarantee=200), "f": queue(guarantee=60)},
        said="inside the guarantee of queue a; others have borrowed 140 % of compute (b 140 %); nobody goes for it: "
        "2 pods may go, and what they leave has no room for it in one piece, nor if others were moved; on the same "
        "GPUs stay team/pod-f0 (never evicted) and 1 more",
        told="inside the guarantee of queue a; others have borrowed 140 % of compute (b 140 %); nobody goes for it: "
        "2 pods may go, and what they leave has no room for it in one piece, nor if others were moved; on the same "
        "GPUs stay 2 pods of queue f (never evicted)",
    ),
    "memory is guaranteed, and compute is kept for who would have to go": Row(
        queues={"a": queue(memory=Quota(guarantee=CARD)), "v": queue(guarantee=140)},
        before={"a": queue(), "v": queue()},
        runs={"v1": WHOLE, "v2": {"compute": 40, "memory": CARD}},
        said="inside the guarantee of queue a; others have borrowed 48000 MiB of memory (v 48000 MiB); nobody goes for "
        "it: 2 pods may go, and that would not do: it asks 100 % of compute; 100 of 200 % are free, and 40 % of that "
        "is held back for guarantees (v 40 %)",
    ),
    "what one below another queue uses lies inside that one's guarantee": Row(
        queues={"a": queue(memory=Quota(guarantee=2 * CARD)), "b": queue(guarantee=100), "bx": queue("b")},
        before={"a": queue(), "b": queue(), "bx": queue("b")},
        runs={"bx1": WHOLE, "a1": WHOLE},
        comes={"compute": None, "memory": CARD},
        said="inside the guarantee of queue a; no other queue uses more than it is guaranteed",
    ),
    "beside a reservation more is borrowed than is used": Row(
        queues={
            "a": OWNER,
            "b": SLOW,
            "bk": queue("b", guarantee=100, lend=0, memory=Quota(guarantee=0)),
            "bx": queue("b"),
        },
        before={"a": queue(), "b": queue(), "bk": queue("b"), "bx": queue("b")},
        runs={"bx1": WHOLE, "bx2": WHOLE},
        said="inside the guarantee of queue a; others have borrowed 200 % of compute (b 200 %); nobody goes for it: "
        "2 pods have not run for minRunSeconds (the first may go at 2026-11-21T10:10:01Z)",
    ),
    "nobody has borrowed": Row(
        queues={"a": queue(guarantee=200), "b": queue(guarantee=200)},
        said="inside the guarantee of queue a; no other queue uses more than it is guaranteed",
    ),
}


def test_whom_a_limit_of_its_own_keeps_out_is_told_of_no_guarantee() -> None:
    """It is inside one of memory, and its queue uses all the compute that it may."""
    specs = {"a": QueueSpec(compute=Quota(limit=100), memory=Quota(guarantee=2 * CARD), namespaces=("*",))}
    stage = ReclaimStage(specs, nodes=(2,))
    for uid in ("a1", "a2"):
        stage.submit(uid, queue="a", **WHOLE)
    assert stage.run() == ["a1"]
    assert stage.victims() == []
    stage.run(after=1.0)
    (waiter,) = stage.queues.waiting()
    assert stage.queues.word(waiter) == "OverLimit"


def stage_of(row: Row) -> ReclaimStage:
    """Those run who do, and one waits."""
    stage = ReclaimStage(row.before, nodes=(2,), settings=QueueSettings(owed=0))
    for uid, asked in row.runs.items():
        stage.submit(uid, queue=uid.rstrip("0123456789"), **asked)
    assert len(stage.run()) == len(row.runs)
    stage.queues.queues_seen(row.queues)
    stage.submit("w", queue="a", **row.comes)
    assert stage.run(after=1.0) == []
    return stage


def budgets(row: Row) -> list[PodDisruptionBudget]:
    """Over all pods, if there is one."""
    if row.budget is None:
        return []
    metadata = {"namespace": "team", "name": "mine"}
    said = {"metadata": metadata, "spec": {"selector": {}}, "status": {"disruptionsAllowed": row.budget}}
    return [msgspec.convert(said, PodDisruptionBudget)]


@pytest.mark.parametrize("name", ROWS)
def test_it_is_told_on_the_pod_and_to_who_asks(name: str) -> None:
    """By the leader, for as long as it is so; and by whoever works it out from what the API server has."""
    row = ROWS[name]
    stage = stage_of(row)
    bound = stage.queues.register.inside.bound.values()
    found = budgets_of(budgets(row), bound=bound)
    for after in (0.0, 11.0):
        assert stage.reclaim.anybody(now=stage.now + after) or "nobody goes for it: " in row.said
        assert stage.victims(budgets=found, after=after) == []
        stage.run()
        (waiter,) = stage.queues.waiting()
        notice = stage.queues.notice(waiter)
        told = (row.told or row.said).partition(" ")[2]
        assert (notice.reason, notice.message.partition("; inside ")[2]) == ("NobodyGoes", told)
        # Whose pods the others are it need not know.
        assert "team/" not in notice.message
    tree = plant(row.queues)
    standing = Standing(
        picture=stage.picture,
        plan=Plan(specs=row.queues, tree=tree),
        pods=stage.pods.values(),
        names=NAMES,
        wall=stage.wall,
    )
    (waiter,) = standing.waiting("a")
    assert Inquiry(standing, wall=stage.wall, budgets=budgets(row)).why(waiter) == row.said


def test_it_is_told_no_more_once_somebody_goes() -> None:
    """What kept them is over; then room is made, and nothing of it is left when the next one waits."""
    stage = stage_of(ROWS["too short a time"])
    assert stage.victims() == []
    (waiter,) = stage.queues.waiting()
    assert stage.queues.word(waiter) == "NobodyGoes"
    assert len(stage.victims(after=700.0)) == 1
    assert stage.queues.word(waiter) == "MakingRoom"


def test_whom_a_webhook_keeps_is_left_alone_and_keeps_its_group() -> None:
    """For a minute: the other one of it can't go without it, and is told apart."""
    stage = stage_of(ROWS["a budget that keeps one of two who go together"])
    assert stage.victims() == ["b1", "b2"]
    (clearing,) = stage.queues.register.clearings
    (asked,) = (one for one in clearing.victims if one.uid == "b1")
    stage.reclaim.refused(asked, now=stage.now)
    assert stage.victims() == []
    assert said_to_the_one_that_waits(stage).endswith(
        "; nobody goes for it: 1 pod was kept by a disruption budget or a webhook (of queue b), and is left alone "
        "until 2026-11-21T10:01:01Z; 1 pod is of groups that can't go as a whole now (of queue b)"
    )


def test_who_was_asked_to_go_and_does_not_is_told_of() -> None:
    """A minute after its time is over nobody counts on it any more; the other one of its group can't go without it."""
    stage = stage_of(ROWS["a budget that keeps one of two who go together"])
    stage.leave("b1", grace=-100.0)
    assert stage.victims() == []
    assert (
        "; nobody goes for it: 1 pod has been asked to go, and is there still (of queue b: the kubelet of node n0 is "
        "to end it); 1 pod is of groups that can't go as a whole now (of queue b)"
    ) in said_to_the_one_that_waits(stage)


def said_to_the_one_that_waits(stage: ReclaimStage) -> str:
    """The sentence of its condition."""
    (waiter,) = stage.queues.waiting()
    notice = stage.queues.notice(waiter)
    assert notice.reason == "NobodyGoes"
    return notice.message
