"""What every other test here relies on."""

from __future__ import annotations

import base64
import json

import pytest

from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.errors import ApiError, HarnessError, WaitTimeoutError
from cluster.harness.pods import BY_HAND, pod, shell, stays

NODES = ("node1", "node2")


def run_and_wait(cluster: ClusterHarness, wanted: Json, phase: str = "Running") -> Json:
    """Create the pod and wait until it is in the phase."""
    return cluster.wait_for_phase(cluster.create_pod(wanted), phase)


def process_of(cluster: ClusterHarness, running: Json) -> int:
    """The process id of the pod's one container."""
    (status,) = cluster.current(running)["status"]["containerStatuses"]
    node = cluster.node(running["spec"]["nodeName"])
    return node.pids_of_containers()[status["containerID"].removeprefix("containerd://")]


@pytest.mark.parametrize("name", NODES)
def test_node_is_ready_and_untainted(cluster: ClusterHarness, name: str) -> None:
    """Each node says Ready, and nothing keeps pods away from it."""
    assert cluster.node_is_ready(name)


@pytest.mark.parametrize("name", NODES)
def test_pod_runs_to_its_end_on_each_node(cluster: ClusterHarness, namespace: str, name: str) -> None:
    """A pod put on a node runs there to its end, and its output can be read."""
    done = run_and_wait(
        cluster, pod("hello", shell("echo hello; hostname"), namespace=namespace, node=name), "Succeeded"
    )
    assert done["spec"]["nodeName"] == name
    assert cluster.logs(done).startswith("hello\n")


def test_what_an_ended_container_printed_is_read_whole(cluster: ClusterHarness, namespace: str) -> None:
    """Its end may be told of before all is written: the runtime has its file open for as long as that."""
    talks = shell("echo begins; while [ ! -e /tmp/go ]; do sleep 0.05; done; seq 20000")
    running = run_and_wait(cluster, pod("talks", talks, namespace=namespace))
    meta, node = running["metadata"], cluster.node(running["spec"]["nodeName"])
    assert node.still_logs(f"pods/{meta['namespace']}_{meta['name']}_{meta['uid']}/main")
    cluster.exec(running, ["touch", "/tmp/go"])
    done = cluster.wait_for_phase(running, "Succeeded")
    assert cluster.logs(done).splitlines() == ["begins", *map(str, range(1, 20_001))]


def test_scheduler_finds_a_node(cluster: ClusterHarness, namespace: str) -> None:
    """A pod without a node is given one by kube-scheduler."""
    done = run_and_wait(cluster, pod("anywhere", shell("true"), namespace=namespace), "Succeeded")
    assert done["spec"]["nodeName"] in NODES


def test_binding_carries_annotations(cluster: ClusterHarness, namespace: str) -> None:
    """A pod bound by hand has the binding's annotations beside its own, and runs."""
    wanted = pod("granted", shell("true"), namespace=namespace, scheduler=BY_HAND, annotations={"own": "kept"})
    created = cluster.create_pod(wanted)
    cluster.bind(created, "node2", {"aliquot.dev/grant": "{}"})
    bound = cluster.wait_for_phase(created, "Succeeded")
    assert bound["metadata"]["annotations"] == {"own": "kept", "aliquot.dev/grant": "{}"}


def test_pod_has_its_service_account(cluster: ClusterHarness, namespace: str) -> None:
    """ServiceAccount admission is on: a container finds a token and the API server's certificate."""
    look = "cd /var/run/secrets/kubernetes.io/serviceaccount && cat namespace && wc -c < token && cat ca.crt"
    done = run_and_wait(cluster, pod("who", shell(look), namespace=namespace), "Succeeded")
    told = cluster.logs(done)
    assert told.startswith(namespace)
    assert cluster.credentials.certificate.read_text().strip() in told


def test_token_of_a_pod_names_its_node(cluster: ClusterHarness, namespace: str) -> None:
    """A service account token bound to a pod says on which node the pod is."""
    running = run_and_wait(cluster, pod("agent", stays(), namespace=namespace, node="node2"))
    token = cluster.service_account_token(namespace, "default", pod=running)
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["kubernetes.io"]["node"]["name"] == "node2"


