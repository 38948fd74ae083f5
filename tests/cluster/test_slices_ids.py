"""The device ids that the kubelet records name the granted GPU, under every topology policy; the grant rules anyway."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aliquot_agent.starting.device_ids import stems
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.node_half import NodeHalf, asks, sharing_pod, shows
from cluster.numa import pretend_two_sockets

STRICT = "node6"


@pytest.fixture(scope="module")
def strict(cluster: ClusterHarness) -> Iterator[NodeHalf]:
    """A node of two sockets whose kubelet takes everything of a pod from one of them, or fails it."""
    node = cluster.add_node(STRICT)
    node.kubelet.stop()
    pretend_two_sockets(node)
    node.kubelet_settings["topologyManagerPolicy"] = "single-numa-node"
    node.start_kubelet()
    node.kubelet.wait_ready()
    running = NodeHalf(cluster, node)
    running.start()
    yield running
    running.stop()
    cluster.remove_node(STRICT)


def named(half: NodeHalf, made: Json, container: str = "main") -> dict[int, int]:
    """How many of the recorded ids name each GPU, by its index."""
    index_of = {stem: index for index, stem in enumerate(stems(half.gpu(number) for number in range(8)).values())}
    found: dict[int, int] = {}
    for device in half.held_ids(made)[container]:
        index = index_of[device.rpartition("-")[0]]
        found[index] = found.get(index, 0) + 1
    return found


def test_ids_name_the_granted_gpus(cluster: ClusterHarness, half: NodeHalf, namespace: str) -> None:
    """Of several pods at once, each one's ids are of its own GPUs, and as many as its percent there."""
    grants = [[(6, 30, 500)], [(2, 30, 500)], [(4, 100, 400), (7, 50, 200)], [(5, 0, 500)]]
    pods = []
    for parts in grants:
        percent, memory = sum(part[1] for part in parts), sum(part[2] for part in parts)
        pods.append(half.run(sharing_pod(namespace, shows(limits=asks(percent, memory))), {"main": parts}))
    for made, parts in zip(pods, grants, strict=True):
        cluster.wait_for_phase(made, "Succeeded")
        assert named(half, made) == {gpu: percent or 1 for gpu, percent, _ in parts}


def test_a_topology_policy_neither_moves_nor_fails_a_pod(
    cluster: ClusterHarness, strict: NodeHalf, namespace: str
) -> None:
    """A slice on the second socket's GPU, and one over both sockets, run as granted and are recorded so."""
    one = strict.run(sharing_pod(namespace, shows(limits=asks(30, 500))), {"main": [(7, 30, 500)]})
    five = [(gpu, 100, 100) for gpu in (0, 1, 2, 4, 5)]
    many = strict.run(sharing_pod(namespace, shows(limits=asks(500, 500))), {"main": five})
    cluster.wait_for_phase(one, "Succeeded")
    cluster.wait_for_phase(many, "Succeeded")
    assert cluster.logs(one) == f"{strict.gpu(7)} 30 500 void\n"
    assert cluster.logs(many).split()[0].split(",") == [strict.gpu(gpu) for gpu, *_ in five]
    assert named(strict, one) == {7: 30}
    assert named(strict, many) == dict.fromkeys((0, 1, 2, 4, 5), 100)
    assert 'topologyPolicyName="single-numa-node"' in strict.node.kubelet.log.read_text()
