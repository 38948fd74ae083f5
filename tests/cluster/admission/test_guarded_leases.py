"""Policies on a real API server: who leads, heart-beats, and what was learnt of requests, Aliquot alone writes."""

from __future__ import annotations

from contextlib import closing

from aliquot_core.names import LEADER_LEASE, MIX, PACE_LEASE
from cluster.guarded import Guarded
from cluster.harness.api import Api, Json
from cluster.harness.cluster import ClusterHarness
from cluster.installed import NAMES
from cluster.refusals import annotated, expect_refused, lease


def test_only_the_scheduler_writes_what_was_learnt_of_requests(cluster: ClusterHarness, guarded: Guarded) -> None:
    """Whoever installs it may write its labels, and other ConfigMaps are their owners'."""
    where = {"name": MIX, "namespace": NAMES.namespace}
    body: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": where}
    path, by = cluster.api.path_of(body), "aliquot-guard-mix"
    learnt: Json = {"data": {"page.json": "{}"}}
    expect_refused(lambda: cluster.api.create(body | learnt), by=by)
    cluster.apply(body)
    expect_refused(lambda: cluster.api.patch(path, learnt), by=by)
    guarded.scheduler.patch(path, learnt)
    expect_refused(lambda: cluster.api.patch(path, {"data": {"page.json": "?"}}), by=by)
    expect_refused(lambda: cluster.api.patch(path, {"data": None}), by=by)
    expect_refused(lambda: cluster.api.patch(path, {"immutable": True}), by=by)
    cluster.apply(body | {"metadata": where | {"labels": {"team": "a"}}})
    assert cluster.api.get(path)["data"] == learnt["data"]
    other = cluster.api.create(body | learnt | {"metadata": where | {"name": "other"}})
    tidier = may_delete(cluster, "configmaps")
    refused_to_delete(tidier, path, by=by)
    tidier.delete(cluster.api.path_of(other))
    cluster.api.delete(path)  # who may delete the policy may delete what it guards


def may_delete(cluster: ClusterHarness, resource: str) -> Api:
    """Somebody who may delete these of our namespace, one or many, and no policies."""
    user, version = f"tidier-of-{resource}", "rbac.authorization.k8s.io/v1"
    where = {"name": user, "namespace": NAMES.namespace}
    rules = [
        {"apiGroups": ["", "coordination.k8s.io"], "resources": [resource], "verbs": ["delete", "deletecollection"]}
    ]
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user}
    cluster.apply({"apiVersion": version, "kind": "Role", "metadata": where, "rules": rules})
    cluster.apply(
        {"apiVersion": version, "kind": "RoleBinding", "metadata": where, "roleRef": role, "subjects": [subject]}
    )
    allowed = cluster.api_as(user)

    def may() -> bool:
        verb = "deletecollection"
        review = {"resourceAttributes": {"namespace": NAMES.namespace, "verb": verb, "resource": resource}}
        asked = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": review}
        found = allowed.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", asked)
        return bool(found["status"]["allowed"])

    cluster.wait_for("the right to delete", may)
    return allowed


def refused_to_delete(tidier: Api, path: str, *, by: str) -> None:
    """By its name, and as one of many, where a request names none."""
    expect_refused(lambda: tidier.delete(path), by=by)
    collection, _, name = path.rpartition("/")
    query = {"fieldSelector": f"metadata.name={name}"}
    expect_refused(lambda: tidier.request("DELETE", collection, query=query), by=by)


def test_nobody_else_writes_our_leases(cluster: ClusterHarness, guarded: Guarded) -> None:
    """Heart-beats and who leads: nor an administrator; those of other names or namespaces are their owners'."""
    ours = lease(PACE_LEASE)
    path, by = cluster.api.path_of(ours), "aliquot-guard-leases"
    expect_refused(lambda: cluster.api.create(ours), by=by)
    guarded.scheduler.create(ours)
    expect_refused(lambda: cluster.api.patch(path, annotated({NAMES.state: "away"})), by=by)
    guarded.scheduler.delete(path)
    expect_refused(lambda: cluster.api.create(lease("node-a")), by=by)
    for other in (lease(PACE_LEASE, namespace="default"), lease("operator"), lease("my-node-a")):
        held = cluster.api.path_of(cluster.api.create(other))
        cluster.api.patch(held, annotated({NAMES.state: "away"}))
        cluster.api.delete(held)


def test_an_administrator_tidies_up_after_a_node_that_is_gone(cluster: ClusterHarness, guarded: Guarded) -> None:
    """By the right to delete the policy; whoever may only delete Leases may not, and who leads is left to nobody."""
    with closing(guarded.agent_on("gone")) as agent:
        heartbeat = cluster.api.path_of(agent.create(lease("node-gone")))
    led, paced = (cluster.api.path_of(guarded.scheduler.create(lease(name))) for name in (LEADER_LEASE, PACE_LEASE))
    tidier, by = may_delete(cluster, "leases"), "aliquot-guard-leases"
    refused_to_delete(tidier, heartbeat, by=by)
    cluster.api.delete(heartbeat)
    assert cluster.api.find(heartbeat) is None
    for path in (led, paced):
        refused_to_delete(cluster.api, path, by=by)
        guarded.scheduler.delete(path)
