"""Sixty granted pods come at once."""

from __future__ import annotations

import pytest

from cluster.burst import PATIENCE_SECONDS, run_burst
from cluster.harness.cluster import ClusterHarness
from cluster.node_half import NodeHalf

PODS = 60


@pytest.mark.timeout(PATIENCE_SECONDS + 60)
def test_a_burst_of_pods_all_run_each_on_its_slice(cluster: ClusterHarness, half: NodeHalf, namespace: str) -> None:
    """None is rejected, and init and app containers that share ids each print their own memory."""
    burst = run_burst(cluster, half, namespace=namespace, pods=PODS)
    assert burst.phases == {"Succeeded": PODS}
    assert burst.wrong == []
