"""Pods that reach for a slice past the scheduler: they get none, and those that are ours to refuse are told why."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from aliquot_core.impostors import Variable
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.node_settings import STATIC_PODS
from cluster.harness.pods import pod, read_log, stays
from cluster.node_half import NAMES, NodeHalf, asks, sharing_pod, shows


@pytest.fixture
def static_pod(half: NodeHalf) -> Iterator[Callable[[Json], None]]:
    """Lay a manifest into the kubelet's folder; it is taken away before the pods of the test are."""
    manifest = half.node.path(f"{STATIC_PODS}/static.json")

    def lay(wanted: Json) -> None:
        manifest.write_text(json.dumps(wanted))

    yield lay
    manifest.unlink(missing_ok=True)


def test_a_static_pod_is_told_why_it_gets_no_slice(
    cluster: ClusterHarness, half: NodeHalf, namespace: str, static_pod: Callable[[Json], None]
) -> None:
    """Its Event names the reason, whatever grant it brings along; none of its containers ever ran."""
    static_pod(pod("static", shows(limits=asks(10, 100)), namespace=namespace, annotations={NAMES.grant: '{"v":1}'}))
    path = f"/api/v1/namespaces/{namespace}/pods/static-{half.name}"
    mirror = cluster.wait_for("the mirror pod", lambda: cluster.api.find(path))
    # The kubelet's Events are of the pod that it runs, whose uid is the hash of the manifest.
    uid = mirror["metadata"]["annotations"]["kubernetes.io/config.hash"]
    cluster.wait_for("an Event that says why", lambda: "static pods get no slice" in half.told(namespace, uid) or None)

    def waits() -> bool:
        (container,) = cluster.current(mirror)["status"]["containerStatuses"]
        return bool(container["state"]["waiting"]["reason"] == "CreateContainerConfigError")

    cluster.wait_for("its container to wait", waits)
    assert cluster.current(mirror)["status"]["phase"] == "Pending"
    output = half.node.path(f"/var/log/pods/{namespace}_static-{half.name}_{uid}/main")
    assert read_log(output) == ""


@pytest.fixture
def token(cluster: ClusterHarness, half: NodeHalf, namespace: str) -> str:
    """The CDI name of a running pod's slice, as only root can read it."""
    made = half.run(sharing_pod(namespace, stays(limits=asks(10, 100))), {"main": [(3, 10, 100)]})
    cluster.wait_for_phase(made, "Running")
    (spec,) = [
        spec
        for file in half.node.path("/var/run/cdi").glob("*.json")
        if (spec := json.loads(file.read_text()))["annotations"][NAMES.of("pod-uid")] == made["metadata"]["uid"]
    ]
    return f"{spec['kind']}={spec['devices'][0]['name']}"


def test_naming_another_pod_s_slice_gives_nothing(
    cluster: ClusterHarness, half: NodeHalf, namespace: str, token: str
) -> None:
    """The kubelet hands no annotation of a pod to its containers, and the runtime reads only a container's."""
    notes = {"cdi.k8s.io/mine": token}
    thief = cluster.create_pod(pod("thief", shows(), namespace=namespace, node=half.name, annotations=notes))
    cluster.wait_for_phase(thief, "Succeeded")
    assert cluster.logs(thief).split() == []


def test_a_granted_pod_that_names_another_s_slice_does_not_start(
    cluster: ClusterHarness, half: NodeHalf, namespace: str, token: str
) -> None:
    """There are runtimes and plugins that would give it: such a pod is refused though its own grant is good."""
    wanted = sharing_pod(namespace, shows(limits=asks(10, 100)), annotations={"cdi.k8s.io/mine": token})
    made = half.run(wanted, {"main": [(3, 10, 100)]})
    cluster.wait_for("an Event that says why", lambda: "remove the annotation" in half.told_of(made) or None)
    assert cluster.current(made)["status"]["phase"] == "Pending"


def test_variables_that_are_set_in_vain_are_logged(cluster: ClusterHarness, half: NodeHalf, namespace: str) -> None:
    """The pod runs with what it holds; whoever reads the agent's log learns that it wanted to look otherwise."""
    wanted = sharing_pod(namespace, shows(limits=asks(10, 100), env={Variable.GPUS: "GPU-mine"}))
    made = half.run(wanted, {"main": [(0, 10, 100)]})
    done = cluster.wait_for_phase(made, "Succeeded")
    assert cluster.logs(done) == f"{half.gpu(0)} 10 100 void\n"
    key = f"{namespace}/{made['metadata']['name']}"
    assert half.logged("agent", pod=key, set_in_vain=["main: ALIQUOT_GPUS"])
