"""kubectl works against the embedded server: what people type, and what they see."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aliquot_standalone.apiserver.embedded import kubeconfig
from cluster.harness import binaries
from conformance.contracts.space import Space
from support.require import skip_or_fail

Kubectl = Callable[..., str]

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"app": "web"}},
    "spec": {
        "schedulerName": "nobody",
        "containers": [
            {
                "name": "main",
                "image": "none:1",
                # As the server writes quantities: otherwise kubectl sees a difference each time, on any server.
                "resources": {"limits": {"aliquot.dev/compute": "30", "aliquot.dev/memory": "8k"}},
            }
        ],
    },
}
KUBECTL = "kubectl"


def _program() -> str:
    return str(binaries.find(KUBECTL) or shutil.which(KUBECTL) or "")


@pytest.fixture
def kubectl(space: Space, tmp_path: Path) -> Kubectl:
    """Give a function that runs kubectl in the test's namespace."""
    program = _program()
    if not program:
        skip_or_fail("cluster", "kubectl is neither built (make cluster) nor on the PATH")
    config = tmp_path / "kubeconfig"
    config.write_text(json.dumps(kubeconfig(space.api.url)))
    environment = {**os.environ, "KUBECONFIG": str(config), "HOME": str(tmp_path)}

    def run(*arguments: str, given: object = None) -> str:
        done = subprocess.run(
            [program, "--namespace", space.name, *arguments],
            input=json.dumps(given) if given else None,
            env=environment,
            capture_output=True,
            text=True,
            timeout=15,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_apply_creates_and_changes(kubectl: Kubectl, space: Space) -> None:
    """`apply` creates, does nothing the second time, and changes what changed."""
    assert "created" in kubectl("apply", "-f", "-", given=POD)
    assert "unchanged" in kubectl("apply", "-f", "-", given=POD)
    changed = json.loads(json.dumps(POD).replace("none:1", "none:2"))
    assert "configured" in kubectl("apply", "-f", "-", given=changed)
    assert space.api.get(f"{space.pods}/web").ok()["spec"]["containers"][0]["image"] == "none:2"


def test_get_shows_rows_and_objects(kubectl: Kubectl) -> None:
    """`get` draws the server's columns, and `-o yaml` gives the object."""
    kubectl("apply", "-f", "-", given=POD)
    header, row = kubectl("get", "pods", "-o", "wide").splitlines()
    assert header.split()[:5] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row.split()[:4] == ["web", "0/1", "Pending", "0"]
    assert "aliquot.dev/memory: 8k" in kubectl("get", "pod", "web", "-o", "yaml")
    assert kubectl("get", "po", "-l", "app=web", "-o", "name") == "pod/web\n"
    assert kubectl("get", "ns", "default").split()[:3] == ["NAME", "STATUS", "AGE"]


def test_get_follows_changes(kubectl: Kubectl, space: Space) -> None:
    """`get -w` shows what is there, and ends with the server's watch."""
    kubectl("apply", "-f", "-", given=POD)
    shown = kubectl("get", "pods", "--watch", "--request-timeout=1s", "-o", "name")
    assert shown.splitlines()[0] == "pod/web"
    assert space.api.get(f"{space.pods}/web").code == 200


def test_labels_annotations_and_edits(kubectl: Kubectl, space: Space) -> None:
    """`label`, `annotate` and the three kinds of `patch` change what they say."""
    kubectl("apply", "-f", "-", given=POD)
    kubectl("label", "pod", "web", "team=a", "app-")
    kubectl("annotate", "pod", "web", "note=kept")
    for kind, patch in (
        ("json", '[{"op": "add", "path": "/metadata/labels/a", "value": "1"}]'),
        ("merge", '{"metadata": {"labels": {"b": "2"}}}'),
        ("strategic", '{"metadata": {"labels": {"c": "3"}}}'),
    ):
        kubectl("patch", "pod", "web", "--type", kind, "-p", patch)
    metadata = space.api.get(f"{space.pods}/web").ok()["metadata"]
    assert metadata["labels"] == {"team": "a", "a": "1", "b": "2", "c": "3"}
    assert metadata["annotations"]["note"] == "kept"


def test_describe_tells_events(kubectl: Kubectl, space: Space) -> None:
    """`describe` shows the pod with what happened to it."""
    kubectl("apply", "-f", "-", given=POD)
    uid = space.api.get(f"{space.pods}/web").ok()["metadata"]["uid"]
    about = {"kind": "Pod", "namespace": space.name, "name": "web", "uid": uid}
    event = {
        "metadata": {"name": "e"},
        "involvedObject": about,
        "reason": "Granted",
        "message": "a slice",
        "type": "Normal",
    }
    space.api.post(f"{space.path}/events", event).ok()
    described = kubectl("describe", "pod", "web")
    assert "aliquot.dev/compute:  30" in described
    assert "Granted" in described


def test_describe_of_a_node(kubectl: Kubectl, space: Space) -> None:
    """`describe node` shows its capacity and the pods bound to it."""
    name = f"node-of-{space.name}"
    space.api.post(
        "/api/v1/nodes", {"metadata": {"name": name}, "status": {"capacity": {"aliquot.dev/compute": "800"}}}
    ).ok()
    space.create_pod("web")
    space.bind("web", name)
    described = kubectl("describe", "node", name)
    space.api.delete(f"/api/v1/nodes/{name}")
    assert "aliquot.dev/compute:  800" in described
    assert "web" in described


def test_delete_waits_until_it_is_gone(kubectl: Kubectl, space: Space) -> None:
    """`delete` returns when the pod is gone."""
    kubectl("apply", "-f", "-", given=POD)
    assert 'pod "web"' in kubectl("delete", "pod", "web")
    assert space.api.get(f"{space.pods}/web").code == 404


def test_what_there_is(kubectl: Kubectl) -> None:
    """`api-resources` and `version` tell what the server has."""
    listed = kubectl("api-resources", "-o", "name").split()
    assert {"pods", "nodes", "leases.coordination.k8s.io"} <= set(listed)
    assert "v1.36" in kubectl("version")
