"""The centre on a real cluster when turns lead to nothing, nodes go, and leaders die."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime
from functools import partial

import pytest

from aliquot_core.names import LEADER_LEASE
from aliquot_scheduler.deciding.missed import Said
from cluster.centre.asked import ZONE, asking, beside, grant_of, slice_of
from cluster.centre_half import NAMES, CentreHalf
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.pods import pod, stays
from cluster.node_half import NodeHalf
from cluster.refusals import LEASES
from support.lateness import Lateness

LEADER = f"{LEASES}/{LEADER_LEASE}"
# Two heart-beats of an agent; and how long a leader on a busy machine may take until it looks at the clock again.
TWO_HEART_BEATS, LOOKS_AGAIN = 10.0, 3.0
# The next leader of a small cluster, and those of the old one's pods that come first: 0.1 s and 1 s.
READS_AND_BINDS = 5.0
# The pod comes to its turn, is bound and starts.
NEIGHBOURS_WITHIN = 15.0


def test_a_turn_that_leads_to_no_binding_is_taken_back_and_comes_again(
    cluster: ClusterHarness, centre: CentreHalf, namespace: str
) -> None:
    """Meanwhile its room is others', and at its new turn kube-scheduler looks at it at once."""
    stuck = cluster.create_pod(asking("stuck", namespace, 400, 100_000, lasting=True, affinity=beside("late")))
    cluster.wait_for("its turn to be taken back", lambda: centre.logged("room taken back") or None)
    others = [cluster.create_pod(asking(f"other{number}", namespace, 400, 100_000)) for number in range(2)]
    for one in others:
        cluster.wait_for_phase(one, "Succeeded")
    late = pod("late", stays(), namespace=namespace, labels={"app": "late"}, nodeSelector={ZONE: "node2"})
    cluster.create_pod(late)
    assert cluster.wait_for_phase(stuck, "Running")["spec"]["nodeName"] == "node2"


