"""Nodes that join later, reboot, run programs of ours, and leave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.harness import leftovers
from cluster.harness.cluster import ClusterHarness
from cluster.harness.images import Image, busybox_image
from cluster.harness.node import Node
from cluster.harness.pods import container, pod, shell, stays


@pytest.fixture
def late_node(cluster: ClusterHarness) -> Iterator[Node]:
    """Start a node of the test's own."""
    yield cluster.add_node("node3")
    cluster.remove_node("node3")


def test_late_node_runs_pods(cluster: ClusterHarness, late_node: Node, namespace: str) -> None:
    """A node that joined later runs a pod."""
    created = cluster.create_pod(pod("late", shell("echo here"), namespace=namespace, node=late_node.name))
    cluster.wait_for_phase(created, "Succeeded")
    assert cluster.logs(created) == "here\n"


def test_rebooted_node_runs_its_pods_again(cluster: ClusterHarness, late_node: Node, namespace: str) -> None:
    """A reboot ends every container and empties /run; the node's pods run again, with one restart more."""
    wanted = pod("lasting", stays("echo run"), namespace=namespace, node=late_node.name, restart="Always")
    created = cluster.wait_for_phase(cluster.create_pod(wanted), "Running")
    late_node.path("/run/trace").touch()
    late_node.reboot()

    def runs_again() -> bool:
        (status,) = cluster.current(created)["status"]["containerStatuses"]
        return status["restartCount"] == 1 and "running" in status["state"]

    cluster.wait_for("the container to run again", runs_again)
    assert not late_node.path("/run/trace").exists()


def test_program_on_a_node_sees_the_node_and_ends_with_it(cluster: ClusterHarness) -> None:
    """What a test starts on a node finds the node's kubelet at the usual path, and is gone when the node is."""
    node = cluster.add_node("node4")
    script = "test -S /var/lib/kubelet/device-plugins/kubelet.sock && touch /run/found && exec sleep 100000"
    program = node.start_inside("agent", ["sh", "-c", script], ready=lambda: node.path("/run/found").exists())
    pid, folder = program.pid, node.folder
    assert pid in leftovers.processes_of(folder)
    cluster.remove_node("node4")
    assert leftovers.processes_of(folder) == []
    assert not Path(f"/proc/{pid}").exists()


def test_image_of_our_own_runs_on_every_node(cluster: ClusterHarness, namespace: str, tmp_path: Path) -> None:
    """An image made from files and folders of this machine runs on each node, also on those that come later."""
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "greeting").write_text("good morning\n")
    base = busybox_image()
    image = Image(
        reference="aliquot.test/greeter:1",
        content={**base.content, "/opt/words": tmp_path / "words"},
        links=base.links,
        entrypoint=["cat"],
        command=["/opt/words/greeting"],
    )
    cluster.add_image(image)
    cluster.add_node("node5")
    try:
        for name in cluster.nodes:
            wanted = pod(f"greets-{name}", container(image=image.reference), namespace=namespace, node=name)
            done = cluster.wait_for_phase(cluster.create_pod(wanted), "Succeeded")
            assert cluster.logs(done) == "good morning\n"
    finally:
        cluster.remove_node("node5")
