"""What Aliquot writes, nobody else does: no administrator, no kubelet, by no way there is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from aliquot_standalone.apiserver.patches import merge_patch
from cluster.harness.api import APPLY, Api, Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.pods import pod, shell
from cluster.installed import (
    NAMES,
    Installed,
    binding,
)
from cluster.refusals import FORGED, LEASES, NODE1, annotated, expect_refused
from cluster.ways import TAKING_AWAY, WRITES

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
    expect_refused(lambda: FORGERIES[way](cluster.api, made, cluster.api.path_of(made)), by="aliquot-guard-grants")


# What these write beside their own part of the spec, the API server drops; if it ever kept it, the policy would refuse.
BESIDE: dict[str, Json] = {
    "ephemeralcontainers": {"ephemeralContainers": [{"name": "debug", "image": "none"}]},
    "resize": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "7m"}}}]},
}


@pytest.mark.parametrize("part", BESIDE)
@pytest.mark.usefixtures("installed")
def test_nobody_forges_a_grant_beside_something_else(cluster: ClusterHarness, namespace: str, part: str) -> None:
    """A part of a pod that has a way of its own carries metadata too."""
    container = {**shell("true"), "resources": {"requests": {"cpu": "5m"}}}
    made = cluster.create_pod(pod("waits", container, namespace=namespace, scheduler="nobody"))
    path = cluster.api.path_of(made)
    patch = {**annotated({**FORGED}), "spec": BESIDE[part]}
    written = cluster.api.patch(f"{path}/{part}", patch, kind="application/strategic-merge-patch+json")
    assert written["metadata"]["generation"] > made["metadata"]["generation"]
    assert NAMES.grant not in cluster.api.get(path)["metadata"].get("annotations", {})


def test_nobody_takes_a_grant_away(cluster: ClusterHarness, installed: Installed, namespace: str) -> None:
    """Nor changes it; everything else of the pod can be written as ever."""
    path = cluster.api.path_of(installed.run(namespace, "node1", gpu=0))
    for value in (None, "{}"):
        expect_refused(partial(cluster.api.patch, path, annotated({NAMES.grant: value})), by="aliquot-guard-grants")
    assert cluster.api.patch(path, annotated({"other": "value"}))["metadata"]["annotations"]["other"] == "value"


KUBELET = "system:node:node1"
ANOTHER_KUBELET = "system:node:node2"
COUNTED = NAMES.of("gpu.count")
# Who writes, which part of the node, and what.
NODE_FORGERIES: dict[str, tuple[str, str, Json]] = {
    "inventory": ("admin", "", annotated({NAMES.inventory: "{}"})),
    "inventory through the status": ("admin", "/status", annotated({NAMES.inventory: "{}"})),
    "labels": ("admin", "", {"metadata": {"labels": {COUNTED: "9"}}}),
    "labels through the status": ("admin", "/status", {"metadata": {"labels": {COUNTED: "9"}}}),
    "capacity": ("admin", "/status", {"status": {"capacity": {NAMES.memory: "1"}}}),
    "allocatable": ("admin", "/status", {"status": {"allocatable": {NAMES.memory: "1"}}}),
    "inventory, by its kubelet": (KUBELET, "", annotated({NAMES.inventory: "{}"})),
    "more capacity, by its kubelet": (KUBELET, "/status", {"status": {"capacity": {NAMES.memory: "9999999"}}}),
    "capacity, by another kubelet": (ANOTHER_KUBELET, "/status", {"status": {"capacity": {NAMES.memory: "1"}}}),
}
NODE_LOSSES: dict[str, tuple[str, str, Json]] = {
    "inventory taken away": ("admin", "", annotated({NAMES.inventory: None})),
    "inventory taken away through the status": ("admin", "/status", annotated({NAMES.inventory: None})),
    "labels taken away": ("admin", "", {"metadata": {"labels": {COUNTED: None}}}),
    "capacity taken away": ("admin", "/status", {"status": {"capacity": {NAMES.memory: None}}}),
}
NODE_WRITES = [
    *((what, way) for what in NODE_FORGERIES for way in WRITES),
    *((what, way) for what in NODE_LOSSES for way in TAKING_AWAY),
]


@pytest.mark.parametrize(("what", "way"), NODE_WRITES)
@pytest.mark.usefixtures("installed")
def test_nobody_forges_what_a_node_has(cluster: ClusterHarness, what: str, way: str) -> None:
    """Inventory, labels and memory are the agent's; a kubelet may lower its node's memory and no more."""
    user, part, change = (NODE_FORGERIES | NODE_LOSSES)[what]
    by = "" if user == ANOTHER_KUBELET else "aliquot-guard-nodes"
    node = cluster.api.get(NODE1)
    # The kubelet and controllers write it meanwhile: over whatever version there is.
    del node["metadata"]["resourceVersion"]
    expect_refused(lambda: WRITES[way](cluster.api_as(user), node, f"{NODE1}{part}", change), by=by)


# A node comes as a whole, with its status.
NODES_THAT_COME: dict[str, tuple[str, Json]] = {
    what: (user, change)
    for what, (user, _, change) in NODE_FORGERIES.items()
    if user != ANOTHER_KUBELET and "through the status" not in what
}


@pytest.mark.parametrize("what", NODES_THAT_COME)
@pytest.mark.usefixtures("installed")
def test_no_node_comes_with_what_its_agent_says(cluster: ClusterHarness, what: str) -> None:
    """Neither made by somebody, nor as its kubelet registers it: there what it brings is nobody's word yet."""
    user, change = NODES_THAT_COME[what]
    name = "node1" if user == KUBELET else "forged"
    made = merge_patch({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}, change)
    expect_refused(
        lambda: cluster.api_as(user).request("POST", "/api/v1/nodes", body=made, query={"dryRun": "All"}),
        by="aliquot-guard-nodes",
    )


@pytest.mark.usefixtures("installed")
def test_nobody_forges_a_heart_beat(cluster: ClusterHarness) -> None:
    """The scheduler believes these leases."""
    lease = f"{LEASES}/{NAMES.lease('node1')}"
    expect_refused(lambda: cluster.api.patch(lease, annotated({NAMES.state: "away"})), by="aliquot-guard-leases")
