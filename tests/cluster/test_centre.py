"""The centre on a real cluster: pods that ask for a fraction are placed, bound and granted, and run on their GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from aliquot_core.grant import Grant, decode_grant
from cluster.centre_half import NAMES, SCHEDULER, CentreHalf
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.pods import pod
from cluster.node_half import NodeHalf, asks, shows

GATES = [{"name": NAMES.gate}]


@pytest.fixture(scope="module")
def cluster(able_machine: None) -> Iterator[ClusterHarness]:  # noqa: ARG001 - it may skip
    """A cluster of its own: its kube-scheduler asks our extender."""
    with ClusterHarness() as running:
        yield running


@pytest.fixture(scope="module")
def halves(cluster: ClusterHarness) -> Iterator[dict[str, NodeHalf]]:
    """Aliquot's part on both nodes, four simulated GPUs each."""
    made = {name: NodeHalf(cluster, node, gpus="4xA100-80GB") for name, node in cluster.nodes.items()}
    with ThreadPoolExecutor() as pool:
        list(pool.map(NodeHalf.start, made.values()))
    yield made
    for half in made.values():
        half.stop()


@pytest.fixture(scope="module")
def centre(cluster: ClusterHarness, halves: dict[str, NodeHalf]) -> Iterator[CentreHalf]:  # noqa: ARG001 - comes first
    """The centre with one replica."""
    half = CentreHalf(cluster)
    half.start()
    yield half
    half.stop()


def asking(name: str, namespace: str, compute: int, memory: int, **spec: object) -> Json:
    """A pod behind its gate, as the webhook leaves it."""
    wanted = pod(name, shows(limits=asks(compute, memory)), namespace=namespace, scheduler=SCHEDULER)
    wanted["spec"] |= {"schedulingGates": GATES, **spec}
    return wanted


def grant_of(cluster: ClusterHarness, made: Json) -> Grant:
    """What the pod was granted."""
    return decode_grant(cluster.current(made)["metadata"]["annotations"][NAMES.grant])


def test_a_gated_pod_is_let_through_bound_and_granted_in_one_write_and_runs_on_its_gpu(
    cluster: ClusterHarness, centre: CentreHalf, halves: dict[str, NodeHalf], namespace: str
) -> None:
    """From creation to the slice's own output, with nobody's help."""
    made = cluster.create_pod(asking("one", namespace, 30, 8_000))
    done = cluster.wait_for_phase(made, "Succeeded")
    grant = grant_of(cluster, made)
    ((_, part),) = grant.slices()
    assert grant.node == done["spec"]["nodeName"]
    assert part.gpu in {halves[grant.node].gpu(index) for index in range(4)}
    assert cluster.logs(made) == f"{part.gpu} 30 8000 void\n"
    assert centre.replicas[0].logged("bound")
