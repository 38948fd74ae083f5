"""A control plane without nodes for all tests of this folder, with Aliquot's webhook and policies in force."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.guarded import Guarded
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness, Options

# Of pods that come in, who sent them and what was said to that; of all else nothing.
AUDITED: Json = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "verbs": ["create"], "resources": [{"group": "", "resources": ["pods"]}]},
        {"level": "None"},
    ],
}


@pytest.fixture(scope="package")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the API server writes what was asked of it, a line for each request."""
    return tmp_path_factory.mktemp("audit") / "log"


@pytest.fixture(scope="package")
def cluster(able_machine: None, audit_log: Path) -> Iterator[ClusterHarness]:  # noqa: ARG001 - it may skip
    """Pods stay as they come in, and no other test feels our policies."""
    policy = audit_log.with_name("policy.json")
    policy.write_text(json.dumps(AUDITED))
    flags = (f"--audit-policy-file={policy}", f"--audit-log-path={audit_log}")
    with ClusterHarness(Options(nodes=(), api_server_flags=flags)) as running:
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
