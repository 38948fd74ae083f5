"""The centre on a real cluster: pods that ask for a fraction are placed, bound and granted, and run on their GPUs."""

from __future__ import annotations

import base64
import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from aliquot_core.grant import Grant, Slice, decode_grant
from cluster.centre_half import COMMAND, NAMES, SCHEDULER, CentreHalf
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.controlplane import LOOPBACK
from cluster.harness.images import BUSYBOX_IMAGE
from cluster.harness.pods import pod, stays
from cluster.installed import manifests
from cluster.node_half import NodeHalf, asks, shows

GATES = [{"name": NAMES.gate}]
# Short, so that a turn that leads to nothing is over within a test.
PROMISE = 4.0
ZONE = "aliquot.test/zone"


@pytest.fixture(scope="module")
def cluster(able_machine: None) -> Iterator[ClusterHarness]:  # noqa: ARG001 - it may skip
    """A cluster of its own: its kube-scheduler asks our extender."""
    with ClusterHarness() as running:
        for name in running.nodes:
            running.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {ZONE: name}}})
        yield running


@pytest.fixture(scope="module")
def halves(cluster: ClusterHarness) -> Iterator[dict[str, NodeHalf]]:
    """Aliquot's part on both nodes, four simulated GPUs each."""
    made = {name: NodeHalf(cluster, node, gpus="4xA100-80GB") for name, node in cluster.nodes.items()}
    with ThreadPoolExecutor() as pool:
        list(pool.map(NodeHalf.start, made.values()))
    yield made
    for half in made.values():
        half.stop()


@pytest.fixture(scope="module")
def centre(cluster: ClusterHarness, halves: dict[str, NodeHalf]) -> Iterator[CentreHalf]:  # noqa: ARG001 - comes first
    """The centre with one replica."""
    half = CentreHalf(cluster, ALIQUOT_SCHEDULER_PROMISE=str(PROMISE))
    half.start()
    yield half
    half.stop()


def asking(
    name: str,
    namespace: str,
    compute: int,
    memory: int,
    *,
    gated: bool = True,
    lasting: bool = False,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Json:
    """A pod behind its gate, as the webhook leaves it."""
    container = stays(limits=asks(compute, memory)) if lasting else shows(limits=asks(compute, memory))
    wanted = pod(name, container, namespace=namespace, scheduler=SCHEDULER, annotations=annotations, **spec)
    wanted["spec"] |= {"schedulingGates": GATES} if gated else {}
    return wanted


def grant_of(cluster: ClusterHarness, made: Json) -> Grant:
    """What the pod was granted."""
    return decode_grant(cluster.current(made)["metadata"]["annotations"][NAMES.grant])


def slice_of(cluster: ClusterHarness, made: Json) -> Slice:
    """The only slice that the pod was granted."""
    ((_, part),) = grant_of(cluster, made).slices()
    return part


def affinity(kind: str, zone: str) -> Json:
    """Node affinity to a zone, required or preferred."""
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    if kind == "required":
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    weighted = {"weight": 1, "preference": term}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}}


def beside(app: str) -> Json:
    """Affinity to a pod, which only kube-scheduler sees: where there is none, no node will do."""
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": ZONE}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


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


def test_explain_tells_of_a_placed_and_of_a_waiting_pod(
    cluster: ClusterHarness, centre: CentreHalf, halves: dict[str, NodeHalf], namespace: str
) -> None:
    """Through the command, with the numbers of the real nodes."""
    placed = cluster.create_pod(asking("placed", namespace, 30, 8_000, lasting=True))
    cluster.wait_for_phase(placed, "Running")
    waiting = cluster.create_pod(asking("waiting", namespace, 100, 90_000))
    kubeconfig = str(cluster.kubeconfig("admin"))

    def told(made: Json) -> Json:
        argv = [COMMAND, "explain", "-n", namespace, made["metadata"]["name"], "--kubeconfig", kubeconfig, "-o", "json"]
        answer: Json = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
        return answer

    held = told(placed)
    assert held["slices"][0]["gpu"] in {halves[held["node"]].gpu(index) for index in range(4)}
    assert "none of 2 nodes has room: 0 of 4 GPUs are large enough for 90000 MiB (2)" in told(waiting)["summary"]
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


