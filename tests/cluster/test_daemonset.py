"""What daemonset/ installs works on a real cluster, and nobody can write more than he should."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from cluster.harness.api import APPLY, Api, Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.errors import ApiError
from cluster.harness.pods import pod, shell, stays
from cluster.installed import (
    AGENT,
    ENDPOINT,
    ENDPOINT_BY,
    NAMES,
    SYSTEM,
    Installed,
    binding,
    manifests,
)
from cluster.node_half import COMMAND

pytestmark = pytest.mark.timeout(150)  # the first test also starts a cluster and imports the image

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"
NODE2_NAME = "node2"
NODE1, NODE2 = "/api/v1/nodes/node1", "/api/v1/nodes/node2"
FORGED = {NAMES.grant: '{"v":1}'}


@pytest.fixture(scope="module")
def cluster(able_machine: None) -> Iterator[ClusterHarness]:  # noqa: ARG001 - it may skip
    """A cluster of our own: its policies would refuse what tests of the shared one do as administrators."""
    with ClusterHarness() as running:
        yield running


@pytest.fixture(scope="module")
def installation(cluster: ClusterHarness) -> Installed:
    """What there is to install."""
    return Installed(cluster)


@pytest.fixture
def installed(installation: Installed) -> Installed:
    """Aliquot on both nodes, as an operator installs it; whatever uninstalls it needs not install it again."""
    installation.install()
    return installation


def refused(write: Callable[[], object], *, by: str = "") -> None:
    """Expect that the API server forbids a write, and that the policy named says so."""
    with pytest.raises(ApiError) as caught:
        write()
    assert caught.value.status in (403, 422), caught.value
    assert by in str(caught.value)


def annotated(annotations: dict[str, str | None]) -> Json:
    """A merge patch of annotations."""
    return {"metadata": {"annotations": annotations}}


# --- it works --------------------------------------------------------------------------------------------------------


def test_both_daemonsets_serve_every_node(cluster: ClusterHarness, installed: Installed) -> None:
    """Created by the real controllers: an endpoint and an agent a node; each node says what it has."""
    for name in cluster.nodes:
        for daemonset in (ENDPOINT, AGENT):
            cluster.wait_for(f"{daemonset} to run", partial(installed.runs, daemonset, node=name))
        node = cluster.api.get(f"/api/v1/nodes/{name}")
        assert node["metadata"]["labels"][NAMES.of("gpu.count")] == "8"
        assert node["status"]["allocatable"][NAMES.compute] == "800"
        assert installed.lease(name)["spec"]["holderIdentity"]


def test_both_run_as_root_without_a_capability(installed: Installed) -> None:
    """The manifests' promise, read from the processes themselves: nothing effective, nothing to be gained."""
    for daemonset in (ENDPOINT, AGENT):
        pid = installed.process_of(daemonset, node="node1")
        told = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        sets = [told[name] for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")]
        assert sets == ["0" * 16] * 4
        assert (told["NoNewPrivs"], told["Seccomp"]) == ("1", "2")
        mounts = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
        (root,) = (mount[5] for mount in mounts if mount[4] == "/")
        assert "ro" in root.split(",")


@pytest.mark.parametrize("node", ["node1", "node2"])
def test_a_granted_pod_runs_on_each_node(
    cluster: ClusterHarness, installed: Installed, namespace: str, node: str
) -> None:
    """Bound by the scheduler's account, on the GPU of its grant."""
    done = cluster.wait_for_phase(installed.run(namespace, node, gpu=3), "Succeeded")
    assert cluster.logs(done) == f"{installed.gpu(node, 3)} 5 100\n"


def test_a_rollout_of_the_agents_fails_no_pod_that_arrives(
    cluster: ClusterHarness, installed: Installed, namespace: str
) -> None:
    """At least 10 pods are bound to both nodes while the agents are replaced, and all of them run."""
    before = {each["metadata"]["uid"] for each in installed.pods(AGENT)}
    made: list[Json] = []
    installed.restart_agents()
    while len(made) < 10 or not installed.rolled_out():
        for node in cluster.nodes:
            made.append(installed.run(namespace, node, gpu=len(made) % 8))
        cluster.wait_for("one of the pods", partial(installed.has_ended, made[-2]), timeout=60)
        assert len(made) < 60, installed.explain()
    for each in made:
        cluster.wait_for_phase(each, "Succeeded", timeout=60)
    now = installed.pods(AGENT)
    assert before.isdisjoint(each["metadata"]["uid"] for each in now)
    assert [each["status"]["containerStatuses"][0]["restartCount"] for each in now] == [0] * len(cluster.nodes)


@pytest.fixture
def by_systemd(cluster: ClusterHarness, installed: Installed) -> Iterator[str]:
    """A node whose endpoint is a service: it waits for the pod to leave, which the label brings about."""
    installed.start_service(NODE2_NAME)
    installed.label(NODE2_NAME, ENDPOINT_BY, "systemd")
    cluster.wait_for("the pod to leave", lambda: not installed.pods(ENDPOINT, node=NODE2_NAME))
    installed.wait_ready(NODE2_NAME)
    yield NODE2_NAME
    installed.label(NODE2_NAME, ENDPOINT_BY, None)
    cluster.node(NODE2_NAME).components[-1].stop()
    installed.wait_ready(NODE2_NAME)


def test_a_reboot_fails_pods_only_where_the_endpoint_is_a_pod(
    cluster: ClusterHarness, installed: Installed, by_systemd: str, namespace: str
) -> None:
    """A service stands before the kubelet admits anybody, and nobody fails; a pod comes too late for all of them."""
    made = {node: [installed.run(namespace, node, gpu=gpu, lasting=True) for gpu in range(5)] for node in cluster.nodes}
    for each in (*made["node1"], *made[by_systemd]):
        cluster.wait_for_phase(each, "Running")
    agents = {node: installed.lease(node)["spec"]["holderIdentity"] for node in cluster.nodes}

    def reboot(node: str) -> None:
        def before_kubelet() -> None:
            assert not list(cluster.node(node).path("/var/run").glob("cdi/*"))
            if node == by_systemd:
                installed.start_service(node)

        cluster.node(node).reboot(before_kubelet=before_kubelet)

    with ThreadPoolExecutor() as pool:
        list(pool.map(reboot, cluster.nodes))
    for each in made[by_systemd]:
        cluster.wait_for("it to run again", partial(runs_again, cluster, each), timeout=60)
    for each in made["node1"]:
        failed = cluster.wait_for_phase(each, "Failed")
        assert failed["status"]["reason"] == "UnexpectedAdmissionError"
    cluster.wait_for("another agent", lambda: installed.lease("node1")["spec"]["holderIdentity"] != agents["node1"])
    installed.wait_ready("node1")
    cluster.wait_for_phase(installed.run(namespace, "node1", gpu=6), "Succeeded")


def runs_again(cluster: ClusterHarness, made: Json) -> bool:
    """Whether a pod's container runs for the second time; a pod that failed never will."""
    status = cluster.current(made)["status"]
    assert status["phase"] != "Failed", status
    (container,) = status["containerStatuses"]
    return container["restartCount"] == 1 and "running" in container["state"]


def test_a_kubelet_that_lost_its_record_stays_ready(
    cluster: ClusterHarness, installed: Installed, namespace: str
) -> None:
    """It registers anew and carries our memory over; no policy stands in its way, and pods run."""
    node = cluster.node("node2")
    node.kubelet.stop()
    node.path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint").unlink()
    before = len(node.kubelet.log.read_text())
    node.kubelet.start()
    registered = "Successfully registered node"
    cluster.wait_for("it to register", lambda: registered in node.kubelet.log.read_text()[before:] or None)
    installed.wait_ready("node2")
    cluster.wait_for("the node to be ready", lambda: cluster.node_is_ready("node2") or None)
    cluster.wait_for_phase(installed.run(namespace, "node2", gpu=1), "Succeeded")
    assert "ValidatingAdmissionPolicy" not in node.kubelet.log.read_text()[before:]


def test_a_kubelet_may_zero_its_memory_and_the_agent_tells_it_again(
    cluster: ClusterHarness, installed: Installed
) -> None:
    """Kubelets zero extended resources of a node that was made anew (seen in their source, not in 1.36's runs)."""
    zero = {"status": {"capacity": {NAMES.memory: "0"}, "allocatable": {NAMES.memory: "0"}}}
    answer = cluster.api_as(KUBELET).patch(f"{NODE1}/status", zero)
    assert answer["status"]["capacity"][NAMES.memory] == "0"
    installed.wait_ready("node1")


def test_uninstalled_leaves_nothing_on_the_nodes(cluster: ClusterHarness, installed: Installed) -> None:
    """One leaves while Aliquot stays, with the agent's own rights; the other when all of it goes."""
    installed.withdraw("node2")
    assert cluster.api.find(f"{LEASES}/{NAMES.lease('node2')}") is None
    cluster.wait_for("nothing of ours to be left", partial(nothing_left, cluster, "node2"))
    assert installed.offers("node1")
    installed.uninstall()
    kubeconfig = str(cluster.kubeconfig("admin"))
    withdraw = [COMMAND, "agent", "--withdraw", "--node-name", "node1", "--kubeconfig", kubeconfig]
    subprocess.run(withdraw, check=True, capture_output=True, timeout=60)
    cluster.wait_for("nothing of ours to be left", partial(nothing_left, cluster, "node1"))


def nothing_left(cluster: ClusterHarness, node: str) -> bool:
    """Whether only the kubelet still knows of us: for five minutes it keeps the capacity of a plugin that has gone."""
    found = cluster.api.get(f"/api/v1/nodes/{node}")
    metadata, status = found["metadata"], found["status"]
    named = [*metadata.get("annotations", {}), *metadata.get("labels", {}), *status["capacity"]]
    given = [name for name, count in status["allocatable"].items() if count != "0"]
    kubelets = {NAMES.compute, NAMES.best_effort}
    return not any(name.startswith(f"{NAMES.domain}/") for name in {*named} - kubelets | {*given})


# --- what an agent's token can do ------------------------------------------------------------------------------------


@pytest.fixture
def agent(installed: Installed) -> Iterator[Api]:
    """Whoever stole the token of node1's agent."""
    api = installed.agent_api("node1")
    yield api
    api.close()


ATTACHES = "volumes.kubernetes.io/controller-managed-attach-detach"  # written by every kubelet
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "1"}
AGENT_MAY_NOT: dict[str, tuple[str, Callable[[Api], object]]] = {
    "annotate another node": ("agent-node", lambda api: api.patch(NODE2, annotated({NAMES.inventory: "{}"}))),
    "raise another node's memory": (
        "agent-node",
        lambda api: api.patch(f"{NODE2}/status", {"status": {"capacity": {NAMES.memory: "1"}}}),
    ),
    "write another node's lease": (
        "agent-lease",
        lambda api: api.patch(f"{LEASES}/{NAMES.lease('node2')}", annotated({NAMES.state: "away"})),
    ),
    "make a lease that is no heart-beat": (
        "agent-lease",
        lambda api: api.create(
            {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "x", "namespace": SYSTEM}}
        ),
    ),
    "cordon its node": ("agent-node", lambda api: api.patch(NODE1, {"spec": {"unschedulable": True}})),
    "taint its node": (
        "agent-node",
        lambda api: api.patch(NODE1, {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}),
    ),
    "label its node for others": ("agent-node", lambda api: api.patch(NODE1, {"metadata": {"labels": {"zone": "a"}}})),
    "take others' labels off its node": (
        "agent-node",
        lambda api: api.patch(NODE1, {"metadata": {"labels": {"kubernetes.io/hostname": None}}}),
    ),
    "take others' annotations off its node": ("agent-node", lambda api: api.patch(NODE1, annotated({ATTACHES: None}))),
    "have its node deleted with something else": (
        "agent-node",
        lambda api: api.patch(NODE1, {"metadata": {"ownerReferences": [OWNER]}}),
    ),
    "take its node's CPUs away": (
        "agent-node",
        lambda api: api.patch(f"{NODE1}/status", {"status": {"capacity": {"cpu": None}}}),
    ),
    "mark its GPUs as an operator does": (
        "agent-node",
        lambda api: api.patch(NODE1, annotated({NAMES.cordoned_gpus: "*"})),
    ),
    "label its node for another purpose of ours": (
        "agent-node",
        lambda api: api.patch(NODE1, {"metadata": {"labels": {NAMES.queue: "a"}}}),
    ),
    "say what the device plugin offers": (
        "agent-node",
        lambda api: api.patch(f"{NODE1}/status", {"status": {"capacity": {NAMES.compute: "9999"}}}),
    ),
    "delete another node's lease": ("agent-lease", lambda api: api.delete(f"{LEASES}/{NAMES.lease('node2')}")),
    "annotate its node for others": ("agent-node", lambda api: api.patch(NODE1, annotated({"zone": "a"}))),
    "keep its node from being deleted": (
        "agent-node",
        lambda api: api.patch(NODE1, {"metadata": {"finalizers": ["a.b/c"]}}),
    ),
    "give its node more CPUs": (
        "agent-node",
        lambda api: api.patch(f"{NODE1}/status", {"status": {"capacity": {"cpu": "999"}}}),
    ),
    "say what is allocatable": (
        "agent-node",
        lambda api: api.patch(f"{NODE1}/status", {"status": {"allocatable": {NAMES.memory: "1"}}}),
    ),
    "say that its node is sick": (
        "agent-node",
        lambda api: api.patch(f"{NODE1}/status", {"status": {"conditions": []}}),
    ),
    "sign Events as another node": (
        "agent-events",
        lambda api: api.create(an_event("node2")),
    ),
}


