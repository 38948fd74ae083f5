"""Nodes that kwok plays, for tests of scale."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.harness import binaries
from cluster.harness.cluster import ClusterHarness
from cluster.harness.played import TOLERATED
from cluster.harness.pods import pod, shell
from support.require import skip_or_fail

CAPACITY = {"aliquot.test/portion": "4"}


@pytest.fixture
def played(cluster: ClusterHarness) -> Iterator[list[str]]:
    """Add twenty played nodes, and take them away again."""
    if binaries.not_built(["kwok"]):
        skip_or_fail("cluster", "kwok is not built (tests/cluster/binaries/build kwok)")
    try:
        yield cluster.played_nodes.add(20, CAPACITY)
    finally:
        cluster.played_nodes.remove()


def test_played_nodes_take_pods_by_their_capacity(cluster: ClusterHarness, namespace: str, played: list[str]) -> None:
    """kube-scheduler fills played nodes as far as their extended resource goes, and the pods are said to run."""
    needs = shell("true", limits={"aliquot.test/portion": "4"})
    pods = [
        cluster.create_pod(pod(f"pod{number}", needs, namespace=namespace, tolerations=TOLERATED))
        for number in range(20)
    ]
    running = [cluster.wait_for_phase(each, "Running") for each in pods]
    assert sorted(each["spec"]["nodeName"] for each in running) == sorted(played)


def test_other_pods_stay_off_played_nodes(cluster: ClusterHarness, namespace: str, played: list[str]) -> None:
    """A pod that does not tolerate them goes to a real node."""
    created = cluster.create_pod(pod("real", shell("true"), namespace=namespace))
    assert cluster.wait_for_phase(created, "Succeeded")["spec"]["nodeName"] not in played
