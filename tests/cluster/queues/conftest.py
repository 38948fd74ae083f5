"""The centre before four played cards, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.harness.cluster import ClusterHarness, Options
from cluster.played_centre import PlayedCentre


@pytest.fixture(scope="package")
def cluster(able_machine: None) -> Iterator[ClusterHarness]:  # noqa: ARG001 - it may skip
    """A control plane whose nodes are played."""
    with ClusterHarness(Options(nodes=())) as running:
        yield running


@pytest.fixture(scope="package")
def centre(cluster: ClusterHarness) -> Iterator[PlayedCentre]:
    """Four cards on one node."""
    # Nobody is moved but who has a controller and has run for ten minutes, which no pod has unless a test says so.
    # And budgets are set aside while a test waits for it.
    settings = {"ALIQUOT_QUEUES_MOVES_PER_HOUR": "3600", "ALIQUOT_QUEUES_BUDGET_GRACE": "20"}
    played = PlayedCentre(cluster, gpus=[4], **settings)
    played.start()
    yield played
    played.stop()