@pytest.mark.parametrize("what", AGENT_MAY_NOT)
def test_an_agent_may_not(agent: Api, what: str) -> None:
    """A policy refuses each write that goes beyond the agent's own node and Aliquot's own fields."""
    policy, write = AGENT_MAY_NOT[what]
    refused(partial(write, agent), by=f"aliquot-{policy}")


def an_event(node: str) -> Json:
    """An Event that a node's agent could have written."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": "e", "name": "e", "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": NAMES.of("agent"),
        "reportingInstance": node,
        "action": "Starting",
        "reason": "Test",
        "type": "Normal",
        "regarding": {"kind": "Pod", "namespace": "default", "name": "x"},
    }


def test_an_agent_writes_the_condition_of_its_own_pods_only(
    cluster: ClusterHarness, agent: Api, namespace: str
) -> None:
    """Neither a pod of another node, nor another condition, nor the phase, nor the grant."""
    here, there = (
        api_path(cluster, cluster.create_pod(pod(f"on-{node}", stays(), namespace=namespace, node=node)))
        for node in ("node1", "node2")
    )
    condition = {"type": NAMES.of("granted"), "status": "False", "reason": "Test", "message": "x"}
    for path in (here, there):
        cluster.wait_for("it to run", lambda path=path: cluster.api.get(path)["status"]["phase"] == "Running")  # type: ignore[misc]
    told = {"status": {"conditions": [condition]}}
    strategic = "application/strategic-merge-patch+json"
    assert agent.patch(f"{here}/status", told, kind=strategic)["status"]["phase"] == "Running"
    by = "aliquot-agent-pods"
    refused(lambda: agent.patch(f"{there}/status", told, kind=strategic), by=by)
    ready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    refused(lambda: agent.patch(f"{here}/status", ready, kind=strategic), by=by)
    refused(lambda: agent.patch(f"{here}/status", {"status": {"phase": "Failed"}}), by=by)
    for metadata in ({"labels": {"a": "b"}}, {"annotations": {"a": "b"}}, {"finalizers": ["a.b/c"]}):
        refused(lambda metadata=metadata: agent.patch(f"{here}/status", {"metadata": metadata}), by=by)  # type: ignore[misc]
    refused(lambda: agent.patch(f"{here}/status", annotated({**FORGED})), by="aliquot-")


def test_an_agent_has_no_right_to_end_anything(cluster: ClusterHarness, agent: Api, namespace: str) -> None:
    """It can't delete, evict, bind or change pods, nor delete nodes, nor read Secrets."""
    made = cluster.create_pod(pod("victim", stays(), namespace=namespace, node="node1"))
    path = api_path(cluster, made)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "victim", "namespace": namespace}}
    for write in (
        lambda: agent.delete(path),
        lambda: agent.post(f"{path}/eviction", eviction),
        lambda: agent.post(f"{path}/binding", binding(made, "node1", {})),
        lambda: agent.patch(path, {"metadata": {"labels": {"a": "b"}}}),
        lambda: agent.delete(NODE1),
        lambda: agent.get("/api/v1/secrets"),
        lambda: agent.get(f"/api/v1/namespaces/{SYSTEM}/configmaps"),
    ):
        refused(write, by="is forbidden: User")


