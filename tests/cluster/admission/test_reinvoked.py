"""Another webhook changes pods after ours has seen them, and the API server lets LimitRanges have another go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.admission.test_quota_edges import COMPUTE, MEMORY, default_to, limits_of
from cluster.guarded import Guarded
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.pods import container, pod, shell
from cluster.installed import NAMES
from support.scripted_webhook import ScriptedWebhook, allowing, scripted_webhook

INJECTED = container(name="injected")
# API servers ask webhooks in the order of these names.
AFTER_OURS = "zz-injector"


def inject(request: Json) -> Json:
    """What meshes and tracers do: one more container for whoever has not got it."""
    if any(each["name"] == INJECTED["name"] for each in request["object"]["spec"]["containers"]):
        return allowing()
    return allowing({"op": "add", "path": "/spec/containers/-", "value": INJECTED})


@pytest.fixture
def injecting(cluster: ClusterHarness, guarded: Guarded, namespace: str, tmp_path: Path) -> Iterator[str]:
    """A namespace whose pods are injected into, and whose LimitRange gives each container a slice."""
    folder = tmp_path / "injector"
    folder.mkdir()
    with scripted_webhook(folder) as injector:
        injector.scripts["inject"] = inject
        made = cluster.apply(configuration(injector, namespace))
        default_to(cluster, namespace, {COMPUTE: "10", MEMORY: "800"})
        try:
            plain = pod("plain", shell("true"), namespace=namespace)
            cluster.wait_for("both to be in force", lambda: len(asking(guarded.tried(plain))) == 2 or None)
            yield namespace
        finally:
            cluster.delete(made)


def configuration(injector: ScriptedWebhook, namespace: str) -> Json:
    """It is asked about the pods of one namespace."""
    one = {
        "name": "inject.example.com",
        "clientConfig": injector.client_config("inject"),
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kind, version = "MutatingWebhookConfiguration", "admissionregistration.k8s.io/v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": AFTER_OURS}, "webhooks": [one]}


def asking(made: Json) -> list[str]:
    """The containers that ask for a slice."""
    return [name for name, limits in limits_of(made).items() if limits]


def test_a_pod_that_declines_is_rid_of_what_comes_again(guarded: Guarded, injecting: str) -> None:
    """The container that came later asks for nothing either, and no gate is there."""
    made = guarded.tried(pod("declines", shell("true"), namespace=injecting, labels={NAMES.use: "none"}))
    assert limits_of(made) == {"main": {}, "injected": {}}
    assert not made["spec"].get("schedulingGates")
    assert made["spec"]["schedulerName"] == "default-scheduler"


def test_who_is_looked_at_twice_is_gated_once(guarded: Guarded, injecting: str) -> None:
    """And what was injected has the slice that the LimitRange gives it, by which it is judged as its own would be."""
    made = guarded.tried(pod("asks", shell("true"), namespace=injecting))
    slices = {COMPUTE: "10", MEMORY: "800"}
    assert limits_of(made) == {"main": slices, "injected": slices}
    assert made["spec"]["schedulingGates"] == [{"name": NAMES.gate}]
    assert made["spec"]["schedulerName"] == "aliquot"
