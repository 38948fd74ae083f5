"""Why a pod is where it is, or why it waits, in the words that a person reads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from aliquot_core.objects import Node, Pod
from aliquot_scheduler.explaining import Explanation, by_its_condition, explain
from support.centre import NAMES, WALL, asks, bound, gpus, make_lease, make_node, make_pod, sick

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
        "none of 2 nodes takes it: 0 of 2 GPUs have 30 % free, 2 have 8000 MiB (1); the node is cordoned (1)"
    )
    assert [(answer.node, answer.fits) for answer in told.nodes] == [("n1", False), ("n2", False)]


@pytest.mark.parametrize(
    ("pod", "state", "words"),
    [
        (asks("u1", 30, 8_000, spec=GATED), "waiting", "1 of 2 nodes has room; its turn comes next"),
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


def test_a_pod_whose_node_s_agent_is_silent_is_stuck_until_it_has_run() -> None:
    """What its agent has to let start does not; what runs there runs on."""
    pod = bound(asks("u1", 30, 8_000), node="n1", held={"GPU-n1-1": (30, 8_000)})

    def told(pod: Pod) -> tuple[str, str]:
        found = explain(pod, nodes=NODES, leases=[], pods=[pod], names=NAMES, wall=WALL)
        return found.state, found.summary

    out = "it holds its slices on node n1; no more pods are bound there: its agent has not been heard of"
    assert told(pod) == ("stuck", f"{out}; it does not start before that is over")
    assert told(conditions(pod, phase="Running")) == ("placed", out)
    cordoned = bound(asks("u1", 30, 8_000), node="n2", held={"GPU-n2-1": (30, 8_000)})
    assert told(cordoned)[0] == "placed"


def conditions(pod: Pod, *said: Mapping[str, str], phase: str = "Pending", **more: Any) -> Pod:
    """The pod with these conditions."""
    status = {"phase": phase, "conditions": list(said), **more}
    return msgspec.structs.replace(pod, status=msgspec.convert(status, type(pod.status)))


def dying(pod: Pod) -> Pod:
    """The pod while it is being deleted."""
    meta = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-11-21T10:00:00Z")
    return msgspec.structs.replace(pod, metadata=meta)


def elsewhere(pod: Pod, **more: Any) -> Pod:
    """The pod with its binding written over."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **more))


MINE = bound(asks("u1", 30, 8_000), node="n1", held={"GPU-n1-1": (30, 8_000)})
GONE = bound(asks("u1", 30, 8_000), node="n1", held={"GPU-gone": (30, 8_000)})
REFUSED = {"type": NAMES.of("granted"), "status": "False", "reason": "Waiting", "message": "pid 4711 still uses it"}
NOTHING = "it is bound to node {} and holds nothing there: grant:"
REMEDY = re.compile("; (only the scheduler writes grants|undo what was changed).*")
HOLDS = "it holds its slices on node n1"
SAYS = "; its node's agent says: pid 4711 still uses it (Waiting)"
OTHER_POD = msgspec.structs.replace(MINE, metadata=msgspec.structs.replace(MINE.metadata, uid="u2"))
LESS = bound(asks("u1", 40, 8_000), node="n1", held={"GPU-n1-1": (30, 8_000)})
# After a downgrade: it may run, and is nobody's to delete.
LATER = asks("u1", 30, 8_000, node="n1", annotations={NAMES.grant: '{"v":2,"slices":"elsewhere"}'})
BY_LATER = (
    "it is bound to node n1; grant: a later version of Aliquot wrote it: its format is 2, and 1 is all that is read "
    "here; bring centre and agents to that version again; the pod may run on meanwhile"
)
STARTED: dict[str, Any] = {"containerStatuses": [{"name": "main", "state": {"terminated": {}}}]}

WAITS: dict[str, Any] = {
    "containerStatuses": [
        {"name": "main", "state": {"waiting": {"reason": "NoCommand", "message": "its image is not pulled"}}}
    ]
}
CREATED: dict[str, Any] = {
    "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}]
}


