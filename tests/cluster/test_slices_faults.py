"""What breaks on a real node under granted pods: kubelet, API server, agent, specs, disk; all is well afterwards."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness, Options
from cluster.harness.pods import stays
from cluster.node_half import NAMES, SHOW, NodeHalf, asks, sharing_pod, shows

# Every watch breaks, beats fail, and those who try again rest as long as they ever do.
AWAY_SECONDS = 60
CDI = "/var/run/cdi"


@pytest.fixture
def mended(half: NodeHalf) -> Iterator[NodeHalf]:
    """The node half, whose agent and kubelet a test may end; others find it whole."""
    yield half
    if not half.node.kubelet.running:
        half.node.start_kubelet()
        half.node.kubelet.wait_ready()
    if not half.agent.running:
        half.start_agent()
    half.wait_ready()


def container_id(cluster: ClusterHarness, made: Json) -> str:
    """Which container runs in a pod."""
    (status,) = cluster.current(made)["status"]["containerStatuses"]
    return str(status["containerID"].removeprefix("containerd://"))


def kill_container(cluster: ClusterHarness, half: NodeHalf, made: Json) -> None:
    """End a pod's container as a crash would."""
    os.kill(half.node.pids_of_containers()[container_id(cluster, made)], signal.SIGKILL)


def specs_of(half: NodeHalf, made: Json) -> list[Path]:
    """The spec files of a pod."""
    files = half.node.path(CDI).glob("*.json")
    return [file for file in files if made["metadata"]["uid"] in file.read_text()]


def running(cluster: ClusterHarness, half: NodeHalf, namespace: str, *, gpu: int) -> Json:
    """A pod that shows its slice and stays, and comes back when its container ends."""
    wanted = sharing_pod(namespace, stays(SHOW, limits=asks(30, 1_000)), restart="Always")
    made = half.run(wanted, {"main": [(gpu, 30, 1_000)]})
    cluster.wait_for_phase(made, "Running")
    return made


def restarted(cluster: ClusterHarness, made: Json) -> bool:
    """Whether its container runs for the second time."""
    status = cluster.current(made)["status"]
    assert status["phase"] == "Running", status
    (container,) = status["containerStatuses"]
    return container["restartCount"] == 1 and "running" in container["state"]


def test_a_kubelet_that_restarts_fails_no_pod(cluster: ClusterHarness, mended: NodeHalf, namespace: str) -> None:
    """Killed and started: what ran runs on in the same container, what was bound meanwhile runs on its slice."""
    before = running(cluster, mended, namespace, gpu=0)
    first = container_id(cluster, before)
    mended.node.kubelet.kill()
    pods = {
        gpu: mended.run(sharing_pod(namespace, shows(limits=asks(20, 500))), {"main": [(gpu, 20, 500)]})
        for gpu in range(1, 6)
    }
    mended.node.start_kubelet()
    mended.node.kubelet.wait_ready()
    for gpu, made in pods.items():
        done = cluster.wait_for_phase(made, "Succeeded")
        assert cluster.logs(done) == f"{mended.gpu(gpu)} 20 500 void\n"
    assert container_id(cluster, before) == first


def test_an_agent_killed_between_allocate_and_prestart_leaves_the_pod_waiting(
    cluster: ClusterHarness, mended: NodeHalf, namespace: str
) -> None:
    """The ids are recorded, the start is asked of an agent that hangs and dies: its successor answers it."""
    os.kill(mended.agent.pid, signal.SIGSTOP)
    made = mended.run(sharing_pod(namespace, shows(limits=asks(30, 700))), {"main": [(4, 30, 700)]})
    cluster.wait_for("the kubelet to have asked Allocate", lambda: mended.held_ids(made) or None)
    mended.agent.kill()
    assert cluster.current(made)["status"]["phase"] == "Pending"
    assert specs_of(mended, made) == []
    mended.start_agent()
    done = cluster.wait_for_phase(made, "Succeeded")
    assert cluster.logs(done) == f"{mended.gpu(4)} 30 700 void\n"


def test_an_agent_that_is_told_to_stop_waits_for_pods_on_their_way(
    cluster: ClusterHarness, mended: NodeHalf, namespace: str
) -> None:
    """It says `draining`, so that nobody binds here, and leaves once those that were bound before are admitted."""
    mended.agent.stop()
    mended.environment["ALIQUOT_AGENT_DRAIN"] = "60"
    mended.start_agent()
    del mended.environment["ALIQUOT_AGENT_DRAIN"]
    mended.wait_ready()
    cluster.wait_for("ready", lambda: mended.lease()["metadata"]["annotations"].get(NAMES.state) == "ready" or None)
    mended.node.kubelet.kill()
    made = mended.run(sharing_pod(namespace, shows(limits=asks(30, 800))), {"main": [(5, 30, 800)]})
    key = f"{namespace}/{made['metadata']['name']}"
    os.kill(mended.agent.pid, signal.SIGTERM)
    cluster.wait_for(
        "it to wait", lambda: mended.logged("agent", message="pods are still to be admitted", pods=[key]) or None
    )
    assert mended.lease()["metadata"]["annotations"][NAMES.state] == "draining"
    assert mended.agent.running
    mended.node.start_kubelet()
    mended.node.kubelet.wait_ready()
    cluster.wait_for("it to leave", lambda: not mended.agent.running)
    assert mended.held_ids(made)
    mended.start_agent()
    done = cluster.wait_for_phase(made, "Succeeded")
    assert cluster.logs(done) == f"{mended.gpu(5)} 30 800 void\n"


