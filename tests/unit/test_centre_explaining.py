"""Why a pod is where it is, or why it waits, in the words that a person reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from aliquot_core.objects import Node, Pod
from aliquot_scheduler.explaining import Explanation, by_its_condition, explain
from support.centre import NAMES, WALL, asks, bound, gpus, make_lease, make_node, make_pod

NODES = (make_node("n1", gpus("n1", 2)), make_node("n2", gpus("n2", 2), cordoned=True))
GATED = {"schedulingGates": [{"name": NAMES.gate}]}


def explained(pod: Pod, *others: Pod, nodes: Sequence[Node] = NODES) -> Explanation:
    """Explain a pod on two nodes, one of them cordoned."""
    leases = [make_lease(node.metadata.name) for node in nodes]
    return explain(pod, nodes=nodes, leases=leases, pods=[pod, *others], names=NAMES, wall=WALL)


def test_a_placed_pod_s_slices_are_told_with_who_shares_them() -> None:
    """Model, portion, and how many others."""
    pod = bound(asks("u1", 30, 8_000), node="n1", held={"GPU-n1-1": (30, 8_000)})
    other = bound(asks("u2", 40, 8_000), node="n1", held={"GPU-n1-1": (40, 8_000)})
    told = explained(pod, other)
    assert (told.state, told.node) == ("placed", "n1")
    (held,) = told.slices
    assert (held.gpu, held.compute, held.memory, held.others) == ("GPU-n1-1", 30, 8_000, 1)
    assert told.asked == ["app container main: 30 % compute, 8000 MiB memory"]


def test_a_waiting_pod_is_told_each_node_s_reason() -> None:
    """And one sentence for all of them."""
    full = [bound(asks(f"f{at}", 80, 70_000), node="n1", held={f"GPU-n1-{at}": (80, 70_000)}) for at in range(2)]
    told = explained(asks("u1", 30, 8_000, spec=GATED), *full)
    assert told.state == "waiting"
    assert told.summary == (
        "none of 2 nodes has room: 0 of 2 GPUs have 30 % free, none has also 8000 MiB (1); the node is cordoned (1)"
    )
    assert [(answer.node, answer.fits) for answer in told.nodes] == [("n1", False), ("n2", False)]


@pytest.mark.parametrize(
    ("pod", "state", "words"),
    [
        (asks("u1", 30, 8_000, spec=GATED), "waiting", "1 of 2 nodes have room; its turn comes next"),
        (asks("u1", 30, 8_000), "waiting", "something else keeps it from them: kube-scheduler has not said what"),
        (asks("u1", 30, 8_000, spec={"schedulingGates": [{"name": "x/y"}]}), "waiting", "not Aliquot's: x/y"),
        (asks("u1", 30, 8_000, node="n1"), "stuck", "without a grant"),
        (asks("u1", 30, 8_000, node="n1", annotations={NAMES.grant: "{"}), "stuck", "not readable"),
        (asks("u1", 30, 8_000, phase="Succeeded", node="n1"), "ended", "slices are free"),
        (asks("u1", 30, 8_000, annotations={NAMES.gpus: "0"}), "refused", NAMES.gpus),
        (make_pod("u1", {"name": "main"}), "other", "asks nothing"),
    ],
)
def test_each_state_has_a_sentence_that_says_what_to_do(pod: Pod, state: str, words: str) -> None:
    """Whatever state a pod is in."""
    told = explained(pod)
    assert told.state == state
    assert words in told.summary


def test_kube_scheduler_s_own_word_is_handed_on() -> None:
    """Of CPU and taints it knows, and not we."""
    status: dict[str, Any] = {"conditions": [{"type": "PodScheduled", "message": "0/2: 2 Insufficient cpu"}]}
    pod = asks("u1", 30, 8_000)
    with_word = type(pod)(metadata=pod.metadata, spec=pod.spec, status=msgspec.convert(status, type(pod.status)))
    assert "Insufficient cpu" in explained(with_word).summary


def test_a_word_on_gates_is_none_once_they_are_lifted() -> None:
    """The scheduler that the pod names has not come for it, and that may be another one than ours."""
    status: dict[str, Any] = {
        "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated", "message": "Scheduling is blocked"}]
    }
    pod = asks("u1", 30, 8_000, spec={"schedulerName": "volcano"})
    let_in = msgspec.structs.replace(pod, status=msgspec.convert(status, type(pod.status)))
    assert explained(let_in).summary.endswith("volcano (its spec.schedulerName) has not looked at it yet")


def test_a_pod_on_a_node_that_is_gone_is_told_so() -> None:
    """Until Kubernetes collects it, its slices are told as if they were there."""
    pod = bound(asks("u1", 30, 8_000), node="n9", held={"GPU-n9-1": (30, 8_000)})
    assert explained(pod).summary.startswith("it holds its slices on node n9, which is gone")


def test_who_sees_the_pod_alone_is_told_what_stands_on_it() -> None:
    """The leader's condition while it waits, kube-scheduler's word after that, and its node."""

    def said(*conditions: Any, **more: Any) -> str:
        pod = asks("u1", 30, 8_000, **more)
        status = msgspec.convert({"conditions": list(conditions)}, type(pod.status))
        return by_its_condition(msgspec.structs.replace(pod, status=status), names=NAMES).summary

    waits = {"type": NAMES.admitted, "status": "False", "reason": "OverLimit", "message": "it asks 30; queue a"}
    let_in = {"type": NAMES.admitted, "status": "True"}
    scheduler = {"type": "PodScheduled", "status": "False", "message": "0/2: 2 Insufficient cpu"}
    assert said(waits) == "it asks 30; queue a, as the leader wrote last"
    assert said(let_in, scheduler) == "its queue has not held it up: 0/2: 2 Insufficient cpu"
    assert said() == "its queue has not held it up: kube-scheduler has not said what"
    assert said(waits, node="n1") == "it is bound to node n1"
