"""The classes of what runs the cluster on a real API server: every tenant may give them to a pod, and is told."""

from __future__ import annotations

import pytest

from aliquot_scheduler.extender.preempting import LABELLED, SYSTEM
from cluster.guarded import Guarded, asking
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.pods import pod, shell
from cluster.installed import NAMES

CLASSES = ("system-cluster-critical", "system-node-critical")


def critical(kind: str, namespace: str) -> Json:
    """A pod of this class."""
    return pod("critical", shell("true"), namespace=namespace, priorityClassName=kind)


def labelled(labels: Json) -> Json:
    """What a namespace bears."""
    return {"metadata": {"labels": labels}}


@pytest.mark.parametrize("kind", CLASSES)
def test_whoever_takes_one_is_told_what_the_kubelet_does_for_it(guarded: Guarded, namespace: str, kind: str) -> None:
    """With slices or without; of the highest class that a user may make nothing is said."""
    with_slices = asking("critical", namespace, {"compute": "30"}, priorityClassName=kind)
    for wanted in (critical(kind, namespace), with_slices):
        (told,) = guarded.warnings(wanted)
        assert f"for pods of class {kind} the kubelet ends others of their node, slices too" in told
        assert f"namespace {namespace} {NAMES.runs_the_cluster}={LABELLED}" in told


def test_what_runs_the_cluster_takes_them(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """By its namespace, and where an operator says so of one; that its pods may go round us says nothing of that."""
    for kind in CLASSES:
        assert guarded.warnings(critical(kind, SYSTEM)) == []
        assert guarded.warnings(critical(kind, NAMES.namespace)) == []
    with cluster.namespace("exporters") as exporters:
        cluster.api.patch(f"/api/v1/namespaces/{exporters}", labelled({NAMES.of("ways-round"): "allow"}))
        cluster.api.patch(f"/api/v1/namespaces/{namespace}", labelled({NAMES.runs_the_cluster: LABELLED}))
        cluster.wait_for("the label to count", lambda: guarded.warnings(critical(CLASSES[0], namespace)) == [])
        assert guarded.warnings(critical(CLASSES[0], exporters)) != []


def test_the_highest_class_of_a_user_s_own_is_not_meant(
    cluster: ClusterHarness, guarded: Guarded, namespace: str
) -> None:
    """Kubernetes makes none beyond that."""
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "aliquot-test-highest"}}
    cluster.apply({**kind, "value": 1_000_000_000})
    assert guarded.warnings(critical("aliquot-test-highest", namespace)) == []