@pytest.fixture
def lavish(cluster: ClusterHarness, installed: Installed) -> Iterator[None]:  # noqa: ARG001 - its account is used
    """An administrator who gives the agent more rights than it needs."""
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
    ]
    meta = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "lavish"}}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "lavish"}
    subject = {"kind": "ServiceAccount", "name": AGENT, "namespace": SYSTEM}
    made = [
        cluster.apply({**meta, "kind": "ClusterRole", "rules": rules}),
        cluster.apply({**meta, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]}),
    ]
    yield
    for each in made:
        cluster.delete(each)


@pytest.mark.usefixtures("lavish")
def test_rights_too_many_are_of_no_use(cluster: ClusterHarness, agent: Api, namespace: str) -> None:
    """The policies stand by themselves: pods but for their status, and leases of other namespaces, stay closed."""
    path = api_path(cluster, cluster.create_pod(pod("here", stays(), namespace=namespace, node="node1")))
    refused(lambda: agent.patch(path, {"metadata": {"labels": {}}, "spec": {}}), by="aliquot-agent-pods")
    lease = {"metadata": {"name": NAMES.lease("node1"), "namespace": namespace}}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease}
    refused(lambda: agent.create(body), by="aliquot-agent-lease")


def test_a_token_that_names_no_node_writes_nothing(
    cluster: ClusterHarness, installed: Installed, namespace: str
) -> None:
    """Whoever can ask for tokens of the agent's account, but has no pod of it, gets nowhere."""
    api = installed.token_api(cluster.service_account_token(SYSTEM, AGENT))
    try:
        refused(lambda: api.patch(NODE1, annotated({NAMES.inventory: "{}"})), by="aliquot-agent-node")
        lease = f"{LEASES}/{NAMES.lease('node1')}"
        refused(lambda: api.patch(lease, annotated({NAMES.state: "away"})), by="aliquot-agent-lease")
        refused(lambda: api.create(an_event("node1")), by="aliquot-agent-events")
        nameless = {"metadata": {"name": NAMES.lease(""), "namespace": SYSTEM}}
        refused(lambda: api.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **nameless}))
        refused(lambda: api.create(an_event("")))
        # Bound to no node either.
        waits = api_path(cluster, cluster.create_pod(pod("waits", stays(), namespace=namespace, scheduler="nobody")))
        refused(lambda: api.patch(f"{waits}/status", {"status": {"phase": "Pending"}}), by="aliquot-agent-pods")
    finally:
        api.close()


