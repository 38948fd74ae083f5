"""The example of placing on a real cluster, with the webhook in force."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from aliquot_core.grant import decode_grant
from cluster.centre.asked import asking
from cluster.centre_half import NAMES, CentreHalf
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.controlplane import LOOPBACK
from cluster.harness.images import BUSYBOX_IMAGE
from cluster.installed import manifests
from cluster.node_half import NodeHalf

EXAMPLE = Path(__file__).parents[3] / "examples" / "placing"
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
