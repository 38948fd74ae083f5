"""Whoever lies on a degraded card is moved off it, or told why it stays; and nobody is moved onto one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from aliquot_core.inventory import Gpu, Health
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.reclaim.residents import Budget
from support.centre import gpus, make_node, sick
from support.moving_stage import APART, LONG, MovingStage
from support.queue_stage import queue


def test_whoever_lies_on_a_degraded_card_is_moved_off_it_and_nobody_onto_it() -> None:
    """As far as there is room elsewhere; who has none stays."""
    stage = MovingStage(nodes=(2,))
    stage.scattered()
    ((_, bad),) = stage.lies("half0")
    stage.wear(bad)
    assert stage.consolidate(after=3_600.0) == ["half0"]
    assert stage.goes() == ["half0"]
    stage.submit_made("again", 50, by="job0", queue="blue", notes=APART)
    assert stage.run(after=1.0) == ["again"]
    assert stage.lies("again") == stage.lies("half1")
    # Nothing is left there, and nothing is free elsewhere.
    assert stage.consolidate(after=3_600.0) == []


def test_nobody_goes_off_a_card_that_is_slowed_down_by_heat() -> None:
    """The heat would come along, and the next card be degraded by it."""
    stage = MovingStage(nodes=(2,), moves_per_hour=0)
    stage.scattered(1)
    ((_, bad),) = stage.lies("half0")
    hot = [msgspec.structs.replace(card, health=_health(card, bad)) for card in gpus("n0", 2)]
    stage.picture.node_seen(make_node("n0", hot))
    assert stage.consolidate(after=3_600.0) == []
    assert stage.consolidation.staying == {}
    stage.wear(bad)
    assert stage.consolidate(after=3_600.0) == ["half0"]


@pytest.mark.parametrize(("drains", "moved"), [(True, ["half0"]), (False, [])])
def test_a_degraded_card_is_drained_though_nobody_is_moved_otherwise(drains: bool, moved: list[str]) -> None:
    """Whatever moves are allowed; unless the operator says otherwise."""
    stage = MovingStage(nodes=(2,), moves_per_hour=0, settings=QueueSettings(drain_degraded=drains))
    stage.scattered()
    ((_, bad),) = stage.lies("half0")
    stage.wear(bad)
    assert stage.consolidate(after=3_600.0) == moved
    # Nobody goes twice, and whoever came back stays where it is.
    assert stage.goes() == moved
    for _ in moved:
        stage.submit_made("again", 50, by="job0", queue="blue", notes=APART)
    stage.run(after=1.0)
    assert stage.consolidate(after=3_600.0) == []
    assert stage.consolidation.staying == {}


STAYS: Mapping[str, tuple[dict[str, Any], str]] = {
    "never to be evicted": ({"notes": {"preemptible": "false"}}, "it is never to be evicted (preemptible: false)"),
    "nobody makes it anew": ({"by": ""}, "no controller would make it anew"),
    "of a group": ({"group": "g", "notes": {"group-size": "1"}}, "it is of a group, and of those nobody is moved"),
    "a budget": ({"budget": True}, "it is kept by PodDisruptionBudget team/mine"),
    "no room": ({"compute": 80}, "no healthy GPU has room for it now"),
    "its queue is stopped": (
        {"queues": {"blue": {"stop": "hold"}}},
        "its queue would not let in who comes in its place",
    ),
    "its queue may use less by now": (
        {"queues": {"blue": {"limit": 30}}},
        "its queue would not let in who comes in its place",
    ),
    "kube-scheduler alone knows": (
        {"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}}},
        "only kube-scheduler knows where else it may lie",
    ),
}


@pytest.mark.parametrize("name", STAYS)
def test_whoever_can_t_lie_elsewhere_stays_on_a_degraded_card_and_is_told_why(name: str) -> None:
    """Nobody goes for nothing."""
    more, why = STAYS[name]
    stage = MovingStage({"blue": queue(guarantee=200), "red": queue()}, nodes=(2,), moves_per_hour=0)
    asked = {"queue": "blue", "notes": more.get("notes", {}), "spec": more.get("spec"), "group": more.get("group", "")}
    stage.submit("other", 30, queue="red", notes=APART)
    stage.run(after=1.0)
    asked["notes"] = {**asked["notes"], "gpu-uuid": f"!{stage.lies('other')[0][1]}"}
    if more.get("by", "job") == "":
        stage.submit("it", more.get("compute", 50), **asked)
    else:
        stage.submit_made("it", more.get("compute", 50), by="job", **asked)
    assert stage.run(after=1.0) == ["it"]
    ((_, bad),) = stage.lies("it")
    # From now on it might lie beside the other one.
    stage.unpin("it")
    stage.wear(bad)
    if "queues" in more:
        stage.queues.queues_seen({"blue": queue(**more["queues"]["blue"]), "red": queue()})
    budgets = [Budget(pods=frozenset({"it"}), allowed=0, name="team/mine")] if more.get("budget") else []
    assert stage.consolidate(after=3_600.0, budgets=budgets) == []
    assert stage.consolidation.staying == {"it": why}


def test_nobody_is_moved_onto_a_degraded_card() -> None:
    """Though there alone is room; once it is healthy again one is."""
    stage = MovingStage(nodes=(2, 1))
    (card,) = gpus("n1", 1)
    stage.picture.node_seen(make_node("n1", [sick(card)]))
    stage.scattered(compute=60)
    stage.picture.node_seen(make_node("n1", [msgspec.structs.replace(card, health=Health.DEGRADED)]))
    stage.submit("whole", 100, queue="red", notes={"gpu-uuid": "!GPU-n1-0"})
    assert stage.run() == []
    assert stage.consolidate(after=LONG) == []
    stage.picture.node_seen(make_node("n1", [card]))
    assert len(stage.consolidate(after=LONG)) == 1


def _health(gpu: Gpu, bad: str) -> Health:
    return Health.DEGRADED if gpu.uuid == bad else Health.HEALTHY


# --- of all plans ----------------------------------------------------------------------------------------------------
