"""Queues and the pods that name them, at the door of a real API server."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial

import pytest

from cluster.guarded import Guarded, asking
from cluster.harness.api import Api, Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.errors import ApiError
from cluster.installed import NAMES, manifests
from cluster.queueing import QUEUES, queue
from cluster.refusals import expect_refused
from cluster.ways import OF_CUSTOM_KINDS, WRITES

DEFINITION = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/queues.{NAMES.domain}"


@pytest.fixture
def namespace(cluster: ClusterHarness, namespace: str) -> Iterator[str]:
    """Leave no queues behind."""
    cluster.wait_for("queues to be judged", lambda: "there is no queue" in tried(cluster, queue("x", parent="gone")))
    yield namespace
    while found := cluster.api.items(QUEUES):
        parents = {one["spec"].get("parent") for one in found}
        for leaf in {one["metadata"]["name"] for one in found} - parents:
            cluster.api.delete(f"{QUEUES}/{leaf}")


def tried(cluster: ClusterHarness, wanted: Json) -> str:
    """Why a queue would be refused; empty if it would not."""
    try:
        cluster.api.request("POST", QUEUES, body=wanted, query={"dryRun": "All"})
    except ApiError as error:
        return str(error)
    return ""


def test_a_tree_is_made_from_the_top_and_taken_down_from_the_bottom(cluster: ClusterHarness, namespace: str) -> None:
    """Parent and child one right after the other, and nothing that would break them."""
    cluster.api.create(queue("org", compute={"limit": 800}))
    cluster.api.create(queue("a", parent="org", compute={"guarantee": 500}))
    expect_refused(
        lambda: cluster.api.create(queue("b", parent="org", compute={"guarantee": 400})), by="guaranteed 900"
    )
    expect_refused(
        lambda: cluster.api.patch(f"{QUEUES}/org", {"spec": {"compute": {"limit": 400}}}), by="guaranteed 500"
    )
    expect_refused(lambda: cluster.api.patch(f"{QUEUES}/org", {"spec": {"parent": "a"}}), by="circle: org → a → org")
    expect_refused(lambda: cluster.api.delete(f"{QUEUES}/org"), by="queues hang below it: a")
    cluster.api.patch(f"{QUEUES}/org", {"metadata": {"labels": {"anything": "else"}}})
    cluster.api.delete(f"{QUEUES}/a")
    cluster.api.delete(f"{QUEUES}/org")
    assert cluster.api.items(QUEUES) == []
    assert namespace


HOLDS = "aliquot-guard-default-queue"
# What `default` says, and whether it may be deleted: judged by the API server alone.
DEFAULT: list[tuple[Json, bool]] = [
    ({"compute": {"guarantee": 100, "weight": 2}, "namespaces": ["*"], "priority": 1}, True),
    ({"compute": {"limit": 100}}, False),
    ({"memory": {"limit": 0}}, False),
    ({"memory": {"borrowingLimit": 5}}, False),
    ({"compute": {"weight": 0}}, False),
    ({"models": {"*A100*": {"compute": {"guarantee": 5}, "memory": {"limit": 100}}}}, False),
    ({"models": {"*A100*": {"compute": {"guarantee": 5}}}}, True),
    ({"hosts": {"cpu": "3"}}, False),
    ({"stop": "hold"}, False),
    ({"parent": "org"}, False),
    ({}, True),
]


def test_the_default_queue_is_kept_without_the_webhook_too(cluster: ClusterHarness, namespace: str) -> None:
    """A policy refuses its deletion while it limits or holds anybody; of any other queue it says nothing."""
    cluster.api.create(queue("org"))
    cluster.api.create(queue("default"))
    for spec, goes in DEFAULT:
        found = cluster.api.get(f"{QUEUES}/default")
        cluster.api.request("PUT", f"{QUEUES}/default", body={**found, "spec": spec})

        def why() -> str:
            try:
                cluster.api.request("DELETE", f"{QUEUES}/default", query={"dryRun": "All"})
            except ApiError as error:
                return str(error)
            return ""

        assert (HOLDS not in why()) is goes, (spec, why())
    cluster.api.create(queue("other", compute={"limit": 100}))
    cluster.api.delete(f"{QUEUES}/other")
    assert namespace


def test_the_schema_refuses_what_one_queue_alone_has_wrong(cluster: ClusterHarness, namespace: str) -> None:
    """Before the centre is asked."""
    wrong: dict[str, Json] = {
        "compute.guarantee": {"compute": {"guarantee": -1}},
        "stop": {"stop": "now"},
        "parent": {"parent": "A B"},
    }
    for field, spec in wrong.items():
        assert f"spec.{field}: " in tried(cluster, queue("a", **spec))
    assert namespace


def test_the_definition_is_upgraded_under_queues_that_are_there(
    cluster: ClusterHarness, guarded: Guarded, namespace: str
) -> None:
    """One that knows fewer fields, then today's over it: spec and status are kept, and new fields can be written."""
    (definition, *_) = manifests("05-queue")
    older = copy.deepcopy(definition)
    fields = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    for newer in ("autoscale", "autoscaleMinutes", "models"):
        del fields[newer]
    cluster.apply(older)
    wanted = queue("a", compute={"guarantee": 100}, autoscale=True)
    cluster.wait_for("the older one", lambda: "unknown field" in strictly(cluster, wanted) or None)
    cluster.api.create(queue("a", compute={"guarantee": 100}))
    guarded.scheduler.patch(f"{QUEUES}/a/status", {"status": {"used": {"compute": 250}}})
    cluster.apply(definition)
    cluster.wait_for("the newer one", lambda: strictly(cluster, {**wanted, "metadata": {"name": "b"}}) == "" or None)
    cluster.api.patch(f"{QUEUES}/a", {"spec": {"autoscale": True}})
    found = cluster.api.get(f"{QUEUES}/a")
    assert found["spec"] == {"compute": {"guarantee": 100}, "autoscale": True}
    assert found["status"] == {"used": {"compute": 250}}
    assert namespace


