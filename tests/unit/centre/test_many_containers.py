"""A pod is laid out container by container on the leader's loop, so it may have many that ask, and not endlessly so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from aliquot_core.objects import Pod
from aliquot_core.request import parse_request
from aliquot_core.request_rules import MOST_CONTAINERS
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.admission.validation import judge
from aliquot_scheduler.explaining import explain
from aliquot_scheduler.fit import layout
from support.centre import NAMES, WALL, container, gpus, make_lease, make_node, make_pod
from support.queue_stage import GATED, Stage

WHY = "spec: 33 containers that ask for a slice are more than 32; put them into several pods"
NODES = 5


def pod_of(uid: str, apps: int, *, inits: int = 0, plain: int = 0) -> Pod:
    """A pod of so many containers that ask for a little, and of some that ask for nothing."""
    others = [{"name": f"plain{at}"} for at in range(plain)]
    asking = [container(f"app{at}", (1, 300 + at)) for at in range(apps)]
    starting = [container(f"init{at}", (1, 300)) for at in range(inits)]
    return make_pod(uid, *asking, *others, inits=starting, spec=GATED)


@pytest.mark.parametrize(("apps", "inits"), [(33, 0), (1, 32), (400, 400)])
def test_endlessly_many_are_refused_at_creation(apps: int, inits: int) -> None:
    """With what is too much, and what to do instead; init containers are laid out too."""
    said = judge(pod_of("p", apps, inits=inits), names=NAMES, settings=AdmissionSettings()).problems
    why = f"spec: {apps + inits} containers that ask for a slice are more than {MOST_CONTAINERS}; put them into "
    assert [str(one) for one in said] == [
        f"{why}several pods, or let those that work one after another share a container"
    ]


def test_many_pass_and_others_are_not_counted() -> None:
    """The limit itself is no problem, nor is any number of containers that ask for nothing."""
    pod = pod_of("p", 20, inits=12, plain=100)
    assert judge(pod, names=NAMES, settings=AdmissionSettings()).problems == ()
    assert len(parse_request(pod, names=NAMES).containers) == MOST_CONTAINERS


def test_who_came_past_the_webhook_waits_and_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is laid out nowhere; filter and `explain` say why it waits, and the next pod has its turn."""
    laid: list[str] = []

    def noted(pod: Pod, *asked: Any, **more: Any) -> Any:
        laid.append(pod.key)
        return layout.lay_out(pod, *asked, **more)

    monkeypatch.setattr("aliquot_scheduler.fit.finder.lay_out", noted)
    stage = Stage({}, nodes=(2,) * NODES)
    pod = pod_of("p", 33)
    stage.see(pod)
    stage.submit("q", 50)
    assert stage.round() == ["q"]
    names = list(stage.picture.nodes)
    filtered = stage.desk.filter(pod, names, now=stage.now)
    nodes, leases = [make_node(name, gpus(name, 2)) for name in names], [make_lease(name) for name in names]
    found = explain(pod, nodes=nodes, leases=leases, pods=[pod], names=NAMES, wall=WALL)
    assert not filtered.nodes
    assert all(WHY in said for said in (*filtered.unresolvable.values(), found.summary))
    assert len(filtered.unresolvable) == NODES
    assert set(laid) == {stage.pods["q"].key}


# Parts of four GPUs, and of eight, that fill each to the last percent and MiB.
OF_FOUR = (
    *((30, 60_000), (40, 30_000), (30, 35_000), (55, 5_000), (35, 10_000), (80, 30_000)),
    *((10, 10_000), (25, 40_000), (25, 35_000), (10, 40_000), (15, 15_000), (45, 10_000)),
)
OF_EIGHT = (
    *((70, 5_000), (50, 5_000), (20, 5_000), (15, 10_000), (20, 55_000), (30, 20_000), (45, 50_000), (15, 15_000)),
    *((55, 45_000), (55, 65_000), (10, 15_000), (10, 40_000), (30, 15_000), (30, 5_000), (40, 35_000), (20, 60_000)),
    *((75, 15_000), (30, 5_000), (40, 30_000), (50, 10_000), (5, 60_000), (40, 5_000), (25, 25_000), (20, 45_000)),
)


def filling(asked: Sequence[tuple[int, int]]) -> Pod:
    """A pod whose containers ask so."""
    return make_pod("p", *(container(f"c{at}", one) for at, one in enumerate(asked)), spec=GATED, namespace="team")


def test_many_that_fill_an_empty_node_are_let_in() -> None:
    """Laid the largest first there is no room for the last ones; on an empty node it is looked further."""
    stage = Stage({}, nodes=(4,))
    stage.see(filling(OF_FOUR))
    assert stage.round() == ["p"]


def test_a_search_that_is_given_up_is_no_want_of_room() -> None:
    """Nobody is on the node, and there is a way: it is said that none was found, and not that there is none."""
    stage = Stage({}, nodes=(8,))
    stage.see(filling(OF_EIGHT))
    assert stage.round() == []
    filtered = stage.desk.filter(stage.pods["p"], ["n0"], now=stage.now)
    why = "nobody is on its GPUs, and of the many ways to lay 24 containers on them none was found in time"
    (waiter,) = stage.queues.waiting()
    assert stage.queues.notice(waiter).reason != "NeverFits"
    found = explain(
        stage.pods["p"],
        nodes=[make_node("n0", gpus("n0", 8))],
        leases=[make_lease("n0")],
        pods=[],
        names=NAMES,
        wall=WALL,
    )
    assert [(one.fits, one.why) for one in found.nodes] == [(False, why)]
    assert not filtered.nodes
