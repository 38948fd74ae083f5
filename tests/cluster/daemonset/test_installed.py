"""What daemonset/ installs works on a real cluster, and goes again without a trace."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.installed import (
    AGENT,
    ENDPOINT,
    ENDPOINT_BY,
    NAMES,
    Installed,
    forgets_its_plugin,
    nothing_left,
    restarts_without_a_record,
)
from cluster.node_half import COMMAND
from cluster.refusals import LEASES, NODE1


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


def test_an_endpoint_is_seen_to_turn(cluster: ClusterHarness, installed: Installed) -> None:
    """The kubelet's own probe finds what it touches, with the image's own Python."""

    def are_ready() -> bool:
        pods = installed.pods(ENDPOINT)
        assert all("readinessProbe" in pod["spec"]["containers"][0] for pod in pods)
        said = [
            each["status"] for pod in pods for each in pod["status"].get("conditions", ()) if each["type"] == "Ready"
        ]
        return said == ["True"] * len(cluster.nodes)

    cluster.wait_for("the endpoints to be ready", are_ready)


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
        cluster.wait_for("one of the pods", partial(installed.has_ended, made[-2]))
        assert len(made) < 60, installed.explain()
    for each in made:
        cluster.wait_for_phase(each, "Succeeded")
    now = installed.pods(AGENT)
    assert before.isdisjoint(each["metadata"]["uid"] for each in now)
    assert [each["status"]["containerStatuses"][0]["restartCount"] for each in now] == [0] * len(cluster.nodes)


@pytest.fixture
def by_systemd(cluster: ClusterHarness, installed: Installed) -> Iterator[str]:
    """A node whose endpoint is a service: it waits for the pod to leave, which the label brings about."""
    installed.start_service("node2")
    installed.label("node2", ENDPOINT_BY, "systemd")
    cluster.wait_for("the pod to leave", lambda: not installed.pods(ENDPOINT, node="node2"))
    installed.wait_ready("node2")
    yield "node2"
    installed.label("node2", ENDPOINT_BY, None)
    cluster.node("node2").components[-1].stop()
    installed.wait_ready("node2")


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
        cluster.wait_for("it to run again", partial(runs_again, cluster, each))
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
    # After a reboot there is an instant in which the kubelet has told of none yet.
    found = status.get("containerStatuses", [])
    return [each["restartCount"] for each in found] == [1] and all("running" in each["state"] for each in found)


def test_a_kubelet_that_lost_its_record_stays_ready(
    cluster: ClusterHarness, installed: Installed, namespace: str
) -> None:
    """It registers anew and carries our memory over; no policy stands in its way, and pods run."""
    node = cluster.node("node2")
    before = restarts_without_a_record(cluster, "node2")
    installed.wait_ready("node2")
    cluster.wait_for("the node to be ready", lambda: cluster.node_is_ready("node2") or None)
    cluster.wait_for_phase(installed.run(namespace, "node2", gpu=1), "Succeeded")
    assert "ValidatingAdmissionPolicy" not in node.kubelet.log.read_text()[before:]


def test_a_kubelet_may_zero_its_memory_and_the_agent_tells_it_again(
    cluster: ClusterHarness, installed: Installed
) -> None:
    """Kubelets zero extended resources of a node that was made anew (seen in their source, not in 1.36's runs)."""
    zero = {"status": {"capacity": {NAMES.memory: "0"}, "allocatable": {NAMES.memory: "0"}}}
    answer = cluster.api_as("system:node:node1").patch(f"{NODE1}/status", zero)
    assert answer["status"]["capacity"][NAMES.memory] == "0"
    installed.wait_ready("node1")


def test_uninstalled_leaves_nothing_on_the_nodes(cluster: ClusterHarness, installed: Installed) -> None:
    """One leaves while Aliquot stays, with the agent's own rights; the other when all of it goes.

    No capacity either: a kubelet leaves 0 in the status of its node for ever. The five minutes themselves are waited
    for in a soak (`cluster/test_installed`).
    """
    installed.leave("node2")
    forgets_its_plugin(cluster, "node2")
    installed.withdraw("node2")
    assert cluster.api.find(f"{LEASES}/{NAMES.lease('node2')}") is None
    cluster.wait_for("nothing of ours to be left", partial(nothing_left, cluster, "node2"))
    assert installed.offers("node1")
    installed.uninstall()
    forgets_its_plugin(cluster, "node1")
    kubeconfig = str(cluster.kubeconfig("admin"))
    withdraw = [COMMAND, "agent", "--withdraw-no-wait", "--node-name", "node1", "--kubeconfig", kubeconfig]
    subprocess.run(withdraw, check=True, capture_output=True, timeout=120)
    cluster.wait_for("nothing of ours to be left", partial(nothing_left, cluster, "node1"))
