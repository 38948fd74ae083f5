"""Requests for CPU and memory beyond all nodes: the API server takes them of anybody."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_core.objects import Node, Pod
from support.centre import MEMORY, NAMES, counting, gpus, make_node, make_pod
from support.queue_stage import Stage

replace = msgspec.structs.replace
ROOM = {"cpu": "8", "memory": "32Gi", "pods": "10"}
QUANTITIES = st.sampled_from(["1", "10P", "9E", "7Ei", "9223372036854775807", "1e15"])


def node() -> Node:
    """With one GPU."""
    made = make_node("n0", gpus("n0", 1))
    return counting(replace(made, status=replace(made.status, allocatable=ROOM)))


def plain(uid: str, requests: dict[str, Any]) -> Pod:
    """A pod without slices that somebody sent to the node by name."""
    pod = make_pod(uid, {"name": "main", "resources": {"requests": requests}})
    return replace(pod, spec=replace(pod.spec, node_name="n0"))


@given(asked=st.lists(st.tuples(QUANTITIES, QUANTITIES), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_no_request_is_too_large_to_count(asked: list[tuple[str, str]]) -> None:
    """Neither of pods that lie on a node, nor of those that wait: one pod could end every replica."""
    stage = Stage({}, nodes=())
    stage.picture.node_seen(node())
    stage.beat()
    lie = [
        plain(f"lies-{at}", {"cpu": cpu, "memory": memory, NAMES.compute: cpu, NAMES.memory: memory})
        for at, (cpu, memory) in enumerate(asked)
    ]
    for at, pod in enumerate(lie):
        stage.picture.pod_lies(pod)
        cpu, memory = asked[at]
        stage.submit(f"waits-{at}", 10, 1000, requests={"cpu": cpu, "memory": memory})
        stage.run()
    for at, pod in enumerate(lie):
        stage.gone(f"waits-{at}")
        stage.picture.pod_gone(pod)
    assert stage.picture.hosts.free[0].tolist() == [8000, 32 * 2**30, 10, 100, MEMORY, 32]