def strictly(cluster: ClusterHarness, wanted: Json) -> str:
    """Why a queue would be refused where fields that nobody knows are not passed over."""
    try:
        strict = {"dryRun": "All", "fieldValidation": "Strict"}
        cluster.api.request("POST", QUEUES, body=wanted, query=strict)
    except ApiError as error:
        return str(error)
    return ""


def test_a_pod_waits_only_where_its_namespace_may(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """At home by the namespace's label, elsewhere where the queue says so; a queue made just now counts at once."""
    ask = {"compute": "30"}
    named = {NAMES.queue: "a"}
    assert "there is no queue a; write queue default" in guarded.refusal(asking("p", namespace, ask, labels=named))
    cluster.api.create(queue("a"))
    refusal = guarded.refusal(asking("p", namespace, ask, labels=named))
    assert f"queue a does not take pods of namespace {namespace}" in refusal
    cluster.api.patch(f"{QUEUES}/a", {"spec": {"namespaces": ["test-*"]}})
    assert guarded.refusal(asking("p", namespace, ask, labels=named)) == ""
    cluster.api.patch(f"{QUEUES}/a", {"spec": {"namespaces": None}})
    cluster.api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {NAMES.queue: "a"}}})
    assert guarded.refusal(asking("p", namespace, ask, labels=named)) == ""
    cluster.wait_for(
        "the label to be heard of",
        lambda: "namespace" in guarded.refusal(asking("p", namespace, ask, labels={NAMES.queue: "default"})),
    )


