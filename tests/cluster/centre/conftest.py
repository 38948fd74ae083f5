"""A cluster whose kube-scheduler asks our extender, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from cluster.centre.asked import ZONE
from cluster.centre_half import CentreHalf
from cluster.harness.cluster import ClusterHarness
from cluster.node_half import NodeHalf

# Short, so that a turn that leads to nothing is over within a test.
PROMISE = 4.0


@pytest.fixture(scope="package")
def cluster(able_machine: None) -> Iterator[ClusterHarness]:  # noqa: ARG001 - it may skip
    """A cluster of its own: its kube-scheduler asks our extender."""
    with ClusterHarness() as running:
        for name in running.nodes:
            running.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {ZONE: name}}})
        yield running


@pytest.fixture(scope="package")
def halves(cluster: ClusterHarness) -> Iterator[dict[str, NodeHalf]]:
    """Aliquot's part on both nodes, four simulated GPUs each."""
    made = {name: NodeHalf(cluster, node, gpus="4xA100-80GB") for name, node in cluster.nodes.items()}
    with ThreadPoolExecutor() as pool:
        list(pool.map(NodeHalf.start, made.values()))
    yield made
    for half in made.values():
        half.stop()


@pytest.fixture(scope="package")
def centre(cluster: ClusterHarness, halves: dict[str, NodeHalf]) -> Iterator[CentreHalf]:  # noqa: ARG001 - comes first
    """The centre with one replica."""
    # Where it is so, one test says.
    denied = {"ALIQUOT_SCHEDULER_EVICTIONS_DENIED": "true"}
    half = CentreHalf(cluster, ALIQUOT_SCHEDULER_PROMISE=str(PROMISE), **denied)
    half.start()
    yield half
    half.stop()
