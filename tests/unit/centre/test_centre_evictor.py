"""Those who have to go are asked to: by the eviction subresource, once, whatever fails and whoever dies meanwhile."""

from __future__ import annotations

import pytest

from aliquot_kube.errors import (
    UnreachableError,
)
from aliquot_scheduler.queues.said.settings import QueueSettings
from support.centre import make_node
from support.evicting import Scene


async def test_victims_are_evicted_and_the_owner_is_let_in() -> None:
    """Each by its own UID and grace, once; and the room goes to whom it was made for."""
    scene = Scene()
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(5)
    assert (scene.api.tried, scene.api.graces) == (["b3"], {"b3": None})
    scene.go()
    await scene.look(5)
    assert scene.stage.pods["r0"].spec.node_name
    assert (scene.api.tried, scene.evictor.evicted) == (["b3"], 1)


@pytest.mark.parametrize(("whose", "told"), [("team", "team/pod-r0"), ("other", "a pod")])
async def test_a_victim_is_told_for_which_queue_it_goes_and_names_of_its_own_namespace_alone(
    whose: str, told: str
) -> None:
    """Other tenants' pods are none of its business."""
    scene = Scene()
    scene.stage.submit("r0", 100, queue="red", user=whose)
    await scene.look(5)
    notes = [one["note"] for one in scene.api.events if one["reason"] == "MakesRoom"]
    assert notes == [f"it makes room for {told} of queue red"]


@pytest.mark.parametrize("way", ["evicted", "deleted"])
async def test_nobody_is_given_more_time_than_the_operator_says(way: str) -> None:
    """Whoever gives itself a day is evicted, or deleted against its budget, with the longest grace there is."""
    scene = Scene(settings=QueueSettings(max_grace=90, budget_grace=1), grace=86_400)
    if way == "deleted":
        scene.api.budgets = [{"metadata": {"name": "mine", "namespace": "team"}, "spec": {"selector": {}}}]
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(15)
    assert (scene.api.deleted if way == "deleted" else scene.api.evicted) == ["b3"]
    assert scene.api.graces == {"b3": 90}


async def test_whom_the_kubelet_does_not_end_in_time_is_told_with_its_node() -> None:
    """Once, as a warning on the pod; and another goes."""
    scene = Scene()
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(80)
    assert scene.warnings() == []
    await scene.look(60)
    ((who, what),) = scene.warnings()
    assert who == "pod-b3"
    assert "node n0 has not ended it" in what
    assert scene.api.evicted == ["b3", "b2"]


async def test_one_of_whom_the_watch_is_late_to_tell_is_not_asked_twice() -> None:
    """The API server has taken the eviction, and for seconds nothing is heard of it."""
    scene = Scene()
    scene.api.stage = None
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(5)
    assert scene.api.tried == ["b3"]


async def test_nobody_is_asked_while_nothing_may_be_decided() -> None:
    """What is known may be old, or another one leads."""
    scene = Scene()
    scene.silent = "another leads"
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(5)
    assert scene.api.tried == []


async def test_nobody_goes_for_one_that_is_gone() -> None:
    """A preemptor that is deleted before anybody was asked takes the decision with it."""
    scene = Scene()
    scene.api.refusing["b3"] = [UnreachableError("no")] * 3
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(2)
    scene.stage.gone("r0")
    await scene.look(5)
    assert scene.api.evicted == []
    assert len(scene.stage.queues.register.clearings) == 0


async def test_a_lost_node_calls_it_off() -> None:
    """What was to be made room on is out: whoever waits stands in line again, and nobody else has to go there."""
    scene = Scene()
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(3)
    cards = scene.stage.picture.nodes["n0"].inventory.gpus
    scene.stage.picture.node_seen(make_node("n0", cards, cordoned=True))
    await scene.look(20)
    assert scene.api.evicted == ["b3"]
    assert scene.stage.queues.is_in_line("r0")


async def test_one_that_does_not_go_is_given_up() -> None:
    """It ignores SIGTERM, and its node does not help: after a minute more than its grace another goes, once."""
    scene = Scene()
    scene.stage.submit("r0", 100, queue="red")
    await scene.look(80)
    assert scene.api.evicted == ["b3"]
    await scene.look(40)
    assert scene.api.evicted == ["b3", "b2"]
    scene.stage.gone("b2")
    await scene.look(2)
    assert scene.stage.pods["r0"].spec.node_name