def spoil(file: Path, how: str) -> None:
    """Do to a spec what a full disk, an older version or a person may have done."""
    if how == "gone":
        file.unlink()
    elif how == "truncated":
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    else:
        file.write_text(json.dumps(json.loads(file.read_text()) | {"annotations": {}}))


def test_specs_that_were_spoilt_while_no_agent_was_there_are_written_anew(
    cluster: ClusterHarness, mended: NodeHalf, namespace: str
) -> None:
    """Truncated, as an older version wrote them, gone: containers run on, and find their slices when they restart."""
    ways = ("truncated", "of an older version", "gone")
    pods = [running(cluster, mended, namespace, gpu=gpu) for gpu in range(len(ways))]
    mended.agent.kill()
    for made, how in zip(pods, ways, strict=True):
        (file,) = specs_of(mended, made)
        spoil(file, how)
    mended.start_agent()
    mended.wait_ready()
    for made in pods:
        kill_container(cluster, mended, made)
    for gpu, made in enumerate(pods):
        cluster.wait_for("its restart", lambda made=made: restarted(cluster, made) or None)  # type: ignore[misc]
        assert cluster.first_words(made) == f"{mended.gpu(gpu)} 30 1000 void\n"


@pytest.fixture
def small_cdi_folder(half: NodeHalf) -> Iterator[str]:
    """A file system of 64 KiB in the place of the CDI folder; its filler's path."""
    half.node.run_inside(["mkdir", "-p", CDI])
    half.node.run_inside(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", CDI])
    half.node.containerd.restart()  # it watches the folder that is hidden now
    yield f"{CDI}/filler"
    half.node.run_inside(["umount", CDI])
    half.node.containerd.restart()


def test_a_full_disk_holds_a_start_and_says_so(
    cluster: ClusterHarness, half: NodeHalf, namespace: str, small_cdi_folder: str
) -> None:
    """No room for the spec: the pod's Event says what to do, and once there is room it runs."""
    half.node.run_inside(["sh", "-c", f"cat /dev/zero > {small_cdi_folder}"], check=False)
    made = half.run(sharing_pod(namespace, shows(limits=asks(10, 100))), {"main": [(2, 10, 100)]})
    cluster.wait_for("an Event that says so", lambda: "No space left on device" in half.told_of(made) or None)
    assert "make room where the folder lies" in half.told_of(made)
    assert cluster.current(made)["status"]["phase"] == "Pending"
    half.node.run_inside(["rm", small_cdi_folder])
    done = cluster.wait_for_phase(made, "Succeeded")
    assert cluster.logs(done) == f"{half.gpu(2)} 10 100 void\n"


@pytest.fixture
def alone(able_machine: None) -> Iterator[NodeHalf]:  # noqa: ARG001 - it may skip
    """A cluster of the test's own with one node: others shall not feel that its API server is away."""
    with ClusterHarness(Options(nodes=("node1",))) as made:
        half = NodeHalf(made, made.node("node1"))
        half.start()
        yield half


@pytest.mark.timeout(400)
def test_a_node_lives_without_its_api_server(alone: NodeHalf) -> None:
    """What runs goes on and restarts, a pod bound just before starts or waits, and afterwards all is well."""
    cluster = alone.cluster
    with cluster.namespace() as namespace:
        calm, crashing = (running(cluster, alone, namespace, gpu=gpu) for gpu in range(2))
        first = container_id(cluster, calm)
        process = alone.node.pids_of_containers()[container_id(cluster, crashing)]
        beat = alone.lease()["spec"]["renewTime"]
        late = alone.run(sharing_pod(namespace, shows(limits=asks(20, 300))), {"main": [(2, 20, 300)]})
        cluster.control_plane.api_server.kill()
        back = time.monotonic() + AWAY_SECONDS
        os.kill(process, signal.SIGKILL)
        output = alone.node.path(
            f"/var/log/pods/{namespace}_{crashing['metadata']['name']}_{crashing['metadata']['uid']}/main"
        )
        cluster.wait_for("a second run", lambda: len(list(output.glob("*.log"))) == 2 or None)
        cluster.wait_for("the time to be over", lambda: time.monotonic() > back or None, timeout=AWAY_SECONDS)
        assert alone.agent.running
        assert alone.endpoint.running
        assert first in alone.node.pids_of_containers()
        cluster.control_plane.api_server.start()
        cluster.control_plane.api_server.wait_ready()
        done = cluster.wait_for_phase(late, "Succeeded", timeout=120)  # the kubelet takes its time
        assert cluster.logs(done) == f"{alone.gpu(2)} 20 300 void\n"
        cluster.wait_for("the restart to be told", lambda: restarted(cluster, crashing) or None)
        assert cluster.first_words(crashing) == f"{alone.gpu(1)} 30 1000 void\n"
        assert container_id(cluster, calm) == first
        fresh = alone.run(sharing_pod(namespace, shows(limits=asks(40, 600))), {"main": [(3, 40, 600)]})
        assert cluster.logs(cluster.wait_for_phase(fresh, "Succeeded", timeout=120)) == f"{alone.gpu(3)} 40 600 void\n"
        cluster.wait_for("the next beat", lambda: alone.lease()["spec"]["renewTime"] > beat or None)
        assert alone.lease()["metadata"]["annotations"][NAMES.state] == "ready"