# --- what Aliquot writes, nobody else does ---------------------------------------------------------------------------

# Each is given an administrator's API, a pod that waits to be bound, and its path.
FORGERIES: dict[str, Callable[[Api, Json, str], object]] = {
    "create": lambda api, made, _: api.create(
        pod("forged", shell("true"), namespace=made["metadata"]["namespace"], annotations=FORGED)
    ),
    "patch": lambda api, _, path: api.patch(path, annotated({**FORGED})),
    "empty value": lambda api, _, path: api.patch(path, annotated({NAMES.grant: ""})),
    "apply": lambda api, _, path: api.request(
        "PATCH",
        path,
        body={"apiVersion": "v1", "kind": "Pod", **annotated({**FORGED})},
        query={"fieldManager": "forger"},
        content_type=APPLY,
    ),
    "replace": lambda api, made, path: api.put(path, {**made, "metadata": {**made["metadata"], "annotations": FORGED}}),
    "pods/status": lambda api, _, path: api.patch(f"{path}/status", annotated({**FORGED})),
    "pods/binding": lambda api, made, path: api.post(f"{path}/binding", binding(made, "node1", FORGED)),
    "bindings": lambda api, made, path: api.post(
        f"{path.rpartition('/pods/')[0]}/bindings", binding(made, "node1", FORGED)
    ),
}


