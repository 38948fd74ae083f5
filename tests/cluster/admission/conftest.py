"""A control plane without nodes for all tests of this folder, with Aliquot's webhook and policies in force."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.guarded import Guarded
from cluster.harness.cluster import ClusterHarness, Options


@pytest.fixture(scope="package")
def cluster(able_machine: None) -> Iterator[ClusterHarness]:  # noqa: ARG001 - it may skip
    """Pods stay as they come in, and no other test feels our policies."""
    with ClusterHarness(Options(nodes=())) as running:
        yield running


@pytest.fixture(scope="package")
def guarded(cluster: ClusterHarness) -> Iterator[Guarded]:
    """Webhook and policies in force."""
    guarded = Guarded(cluster)
    guarded.install()
    yield guarded
    guarded.webhook.stop()


@pytest.fixture
def namespace(cluster: ClusterHarness, guarded: Guarded) -> Iterator[str]:
    """Give the test a namespace of its own; pods that are bound here have no kubelet to end them."""
    name = cluster.make_namespace()
    yield name
    cluster.api.delete(f"/api/v1/namespaces/{name}/pods", gracePeriodSeconds=0)
    cluster.api.delete(f"/api/v1/namespaces/{name}")
    assert guarded.webhook.running
