"""Parts of the node half end and come back, and pods outlive their objects: nobody fails, no slice is given twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.pods import shell, stays
from cluster.node_half import SHOW, NodeHalf, asks, sharing_pod, shows

# Of the process that ignores SIGTERM: however slow a machine is, others are seen held before it is ended.
GRACE_SECONDS = 120


@pytest.fixture
def mended(half: NodeHalf) -> Iterator[NodeHalf]:
    """The node half, which the test may break; whatever it did, others find it whole."""
    yield half
    if not half.endpoint.running:
        half.start_endpoint()
    if not half.agent.running:
        half.start_agent()
    half.wait_ready()


def phase(cluster: ClusterHarness, made: Json) -> str:
    """Where a pod stands."""
    return str(cluster.current(made)["status"]["phase"])


def lives(process: int) -> bool:
    """Whether a process has not ended yet."""
    return Path(f"/proc/{process}").exists()


def test_pods_that_come_while_the_agent_is_away_run_when_it_is_back(
    cluster: ClusterHarness, mended: NodeHalf, namespace: str
) -> None:
    """They are admitted without it, with ids of any GPU, and held before their first container; none fails."""
    mended.agent.kill()
    grants = [(gpu, 30, 1_000 + gpu) for gpu in range(5)]
    pods = [
        mended.run(sharing_pod(namespace, shows(limits=asks(30, memory))), {"main": [(gpu, 30, memory)]})
        for gpu, _, memory in grants
    ]
    cluster.wait_for("all to be admitted", lambda: all(mended.held_ids(made) for made in pods) or None)
    assert {phase(cluster, made) for made in pods} == {"Pending"}
    mended.start_agent()
    for made, (gpu, _, memory) in zip(pods, grants, strict=True):
        done = cluster.wait_for_phase(made, "Succeeded")
        assert cluster.logs(done) == f"{mended.gpu(gpu)} 30 {memory} void\n"


def test_an_endpoint_that_restarts_is_registered_again_and_touches_no_running_pod(
    cluster: ClusterHarness, mended: NodeHalf, namespace: str
) -> None:
    """By its state file, before any agent tells it what to offer."""
    made = mended.run(sharing_pod(namespace, stays(SHOW, limits=asks(40, 2_000))), {"main": [(2, 40, 2_000)]})
    before = cluster.wait_for_phase(made, "Running")
    mended.agent.stop()
    mended.endpoint.stop()
    mended.start_endpoint()
    mended.wait_registered()
    mended.start_agent()
    beside = mended.run(sharing_pod(namespace, shows(limits=asks(60, 100))), {"main": [(2, 60, 100)]})
    cluster.wait_for_phase(beside, "Succeeded")
    now = cluster.current(made)["status"]
    assert now["phase"] == "Running"
    assert now["containerStatuses"][0]["containerID"] == before["status"]["containerStatuses"][0]["containerID"]


def test_a_slice_is_held_as_long_as_a_process_of_a_deleted_pod_lives(
    cluster: ClusterHarness, half: NodeHalf, namespace: str
) -> None:
    """After a forced deletion the API server knows the pod no more; what it runs still fills the GPU."""
    stubborn = shell("trap '' TERM; sleep 100000", limits=asks(60, 100))
    first = half.run(
        sharing_pod(namespace, stubborn, terminationGracePeriodSeconds=GRACE_SECONDS), {"main": [(6, 60, 100)]}
    )
    (status,) = cluster.wait_for_phase(first, "Running")["status"]["containerStatuses"]
    process = half.node.pids_of_containers()[status["containerID"].removeprefix("containerd://")]
    cluster.delete(first, gracePeriodSeconds=0)
    second = half.run(sharing_pod(namespace, shows(limits=asks(60, 100))), {"main": [(6, 60, 100)]})
    cluster.wait_for("an Event that says so", lambda: "would be over-granted" in half.told_of(second) or None)
    assert lives(process)
    assert phase(cluster, second) == "Pending"
    os.kill(process, signal.SIGKILL)
    cluster.wait_for("the end of the process", lambda: not lives(process))
    done = cluster.wait_for_phase(second, "Succeeded")
    assert cluster.logs(done) == f"{half.gpu(6)} 60 100 void\n"


def test_another_vendor_s_garbled_spec_does_no_harm(cluster: ClusterHarness, half: NodeHalf, namespace: str) -> None:
    """The runtime reads all specs of the folder, and ours is found beside one that can't be read."""
    garbled = half.node.path("/var/run/cdi/acme.yaml")
    garbled.parent.mkdir(exist_ok=True)
    garbled.write_text("kind: acme.com/fpga\ndevices: {")
    try:
        made = half.run(sharing_pod(namespace, shows(limits=asks(10, 100))), {"main": [(1, 10, 100)]})
        done = cluster.wait_for_phase(made, "Succeeded")
    finally:
        garbled.unlink()
    assert cluster.logs(done) == f"{half.gpu(1)} 10 100 void\n"