@pytest.mark.parametrize("way", FORGERIES)
@pytest.mark.usefixtures("installed")
def test_nobody_forges_a_grant(cluster: ClusterHarness, namespace: str, way: str) -> None:
    """Every way to write a pod's metadata is closed, to administrators too."""
    made = cluster.create_pod(pod("waits", shell("true"), namespace=namespace, scheduler="nobody"))
    refused(lambda: FORGERIES[way](cluster.api, made, api_path(cluster, made)), by="aliquot-guard-grants")


def test_nobody_takes_a_grant_away(cluster: ClusterHarness, installed: Installed, namespace: str) -> None:
    """Nor changes it; everything else of the pod can be written as ever."""
    path = api_path(cluster, installed.run(namespace, "node1", gpu=0))
    for value in (None, "{}"):
        refused(lambda value=value: cluster.api.patch(path, annotated({NAMES.grant: value})), by="aliquot-guard-grants")  # type: ignore[misc]
    assert cluster.api.patch(path, annotated({"other": "value"}))["metadata"]["annotations"]["other"] == "value"


KUBELET = "system:node:node1"
NODE_FORGERIES: dict[str, tuple[str, str, Json]] = {
    "inventory": ("admin", NODE1, annotated({NAMES.inventory: "{}"})),
    "inventory through the status": ("admin", f"{NODE1}/status", annotated({NAMES.inventory: None})),
    "labels": ("admin", NODE1, {"metadata": {"labels": {NAMES.of("gpu.count"): "9"}}}),
    "labels taken away": ("admin", NODE1, {"metadata": {"labels": {NAMES.of("gpu.count"): None}}}),
    "capacity": ("admin", f"{NODE1}/status", {"status": {"capacity": {NAMES.memory: "1"}}}),
    "allocatable": ("admin", f"{NODE1}/status", {"status": {"allocatable": {NAMES.memory: "1"}}}),
    "inventory, by its kubelet": (KUBELET, NODE1, annotated({NAMES.inventory: "{}"})),
    "more capacity, by its kubelet": (KUBELET, f"{NODE1}/status", {"status": {"capacity": {NAMES.memory: "9999999"}}}),
    "capacity, by another kubelet": (
        "system:node:node2",
        f"{NODE1}/status",
        {"status": {"capacity": {NAMES.memory: "1"}}},
    ),
}