def test_a_pod_that_no_node_can_take_keeps_its_room_from_nobody(
    cluster: ClusterHarness, centre: CentreHalf, namespace: str
) -> None:
    """kube-scheduler counts what is nominated as if it ran there; here it is all that both nodes have."""
    before = centre.turns_missed()
    stuck = []
    for number in range(2):
        # What volumes there are only kube-scheduler knows.
        missing = [{"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}]
        wanted = asking(f"stuck{number}", namespace, 400, 100_000, lasting=True, volumes=missing)
        stuck.append(cluster.create_pod(wanted))

    def nominated(one: Json) -> bool:
        return "nominatedNodeName" in cluster.current(one)["status"]

    for one in stuck:
        # At its second turn: its first one says nothing in its status, among so few nodes.
        cluster.wait_for("it to be nominated", partial(nominated, one))
        # For five seconds at least: then it has another turn.
        cluster.wait_for("its nomination to be taken back", lambda one=one: not nominated(one))  # type: ignore[misc]
    others = [cluster.create_pod(asking(f"other{number}", namespace, 400, 100_000)) for number in range(2)]
    for one in others:
        cluster.wait_for_phase(one, "Succeeded")
    assert centre.logged("room taken back")
    # It was there, and has said so: nobody is to be woken because it is silent.
    missed = centre.turns_missed()
    assert missed[Said.UNSCHEDULABLE] >= before[Said.UNSCHEDULABLE] + len(stuck)
    assert missed[Said.NOTHING] == before[Said.NOTHING]


def test_a_cordoned_node_gets_nothing_more(cluster: ClusterHarness, centre: CentreHalf, namespace: str) -> None:
    """Out within two seconds, and in again within two."""
    path = "/api/v1/nodes/node1"

    def judged_within(message: str, *, unschedulable: bool | None) -> float:
        before, asked = len(centre.logged(message)), datetime.now(UTC)
        cluster.api.patch(path, {"spec": {"unschedulable": unschedulable}})
        line = cluster.wait_for(f"node1: {message}", lambda: centre.logged(message)[before:])[0]
        assert line["node"] == "node1"
        return (datetime.fromisoformat(line["time"]) - asked).total_seconds()

    try:
        out = judged_within("node out", unschedulable=True)
        made = [cluster.create_pod(asking(f"one{number}", namespace, 30, 4_000)) for number in range(4)]
        assert {cluster.wait_for_phase(one, "Succeeded")["spec"]["nodeName"] for one in made} == {"node2"}
    finally:
        back = judged_within("node in", unschedulable=None)
    assert max(out, back) < 2.0


def test_a_node_whose_agent_is_killed_is_out_within_two_heart_beats(
    cluster: ClusterHarness, centre: CentreHalf, halves: dict[str, NodeHalf], namespace: str
) -> None:
    """Pods go to the other node meanwhile, and the agent's return brings it back."""
    half = halves["node1"]
    before = len(centre.logged("node out"))
    half.agent.kill()
    line = _out(cluster, centre, "not heard of any more", before=before)
    # By the centre's own clock, from the last beat that it has seen: how busy the machine is matters little.
    assert TWO_HEART_BEATS <= line["silent_s"] < TWO_HEART_BEATS + LOOKS_AGAIN
    made = cluster.create_pod(asking("one", namespace, 30, 4_000))
    assert cluster.wait_for_phase(made, "Succeeded")["spec"]["nodeName"] == "node2"
    _back(cluster, centre, half)


def test_a_node_whose_agent_leaves_is_out_at_once(
    cluster: ClusterHarness, centre: CentreHalf, halves: dict[str, NodeHalf]
) -> None:
    """It says so before it goes."""
    half, asked = halves["node1"], datetime.now(UTC)
    before = len(centre.logged("node out"))
    half.agent.stop()
    line = _out(cluster, centre, "its agent is leaving", before=before)
    assert _after(asked, line) < TWO_HEART_BEATS
    _back(cluster, centre, half)


def test_a_node_whose_plugin_is_away_is_out_at_once(
    cluster: ClusterHarness, centre: CentreHalf, halves: dict[str, NodeHalf]
) -> None:
    """Its agent says so: the kubelet would fail whoever is bound there."""
    half, asked = halves["node1"], datetime.now(UTC)
    before, inside = len(centre.logged("node out")), len(centre.logged("node in"))
    half.endpoint.kill()
    line = _out(cluster, centre, "does not know Aliquot's device plugin", before=before)
    assert _after(asked, line) < TWO_HEART_BEATS
    half.start_endpoint()
    cluster.wait_for("node1 to be in", lambda: len(centre.logged("node in")) > inside or None)
    half.wait_ready()


def test_a_gpu_that_is_not_to_be_used_is_out_within_two_heart_beats(
    cluster: ClusterHarness, centre: CentreHalf, halves: dict[str, NodeHalf]
) -> None:
    """The others of its node are not touched; sick is sick, whoever says so."""
    path = "/api/v1/nodes/node1"

    def until(gpus: int) -> float:
        asked = time.monotonic()
        cluster.wait_for(f"{gpus} GPUs", lambda: centre.gauge("aliquot_centre_gpus") == gpus or None)
        return time.monotonic() - asked

    until(8)
    annotations = {NAMES.cordoned_gpus: halves["node1"].gpu(2)}
    try:
        cluster.api.patch(path, {"metadata": {"annotations": annotations}})
        took = until(7)
    finally:
        cluster.api.patch(path, {"metadata": {"annotations": dict.fromkeys(annotations)}})
        until(8)
    assert took < TWO_HEART_BEATS


@pytest.mark.usefixtures("centre")
def test_the_neighbours_of_a_cordoned_gpu_in_use_are_all_given(cluster: ClusterHarness, namespace: str) -> None:
    """kube-scheduler counts the pod on it, and so the agent tells of what that holds beside the healthy ones."""
    path, node1 = "/api/v1/nodes/node1", {ZONE: "node1"}
    holder = cluster.create_pod(asking("holder", namespace, 100, 9_000, lasting=True, nodeSelector=node1))
    cluster.wait_for_phase(holder, "Running")
    gpu = slice_of(cluster, holder).gpu
    annotations = {NAMES.cordoned_gpus: gpu}

    def allocatable() -> Json:
        told: Json = cluster.api.get(path)["status"]["allocatable"]
        return told

    before = allocatable()
    try:
        with Lateness() as lateness:
            cluster.api.patch(path, {"metadata": {"annotations": annotations}})
            # By then it has told of the ids too.
            memory = NAMES.memory
            cluster.wait_for("the kubelet to have counted", lambda: allocatable()[memory] != before[memory])
            healthy = int(before[NAMES.compute]) - 100
            asked = time.monotonic()
            others = cluster.create_pod(asking("others", namespace, healthy, 9_000, lasting=True, nodeSelector=node1))
            cluster.wait_for_phase(others, "Running")
            took = time.monotonic() - asked
        assert gpu not in {part.gpu for _, part in grant_of(cluster, others).slices()}
        assert took < NEIGHBOURS_WITHIN + 10 * lateness.worst
    finally:
        cluster.api.patch(path, {"metadata": {"annotations": dict.fromkeys(annotations)}})


def _out(cluster: ClusterHarness, centre: CentreHalf, why: str, *, before: int) -> Json:
    """What the centre says of node1 going out for this reason, after so many lines."""
    found: list[Json] = cluster.wait_for(
        f"node1 to be out: {why}",
        lambda: [line for line in centre.logged("node out")[before:] if why in line["reason"]],
    )
    assert found[0]["node"] == "node1"
    return found[0]


def _after(asked: datetime, line: Json) -> float:
    return (datetime.fromisoformat(line["time"]) - asked).total_seconds()


def _back(cluster: ClusterHarness, centre: CentreHalf, half: NodeHalf) -> None:
    """Start its agent anew, and wait until the centre counts on its node again."""
    seen = len(centre.logged("node in"))
    half.start_agent()
    half.wait_ready()
    cluster.wait_for(f"{half.name} to be in", lambda: len(centre.logged("node in")) > seen or None)


def told_until_taken(cluster: ClusterHarness) -> tuple[Json, Json]:
    """What the Lease said last while its holder was the one of now, and first of the next."""
    told: list[Json] = [cluster.api.get(LEADER)["spec"]]

    def is_taken() -> bool:
        # What the one who died has sent may still land.
        told.append(cluster.api.get(LEADER)["spec"])
        return bool(told[-1]["holderIdentity"] != told[0]["holderIdentity"])

    cluster.wait_for("another to lead", is_taken)
    return told[-2], told[-1]


def test_a_leader_that_is_killed_costs_no_slice(cluster: ClusterHarness, centre: CentreHalf, namespace: str) -> None:
    """The follower passes calls on, and leads by the end of the Lease; all are bound, and no card is over-granted.

    That is what the Lease itself says of its last renewal and of the claim after it. The next leader's own work comes
    on top, until a pod that comes at that instant is bound: 9.4 s in all (`benchmarks/cluster/leader.py`).
    """
    first, second = centre.replicas[0], centre.add_replica()
    second.start()
    centre.point_scheduler_at(second)
    try:
        early = [
            cluster.create_pod(asking(f"early{number}", namespace, 25, 9_000, lasting=True)) for number in range(8)
        ]
        for one in early:
            cluster.wait_for_phase(one, "Running")
        late = [cluster.create_pod(asking(f"late{number}", namespace, 25, 9_000, lasting=True)) for number in range(16)]
        with Lateness() as lateness:
            first.process.kill()
            killed = time.monotonic()
            following = cluster.create_pod(asking("following", namespace, 25, 9_000, lasting=True))
            last, taken = told_until_taken(cluster)
            cluster.wait_for("it to be bound", lambda: cluster.current(following)["spec"].get("nodeName"), timeout=120)
            took = time.monotonic() - killed
        assert taken["leaseTransitions"] == last["leaseTransitions"] + 1
        silent = datetime.fromisoformat(taken["acquireTime"]) - datetime.fromisoformat(last["renewTime"])
        assert silent.total_seconds() <= last["leaseDurationSeconds"] + lateness.worst
        # How late a busy machine wakes one process it wakes each on the way: two centres, API server, kube-scheduler.
        assert took <= last["leaseDurationSeconds"] + READS_AND_BINDS + 10 * lateness.worst
        late.append(following)
        for one in late:
            cluster.wait_for_phase(one, "Running")
        assert max(Counter(slice_of(cluster, one).gpu for one in early + late).values()) <= 4
        assert second.logged("knows the cluster")
    finally:
        first.start()
        # Whatever other tests do to the first one, kube-scheduler notices.
        centre.point_scheduler_at(first)