EXAMPLE = Path(__file__).parents[2] / "examples" / "placing"
# Here each node's name is that of the example's.
NODES = {"gpu-1": "node1", "gpu-2": "node2"}


@pytest.fixture
def webhook(cluster: ClusterHarness, centre: CentreHalf) -> Iterator[None]:
    """The mutating webhook in force, called by URL."""
    (config,) = (obj for obj in manifests("60-webhook") if obj["kind"].startswith("Mutating"))
    authority = base64.b64encode(centre.authority.read_bytes()).decode()
    url = f"https://{LOOPBACK}:{centre.replicas[0].port}/mutate"
    config["webhooks"][0]["clientConfig"] = {"url": url, "caBundle": authority}
    cluster.apply(config)
    probe = asking("probe", "default", 30, 8_000, gated=False)
    path = cluster.api.collection_of(probe)

    def gates() -> bool:
        tried = cluster.api.request("POST", path, body=probe, query={"dryRun": "All"})
        return bool(tried["spec"].get("schedulingGates"))

    cluster.wait_for("the webhook to be in force", gates)
    yield
    cluster.delete(config)


def of_example(*files: str) -> Iterator[Json]:
    """What stands in these files, with what this cluster lacks: a pod network, a registry, and time to spare."""
    for file in files:
        for obj in yaml.safe_load_all((EXAMPLE / f"{file}.yaml").read_text()):
            if obj["kind"] != "Namespace":
                spec = obj["spec"] if obj["kind"] == "Pod" else obj["spec"]["template"]["spec"]
                spec |= {"hostNetwork": True, "terminationGracePeriodSeconds": 1}
                spec["containers"][0] |= {"image": BUSYBOX_IMAGE, "imagePullPolicy": "Never"}
            yield obj