@pytest.mark.parametrize("what", NODE_FORGERIES)
@pytest.mark.usefixtures("installed")
def test_nobody_forges_what_a_node_has(cluster: ClusterHarness, what: str) -> None:
    """Inventory, labels and memory are the agent's; a kubelet may lower its node's memory and no more."""
    user, path, patch = NODE_FORGERIES[what]
    by = "" if user == "system:node:node2" else "aliquot-guard-nodes"
    refused(lambda: cluster.api_as(user).patch(path, patch), by=by)


@pytest.mark.usefixtures("installed")
def test_nobody_forges_a_heart_beat(cluster: ClusterHarness) -> None:
    """The scheduler believes these leases."""
    lease = f"{LEASES}/{NAMES.lease('node1')}"
    refused(lambda: cluster.api.patch(lease, annotated({NAMES.state: "away"})), by="aliquot-guard-leases")


@pytest.mark.parametrize(
    ("policy", "kind"), [("aliquot-agent-node", "NodeStatus"), ("aliquot-agent-pods", "PodStatus")]
)
def test_no_part_of_a_status_escapes_the_policies(cluster: ClusterHarness, policy: str, kind: str) -> None:
    """The policies name what an agent must leave alone; a field that a later Kubernetes adds is missed here."""
    schemas = cluster.api.get("/openapi/v3/api/v1")["components"]["schemas"]
    fields = schemas[f"io.k8s.api.core.v1.{kind}"]["properties"]
    (found,) = (
        each for each in manifests() if each["metadata"]["name"] == policy and "matchConstraints" in each["spec"]
    )
    assert [field for field in fields if f"status.?{field}" not in str(found)] == []


def api_path(cluster: ClusterHarness, made: Json) -> str:
    """Where an object is."""
    return cluster.api.path_of(made)