@pytest.mark.parametrize(
    ("pod", "state", "words", "slices"),
    [
        (MINE, "placed", HOLDS, 1),
        (dying(MINE), "placed", f"{HOLDS}; it is being deleted, and keeps them until it is gone", 1),
        (OTHER_POD, "stuck", f"{NOTHING.format('n1')} belongs to another pod (uid u1), this one is u2", 0),
        (elsewhere(MINE, node_name="n2"), "stuck", f"{NOTHING.format('n2')} is for node n1, the pod is bound to n2", 0),
        (LESS, "stuck", f"{HOLDS}; grant of container main: compute 30 where 40 was asked", 1),
        (
            conditions(LESS, phase="Running"),
            "placed",
            f"{HOLDS}; grant of container main: compute 30 where 40 was asked",
            1,
        ),
        (conditions(MINE, REFUSED), "stuck", HOLDS + SAYS, 1),
        (conditions(MINE, REFUSED, phase="Running"), "placed", HOLDS + SAYS, 1),
        (conditions(MINE, REFUSED, **STARTED), "placed", HOLDS + SAYS, 1),
        (conditions(MINE, REFUSED | {"message": ""}), "stuck", f"{HOLDS}; its node's agent says: Waiting", 1),
        (conditions(MINE, REFUSED | {"status": "True"}), "placed", HOLDS, 1),
        (LATER, "stuck", BY_LATER, 0),
        (conditions(LATER, phase="Running"), "placed", BY_LATER, 0),
        (conditions(MINE, **WAITS), "stuck", f"{HOLDS}; container main waits: its image is not pulled (NoCommand)", 1),
        (conditions(MINE, **CREATED), "placed", HOLDS, 1),
        (GONE, "stuck", f"{HOLDS}; GPU-gone is not among the node's GPUs any more", 1),
        (conditions(GONE, phase="Running"), "placed", f"{HOLDS}; GPU-gone is not among the node's GPUs any more", 1),
    ],
)
def test_a_bound_pod_is_told_what_speaks_against_its_start(pod: Pod, state: str, words: str, slices: int) -> None:
    """It holds its slices if its grant is its own, and is stuck if it has not run and something is the matter."""
    told = explained(pod)
    assert (told.state, len(told.slices)) == (state, slices)
    assert REMEDY.sub("", told.summary) == words


def test_a_pod_on_a_gpu_that_fell_sick_is_told_why() -> None:
    """With what its node says of that GPU; of a node whose GPUs can't be read nothing is made up."""
    well, ill = gpus("n1", 2)
    told = explained(MINE, nodes=[make_node("n1", (well, sick(ill)))])
    assert (told.state, told.summary) == ("stuck", f"{HOLDS}; GPU-n1-1 is sick (XID 79)")
    assert explained(MINE, nodes=[make_node("n1", (sick(well), ill))]).summary == HOLDS
    unread = explained(MINE, nodes=[make_node("n1", (), annotations={NAMES.inventory: "{"})])
    assert "is not among" not in unread.summary
    assert "its inventory can't be used" in unread.summary


def test_a_pod_that_is_being_deleted_has_no_turn() -> None:
    """Behind its gate only a finalizer keeps it there."""
    told = explained(dying(asks("u1", 30, 8_000, spec=GATED)))
    assert (told.state, told.summary, told.nodes) == ("ending", "it is being deleted, and gets no turn any more", ())


@pytest.mark.parametrize(
    ("scheduler", "told"),
    [("", False), ("aliquot", False), ("volcano", True), ("default-scheduler", True)],
)
def test_a_gated_pod_of_another_scheduler_is_told_that_it_must_ask_us(
    scheduler: str,
    told: bool,
) -> None:
    """Else lifting its gate starts nothing; ours is called as the settings say."""
    pod = asks("u1", 30, 8_000, spec={**GATED, "schedulerName": scheduler})
    words = f"; its spec.schedulerName is {scheduler}, which must ask Aliquot's extender, or it never starts"
    assert explained(pod).summary.endswith(words) is told
    leases = [make_lease("n1")]
    ours = explain(pod, nodes=NODES, leases=leases, pods=[pod], names=NAMES, wall=WALL, scheduler=scheduler or "x")
    assert "extender" not in ours.summary
    let_in = elsewhere(pod, scheduling_gates=[])
    assert "extender" not in explained(let_in).summary


def test_one_node_alone_is_told_of_as_one() -> None:
    """No node is counted where there is one."""
    one, ill = NODES[:1], [make_node("n1", [sick(card) for card in gpus("n1", 2)])]
    pod = asks("u1", 30, 8_000, spec=GATED)
    assert explained(pod, nodes=one).summary.startswith("1 of 1 node has room; its turn comes next")
    lost = "the only node does not take it: none of its GPUs can be given: 2 are sick (XID 79)"
    assert explained(pod, nodes=ill).summary == lost
    far = asks("u1", 30, 8_000, spec={**GATED, "nodeSelector": {"zone": "x"}})
    assert explained(far, nodes=one).summary.startswith("the only node does not take it: 1 node has room on its GPUs")
    assert explained(pod, nodes=[]).summary == "the cluster has no nodes"


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
    deleted = {"deletionTimestamp": "2026-11-21T10:00:00Z"}
    told = "it is bound to node n1; it is being deleted; its node's agent says: pid 4711 still uses it (Waiting)"
    assert said(REFUSED, node="n1", **deleted) == told
    assert said(waits, **deleted) == "it is being deleted, and gets no turn any more"


def test_a_pod_of_a_group_is_promised_no_turn_for_itself() -> None:
    """Its condition may say that there is no room for all of them."""
    pod = asks("u1", 30, 8_000, labels={NAMES.group: "g"}, annotations={NAMES.group_size: "4"}, spec=GATED)
    told = explained(pod).summary
    assert told == "1 of 2 nodes has room for this pod alone; those of its group come in together, once all have room"
