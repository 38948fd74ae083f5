"""Whoever steals an agent's token can write of its own node what is Aliquot's, and nothing else anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from cluster.harness.api import Api, Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.pods import pod, stays
from cluster.installed import (
    AGENT,
    NAMES,
    SYSTEM,
    Installed,
    binding,
    manifests,
)
from cluster.refusals import FORGED, LEASES, NODE1, NODE2, annotated, expect_refused


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
    expect_refused(partial(write, agent), by=f"aliquot-{policy}")


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
        cluster.api.path_of(cluster.create_pod(pod(f"on-{node}", stays(), namespace=namespace, node=node)))
        for node in ("node1", "node2")
    )
    condition = {"type": NAMES.of("granted"), "status": "False", "reason": "Test", "message": "x"}
    for path in (here, there):
        cluster.wait_for("it to run", lambda path=path: cluster.api.get(path)["status"]["phase"] == "Running")  # type: ignore[misc]
    told = {"status": {"conditions": [condition]}}
    strategic = "application/strategic-merge-patch+json"
    assert agent.patch(f"{here}/status", told, kind=strategic)["status"]["phase"] == "Running"
    by = "aliquot-agent-pods"
    expect_refused(lambda: agent.patch(f"{there}/status", told, kind=strategic), by=by)
    ready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    expect_refused(lambda: agent.patch(f"{here}/status", ready, kind=strategic), by=by)
    expect_refused(lambda: agent.patch(f"{here}/status", {"status": {"phase": "Failed"}}), by=by)
    for metadata in ({"labels": {"a": "b"}}, {"annotations": {"a": "b"}}, {"finalizers": ["a.b/c"]}):
        expect_refused(partial(agent.patch, f"{here}/status", {"metadata": metadata}), by=by)
    expect_refused(lambda: agent.patch(f"{here}/status", annotated({**FORGED})), by="aliquot-")


def test_an_agent_has_no_right_to_end_anything(cluster: ClusterHarness, agent: Api, namespace: str) -> None:
    """It can't delete, evict, bind or change pods, nor delete nodes, nor read Secrets."""
    made = cluster.create_pod(pod("victim", stays(), namespace=namespace, node="node1"))
    path = cluster.api.path_of(made)
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
        expect_refused(write, by="is forbidden: User")


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
    path = cluster.api.path_of(cluster.create_pod(pod("here", stays(), namespace=namespace, node="node1")))
    expect_refused(lambda: agent.patch(path, {"metadata": {"labels": {}}, "spec": {}}), by="aliquot-agent-pods")
    lease = {"metadata": {"name": NAMES.lease("node1"), "namespace": namespace}}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease}
    expect_refused(lambda: agent.create(body), by="aliquot-agent-lease")


def test_a_token_that_names_no_node_writes_nothing(
    cluster: ClusterHarness, installed: Installed, namespace: str
) -> None:
    """Whoever can ask for tokens of the agent's account, but has no pod of it, gets nowhere."""
    api = installed.token_api(cluster.service_account_token(SYSTEM, AGENT))
    try:
        expect_refused(lambda: api.patch(NODE1, annotated({NAMES.inventory: "{}"})), by="aliquot-agent-node")
        lease = f"{LEASES}/{NAMES.lease('node1')}"
        expect_refused(lambda: api.patch(lease, annotated({NAMES.state: "away"})), by="aliquot-agent-lease")
        expect_refused(lambda: api.create(an_event("node1")), by="aliquot-agent-events")
        nameless = {"metadata": {"name": NAMES.lease(""), "namespace": SYSTEM}}
        expect_refused(lambda: api.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **nameless}))
        expect_refused(lambda: api.create(an_event("")))
        # Bound to no node either.
        waits = cluster.api.path_of(cluster.create_pod(pod("waits", stays(), namespace=namespace, scheduler="nobody")))
        expect_refused(lambda: api.patch(f"{waits}/status", {"status": {"phase": "Pending"}}), by="aliquot-agent-pods")
    finally:
        api.close()


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
