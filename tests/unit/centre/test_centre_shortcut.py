"""A pod that had a turn is told of the node that its turn found, alone: kube-scheduler then weighs no others."""

from __future__ import annotations

import msgspec
import pytest

from aliquot_core.objects import Taint
from aliquot_scheduler.centre.pod_patches import FEW_NODES, status_of
from support.centre import NAMES
from support.queue_stage import Stage, queue

NODES = ["n0", "n1", "n2"]


@pytest.mark.parametrize("whose", ["nobody's", "a queue's", "a group's", "never evicted"])
def test_the_node_of_a_turn_is_told_alone_and_once(whose: str) -> None:
    """Whosever the pod is; who comes a second time could not be bound there, and is told of all."""
    stage = Stage({"q": queue(guarantee=400)}, nodes=(2, 2, 2))
    notes = {"a group's": {"group-size": "1"}, "never evicted": {"preemptible": "false"}}.get(whose, {})
    home = "" if whose == "nobody's" else "q"
    pod = stage.submit("p", 50, queue=home, group="g" if whose == "a group's" else "", notes=notes)
    assert stage.round() == ["p"]
    stage.lift("p")
    pod = stage.pods["p"]
    assert not pod.spec.scheduling_gates
    assert len(stage.desk.filter(pod, NODES, now=stage.now).nodes) == 1
    assert stage.desk.filter(pod, NODES, now=stage.now).nodes == NODES


def test_a_pod_that_asks_for_something_else_meanwhile_is_told_of_all() -> None:
    """A promise is of what was asked."""
    stage = Stage({"q": queue(guarantee=400)}, nodes=(2, 2, 2))
    stage.submit("p", 50, queue="q")
    stage.round()
    stage.lift("p")
    pod = stage.pods["p"]
    pod.metadata.annotations[NAMES.of("placement")] = "spread"
    assert stage.desk.filter(pod, NODES, now=stage.now).nodes == NODES


SOFT, HARD = Taint(key="old", effect="PreferNoSchedule"), Taint(key="old", effect="NoSchedule")
STANDS_IT = [{"key": "old", "operator": "Exists"}]


@pytest.mark.parametrize(
    ("taint", "tolerations", "alone"),
    [
        (SOFT, [], False),
        (SOFT, STANDS_IT, True),
        (SOFT, [{**STANDS_IT[0], "effect": "NoSchedule"}], False),
        (HARD, STANDS_IT, True),
    ],
    ids=["soft", "soft, tolerated", "soft, another effect tolerated", "hard, tolerated"],
)
def test_a_node_that_keeps_a_pod_off_as_far_as_it_can_is_not_told_alone(
    taint: Taint, tolerations: list[dict[str, str]], *, alone: bool
) -> None:
    """kube-scheduler weighs it against others then; nor is the pod nominated there, which would come to the same."""
    stage = Stage({"q": queue(guarantee=400)}, nodes=(2, 2, 2))
    for known in list(stage.picture.nodes.values()):
        spec = msgspec.structs.replace(known.node.spec, taints=(taint,))
        stage.picture.node_seen(msgspec.structs.replace(known.node, spec=spec))
    stage.submit("p", 50, queue="q", spec={"tolerations": tolerations})
    assert stage.round() == ["p"]
    nominated = status_of(stage.turns["p"], names=NAMES, at="2026-11-24T00:00:00Z", nodes=2 * FEW_NODES)
    assert (nominated is not None) is alone
    stage.lift("p")
    assert (len(stage.desk.filter(stage.pods["p"], NODES, now=stage.now).nodes) == 1) is alone
