"""One cause for each node that does not take a pod: hunted on nodes of mixed GPUs, against plain search."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aliquot_agent.starting.decision import Known
from aliquot_agent.starting.misfit import misfit
from aliquot_scheduler.deciding.places import Places
from aliquot_scheduler.explaining import explain
from aliquot_scheduler.extender.decisions import Filtered
from aliquot_scheduler.fit.bounds import ANYWHERE
from aliquot_scheduler.fit.demand import demand_of
from aliquot_scheduler.fit.finder import Finder
from aliquot_scheduler.fit.refusals import Refusal
from aliquot_scheduler.picture.picture import Picture
from support.centre import NAMES, WALL, make_lease, picture_with
from support.mixed_node import NODE, Scene, drawn
from support.queue_stage import Stage
from support.recounting import is_true

SEEDS = st.integers(0, 2**32)


def pictured(scene: Scene) -> Picture:
    """As the centre is told of it."""
    picture = picture_with(scene.node())
    for holder in scene.holders():
        picture.pod_seen(holder)
    return picture


def refusal(scene: Scene) -> Refusal | None:
    """Why the node does not take the pod; None if it does."""
    picture = pictured(scene)
    finder, demand, row = Finder(picture=picture, names=NAMES), demand_of(scene.request), picture.nodes[NODE].row
    return None if finder.survey(scene.pod, demand).fits[row] else finder.refusals(demand, {NODE: row})[NODE]


def filtered(scene: Scene) -> Filtered:
    """What kube-scheduler is told of the node."""
    places = Places(picture=pictured(scene), names=NAMES)
    told, _ = places.among(scene.pod, demand_of(scene.request), ANYWHERE, [NODE], now=0.0)
    return told


def explained(scene: Scene) -> tuple[bool, str]:
    """What somebody is told who asks why."""
    pods = [scene.pod, *scene.holders()]
    told = explain(scene.pod, nodes=[scene.node()], leases=[make_lease(NODE)], pods=pods, names=NAMES, wall=WALL)
    return told.nodes[0].fits, told.nodes[0].why


def is_never(scene: Scene) -> bool:
    """Whether its queue says that no node could take it, were it empty."""
    stage = Stage({}, nodes=())
    stage.picture.node_seen(scene.node())
    for holder in scene.holders():
        stage.see(holder)
    stage.beat()
    stage.see(scene.pod)
    (waiter,) = stage.queues.waiting()
    return stage.queues.notice(waiter).reason == "NeverFits"


@given(seed=SEEDS, apart=st.booleans())
@example(seed=821, apart=False)
@example(seed=2731, apart=False)
@example(seed=3897, apart=False)
# Init containers over several GPUs, on which the most of each piece by its place need not meet.
@example(seed=14307, apart=False)
@example(seed=19921, apart=True)
# An init container over more GPUs than its app container has, whose first piece finds room beside those alone.
@example(seed=6663, apart=False)
@example(seed=8000, apart=True)
@example(seed=10303, apart=False)
@settings(max_examples=400, deadline=None)
def test_a_node_takes_a_pod_where_there_is_a_way_to_lay_its_containers(*, seed: int, apart: bool) -> None:
    """And nowhere else; whichever GPU would suit each of them best."""
    scene = drawn(seed, apart=apart)
    assert (refusal(scene) is None) is scene.fits(emptied=False)


@given(seed=SEEDS, apart=st.booleans())
@example(seed=1045, apart=False)
@example(seed=1251, apart=False)
@example(seed=2457, apart=False)
@example(seed=8789, apart=False)
@example(seed=308, apart=False)
@example(seed=3320, apart=False)
@settings(max_examples=400, deadline=None)
def test_a_cause_is_final_where_the_node_would_not_take_the_pod_if_it_were_empty(*, seed: int, apart: bool) -> None:
    """And nowhere else, whatever its GPUs have and however the pod is cut up; by its queue as well."""
    scene = drawn(seed, apart=apart)
    if (found := refusal(scene)) is not None:
        assert found.final is not scene.fits(emptied=True)


@pytest.mark.parametrize("apart", [False, True], ids=["as nodes are", "each GPU its own modes"])
def test_a_node_that_has_room_has_a_plan_that_its_agent_takes(*, apart: bool) -> None:
    """Of thousands of scenes: filter and plan say the same, and no container is in a mode that a GPU of it has not."""
    for seed in range(3_000):
        scene = drawn(seed, apart=apart)
        picture, demand = pictured(scene), demand_of(scene.request)
        finder, known = Finder(picture=picture, names=NAMES), picture.nodes[NODE]
        plan = finder.plan(scene.pod, demand, node=NODE)
        assert (plan is not None) is bool(finder.survey(scene.pod, demand).fits[known.row]), seed
        if plan:
            agent = Known(node=NODE, names=NAMES, inventory=known.inventory, pods={}, recorded=())
            assert misfit(plan.grant, known=agent) == "", seed


@given(seed=SEEDS, apart=st.booleans())
@settings(max_examples=400, deadline=None)
def test_each_number_of_a_refusal_is_so_when_it_is_counted_anew(*, seed: int, apart: bool) -> None:
    """And which GPUs are counted is said where these are not all."""
    scene = drawn(seed, apart=apart)
    found = refusal(scene)
    assert found is None or is_true(scene, found.why), found


@given(seed=SEEDS, apart=st.booleans())
@settings(max_examples=150, deadline=None)
def test_kube_scheduler_explain_and_queue_are_told_the_same(*, seed: int, apart: bool) -> None:
    """The sentence word for word; where evicting can't help, by the extender's list and by the queue."""
    scene = drawn(seed, apart=apart)
    found, told = refusal(scene), filtered(scene)
    if found is None:
        assert (told.nodes, told.failed, told.unresolvable) == ([NODE], {}, {})
        assert explained(scene) == (True, "has room")
        return
    expected = ({}, {NODE: found.why}) if found.final else ({NODE: found.why}, {})
    assert (told.failed, told.unresolvable) == expected
    assert explained(scene) == (False, found.why)
    assert is_never(scene) is found.final
