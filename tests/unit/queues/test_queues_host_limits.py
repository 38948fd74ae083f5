"""What queues limit of nodes' CPU and memory: by all ways in which a pod may ask for it, when it comes and later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from aliquot_core.objects import ContainerStatus, Pod, ResourceRequirements
from aliquot_scheduler.queues.said.spec import HostLimits
from support.queue_stage import Stage, queue, requesting

LIMITED = {"q": queue(hosts=HostLimits(cpu="8"))}


def stage_of_two_nodes() -> Stage:
    """More CPU than the queue may have."""
    stage = Stage(LIMITED, nodes=(2, 2))
    for known in list(stage.picture.nodes.values()):
        node = known.node
        status = msgspec.structs.replace(node.status, allocatable={**node.status.allocatable, "cpu": "16"})
        stage.picture.node_seen(msgspec.structs.replace(node, status=status))
    return stage


def cpu_charged(stage: Stage) -> int:
    """Thousandths that the queue holds."""
    return stage.queues.register.books.ledger.accounts["q"].used[-2]


ASKS: dict[str, dict[str, Any]] = {
    "of its container": {"requests": {"cpu": "6"}},
    "of all its containers": {"spec": {"resources": {"requests": {"cpu": "6"}, "limits": {"cpu": "7"}}}},
    "by a limit of all its containers": {"spec": {"resources": {"limits": {"cpu": "6"}}}},
    "for its sandbox": {"spec": {"overhead": {"cpu": "6"}}},
    "of a sidecar": {
        "spec": {
            "initContainers": [
                {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "6"}}},
            ]
        }
    },
}


@pytest.mark.parametrize("asked", ASKS.values(), ids=ASKS)
def test_a_queue_lets_in_no_more_cpu_than_it_may_have(asked: Mapping[str, Any]) -> None:
    """Wherever in a pod it is written."""
    stage = stage_of_two_nodes()
    for uid in ("first", "second"):
        stage.submit(uid, 10, queue="q", **asked)
    assert stage.run() == ["first"]
    assert cpu_charged(stage) == 6000


def resized(pod: Pod, *, asks: str, has: str) -> Pod:
    """The pod as the watch tells of it after somebody has changed what its container asks for."""
    pod = requesting(pod, {"cpu": asks})
    told = ContainerStatus(
        name="main", resources=ResourceRequirements(requests={"cpu": has}), allocated_resources={"cpu": has}
    )
    status = msgspec.structs.replace(pod.status, container_statuses=[told])
    return msgspec.structs.replace(pod, status=status)


def test_a_pod_that_is_resized_where_it_runs_is_charged_with_what_it_takes_now() -> None:
    """Upwards at once, downwards when its kubelet has done it; and the next leader finds the same."""
    stage = stage_of_two_nodes()
    stage.submit("p", 10, queue="q", requests={"cpu": "2"})
    stage.submit("other", 10, queue="q", requests={"cpu": "1"})
    assert stage.run() == ["p", "other"]
    stage.bind("p", "other")
    for asks, has, charged in (("6", "2", 7000), ("6", "6", 7000), ("1", "6", 7000), ("1", "1", 2000)):
        stage.see(resized(stage.pods["p"], asks=asks, has=has))
        assert cpu_charged(stage) == charged
        after = Stage(LIMITED, nodes=(2, 2))
        for pod in stage.pods.values():
            after.see(pod)
        assert cpu_charged(after) == charged
    stage.submit("next", 10, queue="q", requests={"cpu": "6"})
    assert stage.round() == ["next"]


def test_a_pod_that_grows_between_its_turn_and_its_binding_waits_anew() -> None:
    """It was let in for less; its queue may not have what it asks now."""
    stage = stage_of_two_nodes()
    stage.submit("running", 10, queue="q", requests={"cpu": "4"})
    assert stage.run() == ["running"]
    stage.bind("running")
    stage.submit("p", 10, queue="q", requests={"cpu": "2"})
    assert stage.round() == ["p"]
    stage.see(requesting(stage.pods["p"], {"cpu": "5"}))
    assert (cpu_charged(stage), stage.round()) == (4000, [])
    stage.see(requesting(stage.pods["p"], {"cpu": "4"}))
    assert (stage.round(), cpu_charged(stage)) == (["p"], 8000)
