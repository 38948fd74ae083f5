"""A node reboots under its pods: /run is empty, no agent yet, and the kubelet asks nobody for what it has on record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import pytest

from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.pods import stays
from cluster.node_half import SHOW, NodeHalf, asks, sharing_pod, shows

REBOOTED = "node7"


@pytest.fixture
def rebooting(cluster: ClusterHarness) -> Iterator[NodeHalf]:
    """A node of the test's own."""
    running = NodeHalf(cluster, cluster.add_node(REBOOTED))
    running.start()
    yield running
    running.stop()
    cluster.remove_node(REBOOTED)


def cdi_names(half: NodeHalf) -> set[str]:
    """The devices that the runtime would find on the node."""
    specs = (json.loads(file.read_text()) for file in half.node.path("/var/run/cdi").glob("*.json"))
    return {device["name"] for spec in specs for device in spec["devices"]}


def restarted(cluster: ClusterHarness, made: Json) -> bool:
    """Whether the pod's app container runs for the second time; a pod that failed never will."""
    status = cluster.current(made)["status"]
    assert status["phase"] != "Failed", status
    # A kubelet that has just begun has none of them for an instant.
    containers = status.get("containerStatuses", [])
    return any(container["restartCount"] == 1 and "running" in container["state"] for container in containers)


def test_pods_find_their_slices_again_after_a_reboot(
    cluster: ClusterHarness, rebooting: NodeHalf, namespace: str
) -> None:
    """The endpoint's state file offers the ids in time; specs come back under the names that the kubelet recorded."""
    node = rebooting.node
    prepares = shows(name="prepare", limits=asks(30, 8_000))
    wanted = sharing_pod(namespace, stays(SHOW, limits=asks(30, 16_000)), init_containers=[prepares], restart="Always")
    both = rebooting.run(wanted, {"prepare": [(4, 30, 8_000)], "main": [(4, 30, 16_000)]})
    one = rebooting.run(
        sharing_pod(namespace, stays(SHOW, limits=asks(70, 500)), restart="Always"), {"main": [(4, 70, 500)]}
    )
    for made in (both, one):
        cluster.wait_for_phase(made, "Running")
    before = cdi_names(rebooting)

    def endpoint_alone() -> None:
        assert cdi_names(rebooting) == set()
        rebooting.start_endpoint()

    node.reboot(before_kubelet=endpoint_alone)
    rebooting.wait_registered()
    rebooting.start_agent()
    for made in (both, one):
        cluster.wait_for("it to run again", partial(restarted, cluster, made))
    assert cdi_names(rebooting) == before
    assert cluster.logs(both, "prepare") == f"{rebooting.gpu(4)} 30 8000 void\n"
    assert cluster.first_words(both) == f"{rebooting.gpu(4)} 30 16000 void\n"
    assert cluster.first_words(one) == f"{rebooting.gpu(4)} 70 500 void\n"
