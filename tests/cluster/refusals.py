"""Writes that the API server must refuse, and where they go."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cluster.harness.api import Json
from cluster.harness.errors import ApiError
from cluster.installed import NAMES, SYSTEM

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"
NODE1, NODE2 = "/api/v1/nodes/node1", "/api/v1/nodes/node2"
FORGED = {NAMES.grant: '{"v":1}'}


def expect_refused(write: Callable[[], object], *, by: str = "") -> str:
    """Expect that the API server forbids a write, and that the policy or webhook named says so; what it says."""
    with pytest.raises(ApiError) as caught:
        write()
    assert caught.value.status in (403, 422), caught.value
    assert by in str(caught.value)
    return str(caught.value)


def annotated(annotations: dict[str, str | None]) -> Json:
    """A merge patch of annotations."""
    return {"metadata": {"annotations": annotations}}


def lease(name: str, *, namespace: str = NAMES.namespace) -> Json:
    """A Lease as it is created."""
    where = {"name": name, "namespace": namespace}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": where}
