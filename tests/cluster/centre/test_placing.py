"""The centre on a real cluster: pods that ask for a fraction are placed, bound and granted, and run on their GPUs."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from cluster.centre.asked import GATES, ZONE, affinity, asking, grant_of, slice_of
from cluster.centre_half import COMMAND, NAMES, SCHEDULER, CentreHalf
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.pods import BY_HAND, pod, stays
from cluster.installed import binding
from cluster.node_half import NodeHalf


def test_a_gated_pod_is_let_through_bound_and_granted_in_one_write_and_runs_on_its_gpu(
    cluster: ClusterHarness, centre: CentreHalf, halves: dict[str, NodeHalf], namespace: str
) -> None:
    """From creation to the slice's own output, with nobody's help."""
    made = cluster.create_pod(asking("one", namespace, 30, 8_000))
    done = cluster.wait_for_phase(made, "Succeeded")
    grant = grant_of(cluster, made)
    part = slice_of(cluster, made)
    assert grant.node == done["spec"]["nodeName"]
    assert part.gpu in {halves[grant.node].gpu(index) for index in range(4)}
    assert cluster.logs(made) == f"{part.gpu} 30 8000 void\n"
    assert centre.logged("bound")


@pytest.mark.parametrize("gated", [True, False], ids=["gated", "ungated"])
def test_sixteen_halves_at_once_lie_two_on_each_of_eight_cards(
    cluster: ClusterHarness, centre: CentreHalf, namespace: str, *, gated: bool
) -> None:
    """Nobody is refused at bind, and no card is broken up for a third."""
    before = len(centre.logged("not bound"))
    wanted = [asking(f"half{number}", namespace, 50, 30_000, gated=gated, lasting=True) for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(cluster.create_pod, wanted))
    for one in made:
        cluster.wait_for_phase(one, "Running")
    assert Counter(slice_of(cluster, one).gpu for one in made).most_common()[-1][1] == 2
    assert len(centre.logged("not bound")) == before


def test_a_pod_without_room_waits_behind_its_gate_and_goes_when_room_is_given_back(
    cluster: ClusterHarness, centre: CentreHalf, namespace: str
) -> None:
    """Freed room wakes who waits: no flush after five minutes."""
    holders = [cluster.create_pod(asking(f"all{number}", namespace, 400, 100_000, lasting=True)) for number in range(2)]
    for one in holders:
        cluster.wait_for_phase(one, "Running")
    cluster.delete(holders[0])
    large = cluster.create_pod(asking("large", namespace, 400, 100_000, lasting=True))
    cluster.wait_for_phase(large, "Running")
    waiting = cluster.create_pod(asking("waiting", namespace, 60, 8_000))
    cluster.wait_for("room to be looked for", lambda: centre.logged("let through") or None)
    assert cluster.current(waiting)["spec"]["schedulingGates"] == GATES
    cluster.delete(large)
    cluster.wait_for_phase(waiting, "Succeeded")
    assert centre.logged("let through")


@pytest.mark.parametrize("kind", ["required", "preferred"])
@pytest.mark.parametrize("zone", ["node1", "node2"])
def test_affinity_decides_before_our_grades(
    cluster: ClusterHarness, centre: CentreHalf, namespace: str, kind: str, zone: str
) -> None:
    """Also a preference: the other node is a better fit, as a slice lies there already."""
    other = {"node1": "node2", "node2": "node1"}[zone]
    there = cluster.create_pod(
        asking("there", namespace, 30, 8_000, lasting=True, affinity=affinity("required", other))
    )
    cluster.wait_for_phase(there, "Running")
    # By value alone, a place beside others is as good as one on an empty card while both take as many more of these.
    pack = {NAMES.of("placement"): "pack"}
    made = cluster.create_pod(asking("one", namespace, 30, 8_000, affinity=affinity(kind, zone), annotations=pack))
    assert cluster.wait_for_phase(made, "Succeeded")["spec"]["nodeName"] == zone
    plain = cluster.create_pod(asking("plain", namespace, 30, 8_000, annotations=pack))
    assert cluster.wait_for_phase(plain, "Succeeded")["spec"]["nodeName"] == other
    assert centre.replicas[0].process.running


@pytest.mark.timeout(180)
def test_beside_kube_scheduler_s_own_weights_coarse_grades_decide_among_equals(
    cluster: ClusterHarness, centre: CentreHalf, namespace: str
) -> None:
    """A preference still moves a pod, and whoever has none goes where the better place is, on either node.

    Without a gate, and so without a promise: else `filter` names no other node to whoever has no preference.
    """
    before = centre.calls("prioritize-coarse")
    pack = {NAMES.of("placement"): "pack"}
    centre.point_scheduler_at(centre.replicas[0], own_weights=True)
    try:
        for zone, other in (("node1", "node2"), ("node2", "node1")):
            where = affinity("required", other)
            half = cluster.create_pod(asking(f"there-{other}", namespace, 30, 8_000, lasting=True, affinity=where))
            cluster.wait_for_phase(half, "Running")
            moved = cluster.create_pod(
                asking(f"moved-{zone}", namespace, 30, 8_000, affinity=affinity("preferred", zone), annotations=pack)
            )
            assert cluster.wait_for_phase(moved, "Succeeded")["spec"]["nodeName"] == zone
            for number in range(4):
                wanted = asking(f"free-{zone}-{number}", namespace, 30, 8_000, gated=False, annotations=pack)
                free = cluster.create_pod(wanted)
                assert cluster.wait_for_phase(free, "Succeeded")["spec"]["nodeName"] == other
                assert slice_of(cluster, free).gpu == slice_of(cluster, half).gpu
            cluster.delete(half)
            cluster.wait_for("it to be gone", lambda half=half: cluster.api.find(cluster.api.path_of(half)) is None)  # type: ignore[misc]
        assert centre.calls("prioritize-coarse") > before
    finally:
        centre.point_scheduler_at(centre.replicas[0])


def test_explain_tells_of_a_placed_and_of_a_waiting_pod(
    cluster: ClusterHarness, centre: CentreHalf, halves: dict[str, NodeHalf], namespace: str
) -> None:
    """Through the command, with the numbers of the real nodes."""
    placed = cluster.create_pod(asking("placed", namespace, 30, 8_000, lasting=True))
    cluster.wait_for_phase(placed, "Running")
    waiting = cluster.create_pod(asking("waiting", namespace, 100, 90_000))
    # The agents say what a CUDA context takes.
    thin = cluster.create_pod(asking("thin", namespace, 10, 400))
    kubeconfig = str(cluster.kubeconfig("admin"))

    def told(made: Json) -> Json:
        argv = [COMMAND, "explain", "-n", namespace, made["metadata"]["name"], "--kubeconfig", kubeconfig, "-o", "json"]
        answer: Json = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
        return answer

    held = told(placed)
    assert held["slices"][0]["gpu"] in {halves[held["node"]].gpu(index) for index in range(4)}
    large = "it asks 90000 MiB of one GPU, and the largest that it may have has 81286 MiB"
    assert f"no node could take it, even if it were empty: {large}" in told(waiting)["summary"]
    without = "a CUDA context takes 512 MiB on each GPU that it may have, and container main asks for 400 MiB there"
    assert f"no node could take it, even if it were empty: {without}" in told(thin)["summary"]
    assert centre.replicas[0].process.running


def test_spread_over_nodes_is_kept(cluster: ClusterHarness, centre: CentreHalf, namespace: str) -> None:
    """Six pods that must lie apart lie three on each node, whatever packs better."""
    spread = [
        {
            "maxSkew": 1,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "apart"}},
        }
    ]
    made = [
        cluster.create_pod(
            asking(
                f"apart{number}",
                namespace,
                20,
                4_000,
                lasting=True,
                labels={"app": "apart"},
                topologySpreadConstraints=spread,
            )
        )
        for number in range(6)
    ]
    nodes = Counter(cluster.wait_for_phase(one, "Running")["spec"]["nodeName"] for one in made)
    assert nodes == {"node1": 3, "node2": 3}
    assert not centre.logged("an extender call failed")


def test_a_tainted_node_takes_only_those_who_tolerate_it(
    cluster: ClusterHarness, centre: CentreHalf, namespace: str
) -> None:
    """No room is promised to the others there, and kube-scheduler agrees."""
    path = "/api/v1/nodes/node1"
    cluster.api.patch(path, {"spec": {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}})
    try:
        made = [cluster.create_pod(asking(f"plain{number}", namespace, 40, 8_000)) for number in range(3)]
        assert {cluster.wait_for_phase(one, "Succeeded")["spec"]["nodeName"] for one in made} == {"node2"}
    finally:
        cluster.api.patch(path, {"spec": {"taints": None}})
    assert centre.logged("let through")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("full", ["node1", "node2"])
def test_pods_without_slices_leave_idle_gpus_their_cores(
    cluster: ClusterHarness, centre: CentreHalf, namespace: str, *, full: str
) -> None:
    """Where kube-scheduler is told to ask of them too, by daemonset/plain-pods.yaml as it stands."""
    holder = cluster.create_pod(asking("all", namespace, 400, 100_000, lasting=True, nodeSelector={ZONE: full}))
    cluster.wait_for_phase(holder, "Running")
    centre.point_scheduler_at(centre.replicas[0], plain_pods=True)
    try:
        wanted = [pod(f"plain{number}", stays(), namespace=namespace, scheduler=SCHEDULER) for number in range(4)]
        for one in wanted:
            one["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "50m"}}
        made = [cluster.create_pod(one) for one in wanted]
        where = {cluster.wait_for_phase(one, "Running")["spec"]["nodeName"] for one in made}
    finally:
        centre.point_scheduler_at(centre.replicas[0])
    assert where == {full}


def test_a_pod_bound_by_hand_keeps_others_off_its_node_until_it_is_deleted(
    cluster: ClusterHarness, centre: CentreHalf, namespace: str
) -> None:
    """It never starts, and the kubelet counts what it asks: nobody gets a turn for that node; who waits is told why."""
    wanted = asking("stray", namespace, 400, 8_000, gated=False, lasting=True)
    wanted["spec"]["schedulerName"] = BY_HAND
    stray = cluster.create_pod(wanted)
    missed = centre.turns_missed()
    cluster.api.post(f"{cluster.api.path_of(stray)}/binding", binding(stray, "node1", {}))
    cluster.wait_for("it to be seen", lambda: stray_told(centre, namespace) or None)
    made = [cluster.create_pod(asking(f"other{at}", namespace, 200, 8_000, lasting=True)) for at in range(2)]
    assert {cluster.wait_for_phase(one, "Running")["spec"]["nodeName"] for one in made} == {"node2"}
    waiting = cluster.create_pod(asking("waiting", namespace, 60, 8_000))
    why = "400 % of compute are held without a grant by 1 pod: an operator can name and delete it"
    cluster.wait_for("it to be told", lambda: why in said(cluster, waiting) or None)
    cluster.delete(stray)
    assert cluster.wait_for_phase(waiting, "Succeeded")["spec"]["nodeName"] == "node1"
    assert centre.turns_missed() == missed


def stray_told(centre: CentreHalf, namespace: str) -> bool:
    """Whether the centre's log names the stray pod."""
    told = centre.logged("a pod is bound without a grant")
    return any((line["pod"], line["node"]) == (f"{namespace}/stray", "node1") for line in told)


def said(cluster: ClusterHarness, made: Json) -> str:
    """What a waiting pod's condition says."""
    conditions = cluster.current(made)["status"].get("conditions", [])
    return " ".join(one.get("message", "") for one in conditions if one["type"] == NAMES.admitted)
