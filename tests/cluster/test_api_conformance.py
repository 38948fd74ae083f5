"""A real kube-apiserver keeps the same contracts as the embedded one: that is what keeps the embedded one honest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.harness.cluster import ClusterHarness
from cluster.harness.credentials import ADMIN
from conformance.contracts.applies import AppliesContract
from conformance.contracts.customs import CustomsContract
from conformance.contracts.kinds import KindsContract
from conformance.contracts.limits import LimitsContract
from conformance.contracts.lists import ListsContract
from conformance.contracts.objects import ObjectsContract
from conformance.contracts.patches import PatchesContract
from conformance.contracts.pods import PodsContract
from conformance.contracts.space import Space
from conformance.contracts.watches import WatchesContract
from conformance.contracts.webhooks import WebhooksContract
from support.http_api import HttpApi


@pytest.fixture(scope="module")
def api_under_test(cluster: ClusterHarness) -> HttpApi:
    """Give the real server to the contracts."""
    credentials = cluster.credentials
    return HttpApi(
        url=cluster.control_plane.server, token=credentials.tokens[ADMIN], certificate=credentials.certificate
    )


@pytest.fixture
def space(api_under_test: HttpApi) -> Iterator[Space]:
    """Give the test a namespace of its own."""
    made = Space.make(api_under_test)
    yield made
    api_under_test.delete(made.path)


class TestApplies(AppliesContract):
    """Against a real server."""


class TestCustoms(CustomsContract):
    """Against a real server."""


class TestKinds(KindsContract):
    """Against a real server."""


class TestLimits(LimitsContract):
    """Against a real server."""


class TestLists(ListsContract):
    """Against a real server."""


class TestObjects(ObjectsContract):
    """Against a real server."""


class TestPatches(PatchesContract):
    """Against a real server."""


class TestPods(PodsContract):
    """Against a real server."""


class TestWatches(WatchesContract):
    """Against a real server."""


class TestWebhooks(WebhooksContract):
    """Against a real server."""