def test_a_stopped_queue_says_so(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """Held: the pod comes in, and is told that it waits; drained: it is refused."""
    wanted = asking("p", namespace, {"compute": "30"}, labels={NAMES.queue: "a"})
    cluster.api.create(queue("a", namespaces=["*"], stop="hold"))
    cluster.wait_for("the queue to be heard of", lambda: guarded.warnings(wanted) or None)
    assert guarded.warnings(wanted) == ["queue a lets nobody in for now: it is held"]
    cluster.api.patch(f"{QUEUES}/a", {"spec": {"stop": "drain"}})
    cluster.wait_for("the drain to be heard of", lambda: "is being drained" in guarded.refusal(wanted))


def test_a_waiting_pod_can_be_moved(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """To a queue that takes it; a pod whose queue is gone is still worked on."""
    for name in ("a", "b"):
        cluster.api.create(queue(name, namespaces=["*"] if name == "a" else []))
    path = cluster.api.path_of(cluster.create_pod(asking("p", namespace, {"compute": "30"}, labels={NAMES.queue: "a"})))
    expect_refused(
        lambda: cluster.api.patch(path, {"metadata": {"labels": {NAMES.queue: "b"}}}), by="queue b does not take"
    )
    cluster.api.delete(f"{QUEUES}/a")
    cluster.api.patch(path, {"metadata": {"annotations": {NAMES.placement: "pack"}}})
    cluster.api.patch(path, {"metadata": {"labels": {NAMES.queue: None}}})
    assert guarded.webhook.running


def test_only_the_centre_says_how_a_queue_stands(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """Not even an administrator forgets usage."""
    forged, stands = {"status": {"used": {"compute": 0}}}, {"used": {"compute": 250}, "waiting": 2}
    # What comes with it the API server leaves out.
    assert "status" not in cluster.api.create(queue("a") | forged)
    guarded.scheduler.patch(f"{QUEUES}/a/status", {"status": stands})
    for write in (WRITES[way] for way in OF_CUSTOM_KINDS):
        found = cluster.api.get(f"{QUEUES}/a")
        expect_refused(partial(write, cluster.api, found, f"{QUEUES}/a/status", forged), by="aliquot-guard-queues")
        write(cluster.api, found, f"{QUEUES}/a", forged)
    assert cluster.api.get(f"{QUEUES}/a")["status"] == stands
    assert namespace


def test_who_may_view_the_cluster_sees_queues(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """With `view` for the whole cluster, or our own role; `view` in a namespace alone shows none, a name shows one."""
    cluster.api.create(queue("a"))

    def bind(kind: str, role: str, user: str, **where: str) -> None:
        group = "rbac.authorization.k8s.io"
        cluster.apply(
            {
                "apiVersion": f"{group}/v1",
                "kind": kind,
                "metadata": {"name": f"{user}-{role}", **where},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
            }
        )

    cluster.api.create(queue("b"))
    own = {"apiGroups": [NAMES.domain], "resources": ["queues"], "resourceNames": ["a"], "verbs": ["get"]}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "sees-a"}}
    cluster.apply({**role, "rules": [own]})
    bind("ClusterRoleBinding", "sees-a", "tenant")
    bind("ClusterRoleBinding", "view", "everywhere")
    bind("ClusterRoleBinding", "aliquot-queue-viewer", "ours")
    bind("RoleBinding", "view", "here", namespace=namespace)
    for user in ("everywhere", "ours"):
        api = cluster.api_as(user)
        cluster.wait_for(f"the rights of {user}", partial(can_list, api))
        expect_refused(partial(api.delete, f"{QUEUES}/a"), by="forbidden")
    assert not can_list(cluster.api_as("here"))
    tenant = cluster.api_as("tenant")
    assert tenant.get(f"{QUEUES}/a")["kind"] == "Queue"
    expect_refused(lambda: tenant.get(f"{QUEUES}/b"), by="forbidden")
    assert guarded.webhook.running


def can_list(api: Api) -> bool:
    """Whether somebody may list queues."""
    try:
        api.items(QUEUES)
    except ApiError:
        return False
    return True


def test_without_the_definition_there_is_the_default_queue(
    cluster: ClusterHarness, guarded: Guarded, namespace: str
) -> None:
    """Pods come in as before; a queue that is named is not there. Last: it takes the definition away."""
    (definition, *_) = manifests("05-queue")
    cluster.api.delete(DEFINITION)
    cluster.wait_for("the definition to be gone", lambda: cluster.api.find(DEFINITION) is None)
    try:
        assert guarded.refusal(asking("p", namespace, {"compute": "30"})) == ""
        named = asking("p", namespace, {"compute": "30"}, labels={NAMES.queue: "a"})
        assert "there is no queue a" in guarded.refusal(named)
    finally:
        cluster.apply(definition)
        cluster.wait_for("the definition to be served", lambda: can_list(cluster.api))