def test_command_runs_in_a_container(cluster: ClusterHarness, namespace: str) -> None:
    """A command can be run inside a running container."""
    wanted = pod("open", stays(env={"COLOUR": "green"}), namespace=namespace)
    running = run_and_wait(cluster, wanted)
    assert cluster.exec(running, ["sh", "-c", "echo $COLOUR"]) == "green\n"


def test_nodes_have_folders_of_their_own(cluster: ClusterHarness) -> None:
    """What a node writes under /run, /var/lib and /var/log is its own, and is seen from outside at `path`."""
    for name in NODES:
        for folder in ("/run", "/var/lib", "/var/log"):
            cluster.node(name).run_inside(["sh", "-c", f"echo {name} > {folder}/whose"])
    for name in NODES:
        for folder in ("/run", "/var/run", "/var/lib", "/var/log"):
            assert cluster.node(name).path(f"{folder}/whose").read_text() == f"{name}\n"


def test_device_plugin_folder_is_each_nodes_own(cluster: ClusterHarness) -> None:
    """Each kubelet listens for device plugins at the usual path, inside its node."""
    for name in NODES:
        assert cluster.node(name).path("/var/lib/kubelet/device-plugins/kubelet.sock").is_socket()


@pytest.mark.parametrize("component", ["kubelet", "containerd"])
def test_restart_keeps_a_running_container(cluster: ClusterHarness, namespace: str, component: str) -> None:
    """A container runs on, as the same process, when its kubelet or its containerd restarts."""
    node = cluster.node("node1")
    running = run_and_wait(cluster, pod("stays", stays(), namespace=namespace, node="node1"))
    before = process_of(cluster, running)
    getattr(node, component).restart()
    # That a pod that came later has run shows that the new one is through with its start.
    run_and_wait(cluster, pod("later", shell("true"), namespace=namespace, node="node1"), "Succeeded")
    assert process_of(cluster, running) == before
    (status,) = cluster.current(running)["status"]["containerStatuses"]
    assert status["restartCount"] == 0


def test_kubelet_is_killed_and_started_again(cluster: ClusterHarness, namespace: str) -> None:
    """A pod bound while the kubelet is dead runs once it is back."""
    node = cluster.node("node2")
    node.kubelet.kill()
    waiting = cluster.create_pod(pod("patient", shell("true"), namespace=namespace, node="node2"))
    node.start_kubelet()
    node.kubelet.wait_ready()
    assert cluster.wait_for_phase(waiting, "Succeeded")["spec"]["nodeName"] == "node2"


def test_pod_that_ends_otherwise_is_told_at_once(cluster: ClusterHarness, namespace: str) -> None:
    """Waiting for a pod that failed does not wait for the deadline."""
    created = cluster.create_pod(pod("fails", shell("exit 3"), namespace=namespace))
    with pytest.raises(HarnessError, match="is Failed, not Succeeded"):
        cluster.wait_for_phase(created, "Succeeded")


def test_vain_waiting_shows_the_logs(cluster: ClusterHarness) -> None:
    """When something does not come, the error holds the tail of each kubelet's log."""
    with pytest.raises(WaitTimeoutError, match=r"(?s)waited 0\.1 s for: the moon.*node1 kubelet, last lines of"):
        cluster.wait_for("the moon", lambda: None, timeout=0.1)


def test_user_without_rights_is_refused(cluster: ClusterHarness) -> None:
    """RBAC is on: somebody without a role may not read pods, and the refusal tells its reason."""
    with pytest.raises(ApiError, match="403 Forbidden") as refusal:
        cluster.api_as("nobody-special").get("/api/v1/pods")
    assert refusal.value.status == 403


def test_node_may_not_write_another_node(cluster: ClusterHarness) -> None:
    """NodeRestriction is on: a node's credentials change that node alone."""
    change = {"metadata": {"labels": {"aliquot.test/colour": "green"}}}
    node1 = cluster.api_as("system:node:node1")
    node1.patch("/api/v1/nodes/node1", change)
    with pytest.raises(ApiError, match="not allowed to modify"):
        node1.patch("/api/v1/nodes/node2", change)
