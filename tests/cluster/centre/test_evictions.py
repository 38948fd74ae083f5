"""Whom kube-scheduler evicts by priority on a real cluster: nobody with slices, but for what runs the cluster."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from aliquot_core.hosts import quantity
from aliquot_scheduler.admission.sparing import NOBODY_GOES
from aliquot_scheduler.extender.preempting import LABELLED
from cluster.centre.asked import ZONE, asking
from cluster.centre_half import NAMES, SCHEDULER, CentreHalf
from cluster.charts import template
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.controlplane import LOOPBACK
from cluster.harness.errors import ApiError
from cluster.harness.pods import pod, stays

SPARED = "kept from eviction by priority"


@pytest.mark.parametrize(("profile", "asks_whom"), [(SCHEDULER, False), ("default-scheduler", True)])
def test_a_high_priority_evicts_no_other_tenant_s_pod(
    cluster: ClusterHarness,
    centre: CentreHalf,
    namespace: str,
    profile: str,
    asks_whom: bool,
) -> None:
    """kube-scheduler would evict by priority alone; its dry run asks no extender.

    In our profile it does not try. In another that asks our extender it does, and is offered nobody: DefaultPreemption
    is on in the cluster's own, which finds no device left on either node.
    """
    before = centre.calls("preempt")
    cluster.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "aliquot-test-high"},
            "value": 1_000_000,
        }
    )
    held = [cluster.create_pod(asking(f"a{number}", namespace, 400, 100_000, lasting=True)) for number in range(2)]
    for one in held:
        # On a busy machine a turn may be over before kube-scheduler comes to it, and the next is seconds later.
        cluster.wait_for_phase(one, "Running", timeout=90)
    with cluster.namespace("tenant-b") as tenant:
        wanted = asking("high", tenant, 50, 8_000, gated=False, priorityClassName="aliquot-test-high")
        high = cluster.create_pod(wanted | {"spec": {**wanted["spec"], "schedulerName": profile}})
        cluster.wait_for("kube-scheduler to have tried", lambda: _unschedulable(cluster, high))
        assert "0/2 nodes are available" in str(_unschedulable(cluster, high))
        if asks_whom:
            # While a node tells of its devices anew there is nobody whose end would help. It looks again when the pod
            # changes; by itself it may take five minutes.
            def asked() -> bool:
                cluster.api.patch(cluster.api.path_of(high), {"metadata": {"annotations": {"look": str(time.time())}}})
                return centre.calls("preempt") > before

            cluster.wait_for("the verb to be asked", asked)
        assert all("deletionTimestamp" not in cluster.current(one)["metadata"] for one in held)
        assert not cluster.current(high)["status"].get("nominatedNodeName")
    assert (centre.calls("preempt") > before) is asks_whom
    assert not centre.logged("an extender call failed")


def test_a_high_priority_without_slices_evicts_nobody_who_has_one(
    cluster: ClusterHarness, centre: CentreHalf, namespace: str
) -> None:
    """Where kube-scheduler has daemonset/spared-slices.yaml as it stands; whoever has no slice goes as ever.

    For what runs the cluster anybody goes. While no replica is there to answer all is as without the entry: preemption
    of a cluster hangs on nobody.
    On each node a slice holds 60 % of the CPU and a pod without one 30.
    """
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "aliquot-test-high"}}
    cluster.apply({**high, "value": 1_000_000})
    cores = {one["metadata"]["name"]: _milli_cpu(one) for one in cluster.api.get("/api/v1/nodes")["items"]}
    slices, others = [], []
    for node, milli in cores.items():
        held = asking(f"slice-{node}", namespace, 400, 100_000, lasting=True, nodeSelector={ZONE: node})
        slices.append(_running(cluster, held, milli * 6 // 10))
        other = pod(f"web-{node}", stays(), namespace=namespace, nodeSelector={ZONE: node})
        others.append(_running(cluster, other, milli * 3 // 10))

    with cluster.namespace("tenant-b") as tenant:

        def important(name: str, percent: int, *, where: str = tenant) -> Json:
            wanted = pod(name, stays(), namespace=where, priorityClassName="aliquot-test-high")
            return cluster.create_pod(_requesting(wanted, min(cores.values()) * percent // 100))

        before = centre.calls("preempt")
        served = cluster.wait_for_phase(important("some", 35), "Running")["spec"]["nodeName"]
        assert centre.calls("preempt") > before
        gone = [one for one in others if one["spec"]["nodeName"] == served]
        refused = len(centre.logged("no pod is evicted for another"))
        much = important("much", 50)
        cluster.wait_for("nobody to go", lambda: centre.logged("no pod is evicted for another")[refused:] or None)
        cluster.wait_for("it to be told", lambda: _unschedulable(cluster, much))
        stay = [one for one in (*slices, *others) if one not in gone]
        assert all("deletionTimestamp" not in cluster.current(one)["metadata"] for one in stay)
        system = important("aliquot-test-system", 55, where="kube-system")
        try:
            cluster.wait_for_phase(system, "Running", timeout=90)
            cluster.wait_for(
                "it to be told", lambda: centre.logged("a pod with slices is evicted by its priority") or None
            )
            centre.replicas[0].process.stop()
            try:
                cluster.wait_for_phase(important("more", 55), "Running", timeout=90)
            finally:
                centre.replicas[0].start()
        finally:
            cluster.delete(system, gracePeriodSeconds=0)


def test_a_kube_scheduler_that_can_t_be_told_to_ask_evicts_nobody_who_has_a_slice(
    cluster: ClusterHarness, centre: CentreHalf, namespace: str
) -> None:
    """As it is installed; it does not try again and again, and what it told goes with it.

    For what runs the cluster it evicts, and while no replica answers as ever. A slice holds 60 % of a node's CPU.
    """
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "aliquot-test-high"}}
    cluster.apply({**high, "value": 1_000_000})
    node = cluster.api.get("/api/v1/nodes/node1")
    held = asking("slice", namespace, 400, 100_000, lasting=True, nodeSelector={ZONE: "node1"})
    milli = _milli_cpu(node) * 6 // 10
    kept = _running(cluster, held, milli)
    centre.point_scheduler_at(centre.replicas[0], spared=False)
    try:
        with _denied(cluster, centre, kept), cluster.namespace("tenant-b") as tenant:
            before = len(centre.logged(SPARED))

            def important(name: str, *, where: str = tenant, kind: str = "aliquot-test-high") -> Json:
                wanted = pod(name, stays(), namespace=where, priorityClassName=kind)
                wanted["spec"]["nodeSelector"] = {ZONE: "node1"}
                return cluster.create_pod(_requesting(wanted, milli))

            more = important("more")
            cluster.wait_for("it to be refused", lambda: centre.logged(SPARED)[before:] or None)
            cluster.wait_for("it to be nominated", lambda: cluster.current(more)["status"].get("nominatedNodeName"))
            chosen = {"fieldSelector": "reason=NobodyEvicted,involvedObject.name=more"}
            said = cluster.wait_for(
                "it to be told why", lambda: cluster.api.items(f"/api/v1/namespaces/{tenant}/events", **chosen)
            )
            assert "chosen node node1 for it, and may not evict 1 pod with slices there" in said[0]["message"]
            told = cluster.current(kept)
            assert "deletionTimestamp" not in told["metadata"]
            assert "DisruptionTarget" not in {one["type"] for one in told["status"]["conditions"]}
            assert len(centre.logged(SPARED)[before:]) <= 3
            _evict_for_the_system(cluster, centre, important)
            # What is nominated there counts for the next one.
            cluster.delete(more, gracePeriodSeconds=0)
            _running(cluster, {**held, "metadata": {**held["metadata"], "name": "another"}}, milli)
            centre.replicas[0].process.stop()
            cluster.wait_for_phase(important("again"), "Running", timeout=90)
    finally:
        if not centre.replicas[0].process.running:
            centre.replicas[0].start()
        centre.point_scheduler_at(centre.replicas[0])


def test_a_tenant_s_pod_of_a_class_of_the_system_evicts_nobody_who_has_a_slice(
    cluster: ClusterHarness, centre: CentreHalf, namespace: str
) -> None:
    """Everybody may take such a class; where an operator says that this runs the cluster, its pods go before slices.

    kube-scheduler is asked by nobody before, as it is installed. A slice holds 60 % of a node's CPU.
    """
    milli = _milli_cpu(cluster.api.get("/api/v1/nodes/node1")) * 6 // 10
    kept = _running(
        cluster, asking("slice", namespace, 400, 100_000, lasting=True, nodeSelector={ZONE: "node1"}), milli
    )
    centre.point_scheduler_at(centre.replicas[0], spared=False)
    try:
        with _denied(cluster, centre, kept), cluster.namespace("tenant-b") as tenant:

            def critical(name: str) -> Json:
                wanted = pod(name, stays(), namespace=tenant, priorityClassName="system-cluster-critical")
                wanted["spec"]["nodeSelector"] = {ZONE: "node1"}
                return cluster.create_pod(_requesting(wanted, milli))

            before = len(centre.logged(SPARED))
            waits = critical("waits")
            cluster.wait_for("it to be refused", lambda: centre.logged(SPARED)[before:] or None)
            cluster.wait_for("it to be nominated", lambda: cluster.current(waits)["status"].get("nominatedNodeName"))
            told = cluster.current(kept)
            assert "deletionTimestamp" not in told["metadata"]
            assert "DisruptionTarget" not in {one["type"] for one in told["status"]["conditions"]}
            cluster.delete(waits, gracePeriodSeconds=0)
            labels = {"metadata": {"labels": {NAMES.runs_the_cluster: LABELLED}}}
            cluster.api.patch(f"/api/v1/namespaces/{tenant}", labels)
            cluster.wait_for_phase(critical("runs"), "Running", timeout=90)
            assert centre.logged("goes for a pod that runs the cluster")[-1]["for"] == f"{tenant}/runs"
    finally:
        centre.point_scheduler_at(centre.replicas[0])


def _evict_for_the_system(cluster: ClusterHarness, centre: CentreHalf, important: Callable[..., Json]) -> None:
    """It is looked at in vain before: then only its nomination says that somebody goes for it.

    That is written beside what the webhook is asked about.
    """
    node = "/api/v1/nodes/node1"
    cluster.api.patch(node, {"spec": {"unschedulable": True}})
    system = important("aliquot-test-system", where="kube-system", kind="system-cluster-critical")
    try:
        cluster.wait_for("it to be looked at", lambda: _unschedulable(cluster, system))
        assert not cluster.current(system)["status"].get("nominatedNodeName")
        cluster.api.patch(node, {"spec": {"unschedulable": None}})
        # kube-scheduler looks again by itself after five minutes.
        cluster.wait_for_phase(system, "Running", timeout=90)
        assert centre.logged("goes for a pod that runs the cluster")[-1]["for"].endswith("/aliquot-test-system")
    finally:
        cluster.api.patch(node, {"spec": {"unschedulable": None}})
        cluster.delete(system, gracePeriodSeconds=0)


@contextmanager
def _denied(cluster: ClusterHarness, centre: CentreHalf, kept: Json) -> Iterator[None]:
    """The webhook of daemonset/chart for that is in force, and asks the centre's first replica."""
    name, authority = "ValidatingWebhookConfiguration", base64.b64encode(centre.authority.read_bytes()).decode()
    (found,) = (one for one in template({}) if one["kind"] == name)
    (webhook,) = (one for one in found["webhooks"] if one["name"] == "evictions.aliquot.dev")
    path = webhook["clientConfig"]["service"]["path"]
    url = f"https://{LOOPBACK}:{centre.replicas[0].port}{path}"
    webhook["clientConfig"] = {"url": url, "caBundle": authority}
    # A second is little beside a cluster that starts.
    cluster.apply({**found, "webhooks": [webhook | {"timeoutSeconds": 10}]})
    scheduler = cluster.api_as("system:kube-scheduler")

    def refuses() -> bool:
        try:
            scheduler.request("DELETE", cluster.api.path_of(kept), query={"dryRun": "All"})
        except ApiError as error:
            return NOBODY_GOES in str(error)
        return False

    try:
        cluster.wait_for("the webhook to be in force", lambda: refuses() or None)
        yield
    finally:
        cluster.delete(found)


def _requesting(wanted: Json, milli: int) -> Json:
    resources = wanted["spec"]["containers"][0].setdefault("resources", {})
    resources.setdefault("requests", {})["cpu"] = f"{milli}m"
    return wanted


def _running(cluster: ClusterHarness, wanted: Json, milli: int) -> Json:
    return cluster.wait_for_phase(cluster.create_pod(_requesting(wanted, milli)), "Running", timeout=90)


def _milli_cpu(node: Json) -> int:
    return int(1000 * quantity(node["status"]["allocatable"]["cpu"], where="allocatable"))


def _unschedulable(cluster: ClusterHarness, made: Json) -> str | None:
    conditions = cluster.current(made)["status"].get("conditions", [])
    found = [one for one in conditions if one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable"]
    return found[0]["message"] if found else None
