"""The fields of Kubernetes objects that we read, from JSON as API servers and manifests write it."""

from __future__ import annotations

import msgspec
import pytest

from aliquot_core.objects import Lease, Node, Pod

POD = b"""
{"apiVersion": "v1", "kind": "Pod",
 "metadata": {"name": "a", "namespace": "team", "uid": "u1", "resourceVersion": "7", "creationTimestamp": null,
  "deletionTimestamp": "2026-11-21T10:00:00Z", "labels": {"x": "y"}, "managedFields": [{"manager": "kubectl"}],
  "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u2", "controller": true}]},
 "spec": {"nodeName": "n1", "schedulingGates": [{"name": "aliquot.dev/queue"}], "tolerations": [{"operator": "Exists"}],
  "initContainers": [{"name": "side", "restartPolicy": "Always"}],
  "containers": [{"name": "main",
   "resources": {"limits": {"cpu": 0.5, "aliquot.dev/memory": "8k", "aliquot.dev/compute": 30}},
   "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}]},
 "status": {"phase": "Running", "containerStatuses": [{"name": "main", "containerID": "containerd://1",
  "state": {"running": {"startedAt": "2026-11-21T10:00:00Z"}}, "allocatedResourcesStatus": []}]}}
"""


def test_a_pod_is_read_and_what_we_do_not_know_is_passed_over() -> None:
    """CamelCase in JSON, snake_case here, quantities as they were written, whole or not."""
    pod = msgspec.json.decode(POD, type=Pod)
    assert (pod.key, pod.metadata.uid, pod.spec.node_name) == ("team/a", "u1", "n1")
    assert pod.metadata.creation_timestamp is None
    assert pod.spec.scheduling_gates[0].name == "aliquot.dev/queue"
    assert pod.spec.init_containers[0].restart_policy == "Always"
    (main,) = pod.spec.containers
    assert main.resources.limits == {"cpu": 0.5, "aliquot.dev/memory": "8k", "aliquot.dev/compute": 30}
    assert (main.env[0].name, main.env[0].value) == ("A", "")
    assert pod.status.container_statuses[0].container_id == "containerd://1"


@pytest.mark.parametrize(
    ("phase", "ended"),
    [("Pending", False), ("Running", False), ("Unknown", False), ("", False), ("Succeeded", True), ("Failed", True)],
)
def test_only_the_end_frees_a_slice(phase: str, *, ended: bool) -> None:
    """A deletion timestamp alone frees nothing: the process may still live."""
    text = POD.replace(b'"Running"', f'"{phase}"'.encode())
    pod = msgspec.json.decode(text, type=Pod)
    assert pod.metadata.deletion_timestamp
    assert pod.ended is ended


@pytest.mark.parametrize("kind", [Pod, Node, Lease])
def test_an_object_without_anything_is_read(kind: type[Pod | Node | Lease]) -> None:
    """Every field has a default that means that nothing was said."""
    assert msgspec.json.decode(b"{}", type=kind) == kind()
    assert msgspec.json.encode(kind()) == b"{}"