@pytest.mark.usefixtures("webhook")
def test_the_example_of_placing_is_carried_out(cluster: ClusterHarness, halves: dict[str, NodeHalf]) -> None:
    """Applied as its README says: every pod runs on GPUs of the node on which spread, affinity and taints want it."""
    one, two = (f"/api/v1/nodes/{NODES[name]}" for name in ("gpu-1", "gpu-2"))
    taint = {"key": "example.com/team", "value": "a", "effect": "NoSchedule"}
    space = "/api/v1/namespaces/placing"

    def lie() -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for each in cluster.api.items(f"{space}/pods"):
            if each["status"]["phase"] == "Running":
                whose = each["metadata"]["labels"].get("app", "training")
                found.setdefault(whose, []).append(each["spec"]["nodeName"])
        return {whose: sorted(nodes) for whose, nodes in found.items()}

    cluster.api.patch(one, {"metadata": {"labels": {"example.com/pool": "training"}}})
    try:
        for obj in of_example("namespace"):
            cluster.apply(obj)
        cluster.wait_for("the account", lambda: cluster.api.find(f"{space}/serviceaccounts/default"))
        for obj in of_example("apart", "training"):
            cluster.apply(obj)
        first = {"apart": ["node1"] * 2 + ["node2"] * 2, "training": ["node1"]}
        cluster.wait_for("the first to run", lambda: lie() == first or None)
        cluster.api.patch(two, {"spec": {"taints": [taint]}})
        for obj in of_example("outside", "team"):
            cluster.apply(obj)
        whole = {**first, "outside": ["node1"] * 2, "team": ["node2"]}
        cluster.wait_for("all to run", lambda: lie() == whole or None)
        for each in cluster.api.items(f"{space}/pods"):
            grant = decode_grant(each["metadata"]["annotations"][NAMES.grant])
            assert grant.node == each["spec"]["nodeName"]
            assert {part.gpu for _, part in grant.slices()} <= {halves[grant.node].gpu(index) for index in range(4)}
    finally:
        cluster.api.patch(one, {"metadata": {"labels": {"example.com/pool": None}}})
        cluster.api.patch(two, {"spec": {"taints": None}})
        cluster.delete({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "placing"}})


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
    stuck = []
    for number in range(2):
        # What volumes there are only kube-scheduler knows.
        missing = [{"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}]
        wanted = asking(f"stuck{number}", namespace, 400, 100_000, lasting=True, volumes=missing)
        stuck.append(cluster.create_pod(wanted))

    def nominated(one: Json) -> bool:
        return "nominatedNodeName" in cluster.current(one)["status"]

    for one in stuck:
        cluster.wait_for("it to be nominated", lambda one=one: nominated(one))  # type: ignore[misc]
        # For five seconds at least: then it has another turn.
        cluster.wait_for("its nomination to be taken back", lambda one=one: not nominated(one))  # type: ignore[misc]
    others = [cluster.create_pod(asking(f"other{number}", namespace, 400, 100_000)) for number in range(2)]
    for one in others:
        cluster.wait_for_phase(one, "Succeeded")
    assert centre.logged("room taken back")


def test_a_high_priority_evicts_no_other_tenant_s_pod(
    cluster: ClusterHarness, centre: CentreHalf, namespace: str
) -> None:
    """kube-scheduler would evict by priority alone; its dry run asks no extender."""
    cluster.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "aliquot-test-high"},
            "value": 1_000_000,
        }
    )
    held = [cluster.create_pod(asking(f"a{number}", namespace, 400, 100_000, lasting=True)) for number in range(2)]
    for one in held:
        # On a busy machine a turn may be over before kube-scheduler comes to it, and the next is seconds later.
        cluster.wait_for_phase(one, "Running", timeout=90)
    with cluster.namespace("tenant-b") as tenant:
        high = cluster.create_pod(asking("high", tenant, 50, 8_000, gated=False, priorityClassName="aliquot-test-high"))
        cluster.wait_for("kube-scheduler to have tried", lambda: _unschedulable(cluster, high))
        assert "0/2 nodes are available" in str(_unschedulable(cluster, high))
        assert all("deletionTimestamp" not in cluster.current(one)["metadata"] for one in held)
        assert not cluster.current(high)["status"].get("nominatedNodeName")
    assert not centre.logged("an extender call failed")


def _unschedulable(cluster: ClusterHarness, made: Json) -> str | None:
    conditions = cluster.current(made)["status"].get("conditions", [])
    found = [one for one in conditions if one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable"]
    return found[0]["message"] if found else None


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
    seen = len(centre.logged("node in"))
    half = halves["node1"]
    half.agent.kill()
    cluster.wait_for(
        "node1 to be out",
        lambda: [line for line in centre.logged("node out") if "not heard of any more" in line["reason"]],
    )
    made = cluster.create_pod(asking("one", namespace, 30, 4_000))
    assert cluster.wait_for_phase(made, "Succeeded")["spec"]["nodeName"] == "node2"
    half.start_agent()
    half.wait_ready()
    cluster.wait_for("node1 to be in", lambda: len(centre.logged("node in")) > seen or None)


def test_a_leader_that_is_killed_costs_no_slice(cluster: ClusterHarness, centre: CentreHalf, namespace: str) -> None:
    """The follower passes calls on, then leads by itself; every pod is bound, and no card holds more than it has."""
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
        first.process.kill()
        for one in late:
            cluster.wait_for_phase(one, "Running")
        assert max(Counter(slice_of(cluster, one).gpu for one in early + late).values()) <= 4
        assert second.logged("knows the cluster")
    finally:
        first.start()


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
