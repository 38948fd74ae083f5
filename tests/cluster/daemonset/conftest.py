"""A cluster of our own with Aliquot installed in it, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.harness.cluster import ClusterHarness
from cluster.installed import Installed

HERE = Path(__file__).parent
TEST_SECONDS = 300  # the first test also starts a cluster and imports the image


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder more time, and run them in a row: the hook is given all tests, already shuffled."""
    items.sort(key=lambda item: HERE in item.path.parents)
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS), append=False)


@pytest.fixture(scope="package")
def cluster(able_machine: None) -> Iterator[ClusterHarness]:  # noqa: ARG001 - it may skip
    """The policies would refuse what tests of the shared cluster do as administrators."""
    with ClusterHarness() as running:
        yield running


@pytest.fixture(scope="package")
def installation(cluster: ClusterHarness) -> Installed:
    """What there is to install."""
    return Installed(cluster)


@pytest.fixture
def installed(installation: Installed) -> Installed:
    """Aliquot on both nodes, as an operator installs it; whatever uninstalls it needs not install it again."""
    installation.install()
    return installation
