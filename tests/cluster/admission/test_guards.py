"""Policies on a real API server: what Aliquot writes of pods, leases and requests, nobody else does."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from aliquot_core.names import LEADER_LEASE, MIX, PACE_LEASE
from cluster.guarded import POLICY, Guarded, asking, grant_text
from cluster.harness.api import APPLY, Api, Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.pods import pod, shell
from cluster.installed import NAMES, SCHEDULER, binding
from cluster.refusals import annotated, expect_refused, lease

GATE = {"name": NAMES.gate}
STRATEGIC = "application/strategic-merge-patch+json"
PODS = "/api/v1/namespaces/{}/pods"


def test_every_policy_is_well_typed(cluster: ClusterHarness, guarded: Guarded) -> None:
    """Kubernetes checks the expressions against its own types, and finds nothing to warn of."""

    def checked() -> bool:
        return all("typeChecking" in policy["status"] for policy in guarded.policies())

    cluster.wait_for(f"each {POLICY} to be checked", checked)
    assert {policy["metadata"]["name"]: policy["status"]["typeChecking"] for policy in guarded.policies()} == {
        policy["metadata"]["name"]: {} for policy in guarded.policies()
    }


FORGED = {
    "positive": grant_text(100),
    "negative": grant_text(-100),
    "another node's": grant_text(30, node="node2"),
    "empty": "",
}
# Each is given an API, a waiting pod, its path, and the annotation.
WAYS: dict[str, Callable[[Api, Json, str, dict[str, Any]], object]] = {
    "create": lambda api, made, _, note: api.create({**made, "metadata": renamed(made, note)}),
    "merge patch": lambda api, _, path, note: api.patch(path, annotated(note)),
    "strategic patch": lambda api, _, path, note: api.patch(path, annotated(note), kind=STRATEGIC),
    "json patch": lambda api, made, path, note: api.request(
        "PATCH", path, body=_json_patch(made, note), content_type="application/json-patch+json"
    ),
    "apply": lambda api, _, path, note: api.request(
        "PATCH",
        path,
        body={"apiVersion": "v1", "kind": "Pod", **annotated(note)},
        query={"fieldManager": "forger", "force": "true"},
        content_type=APPLY,
    ),
    "replace": lambda api, made, path, note: api.put(
        path, {**made, "metadata": {**made["metadata"], "annotations": note}}
    ),
    "pods/status": lambda api, _, path, note: api.patch(f"{path}/status", annotated(note)),
    "pods/status, all of it": lambda api, made, path, note: api.put(
        f"{path}/status", {**made, "metadata": {**made["metadata"], "annotations": note}}
    ),
    "pods/binding": lambda api, made, path, note: api.post(f"{path}/binding", binding(made, "node1", note)),
    "bindings": lambda api, made, path, note: api.post(
        f"{path.rpartition('/pods/')[0]}/bindings", binding(made, "node1", note)
    ),
}

# The API server takes these, and keeps of the metadata what was there.
UNHEARD: dict[str, Callable[[Api, Json, str, dict[str, Any]], object]] = {
    "pods/ephemeralcontainers": lambda api, _, path, note: api.patch(
        f"{path}/ephemeralcontainers", annotated(note), kind=STRATEGIC
    ),
    "pods/ephemeralcontainers, all of it": lambda api, made, path, note: api.put(
        f"{path}/ephemeralcontainers", {**made, "metadata": {**made["metadata"], "annotations": note}}
    ),
    "pods/resize": lambda api, _, path, note: api.patch(f"{path}/resize", annotated(note), kind=STRATEGIC),
    "pods/resize, all of it": lambda api, made, path, note: api.put(
        f"{path}/resize", {**made, "metadata": {**made["metadata"], "annotations": note}}
    ),
}


def _json_patch(made: Json, note: dict[str, Any]) -> list[Json]:
    """All annotations, with one of them another or taken away."""
    before = made["metadata"].get("annotations", {})
    after = {key: text for key, text in {**before, **note}.items() if text is not None}
    return [{"op": "add", "path": "/metadata/annotations", "value": after}]


def guards_of(way: str) -> str:
    """Whose word is expected: of a pod's status a second policy says no too, and either may be the first."""
    return "aliquot-guard-" if "status" in way else "aliquot-guard-grants"


def renamed(made: Json, annotations: dict[str, Any]) -> Json:
    """The metadata of another pod like this one."""
    return {"name": "another", "namespace": made["metadata"]["namespace"], "annotations": annotations}


@pytest.mark.parametrize("way", WAYS)
def test_nobody_forges_a_grant_whatever_it_says(
    cluster: ClusterHarness, guarded: Guarded, namespace: str, way: str
) -> None:
    """Nor turns or room; more than was granted, less than nothing, another node's or queue's: nor an administrator."""
    made = guarded.cluster.create_pod(asking("waiting", namespace, {"compute": "30"}))
    path = cluster.api.path_of(made)
    said = {NAMES.charged: "another", NAMES.turn: "9", NAMES.room: "{}", NAMES.over_use: "note", NAMES.group_run: "a"}
    others = [{name: text} for name, text in said.items()]
    for note in [*({NAMES.grant: text} for text in FORGED.values()), *others]:
        expect_refused(partial(WAYS[way], cluster.api, made, path, note), by=guards_of(way))
    assert not {NAMES.grant, *said} & cluster.api.get(path)["metadata"].get("annotations", {}).keys()


def test_a_copy_of_a_pod_is_told_what_to_leave_out(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """Whoever has it from `kubectl get -o yaml`, or a backup, has written none of that; without it it is taken."""
    made = cluster.create_pod(asking("first", namespace, {"compute": "30"}))
    guarded.lift_and_bind(made)
    held = cluster.current(made)["metadata"]["annotations"]
    copy = asking("copy", namespace, {"compute": "30"})
    copy["metadata"]["annotations"] = held
    said = guarded.refusal(copy)
    assert f"the annotation {NAMES.grant} is written by Aliquot's scheduler only: leave it out of a pod" in said
    copy["metadata"]["annotations"] = {key: text for key, text in held.items() if key not in said}
    assert guarded.refusal(copy) == ""


STORED = sorted((Path(__file__).parents[2] / "support" / "earlier").glob("*/objects.json"))


def test_all_that_a_leader_wrote_on_a_pod_is_told_at_once(guarded: Guarded, namespace: str) -> None:
    """A pod of a group that a leader has bound, as it is stored: once for all, or it would be one a try."""
    found = next(one for one in json.loads(STORED[-1].read_bytes()) if one["metadata"]["name"] == "g0")
    held, team = found["metadata"]["annotations"], {NAMES.group: "team"}
    copy = {**found, "metadata": {"name": "copy", "namespace": namespace, "labels": team, "annotations": held}}
    copy.pop("status")
    ours = [NAMES.grant, NAMES.charged, NAMES.room]
    said = guarded.refusal(copy)
    assert (
        f"the annotations {', '.join(ours)} are written by Aliquot's scheduler only: leave them out of a pod that you "
        "create, copy or restore, and as they are on one that is there"
    ) in said
    copy["metadata"]["annotations"] = {key: text for key, text in held.items() if key not in said}
    node = found["spec"]["nodeName"]
    assert f"spec.nodeName: the pod waits for node {node} and starts on no other; leave it out of a copy" in (
        guarded.warnings(copy)
    )
    written = {NAMES.turn, NAMES.promised, NAMES.shown, NAMES.group_run, NAMES.over_use, *ours}
    copy["metadata"]["annotations"] |= dict.fromkeys(written, "a")
    said = guarded.refusal(copy)
    assert not {name for name in written if name not in said}


@pytest.mark.parametrize("way", UNHEARD)
@pytest.mark.parametrize("is_bound", [False, True])
def test_what_only_containers_are_written_through_writes_no_grant(
    cluster: ClusterHarness, guarded: Guarded, namespace: str, way: str, *, is_bound: bool
) -> None:
    """Neither is one added, nor changed, nor taken away; should the API server come to hear it, a policy must."""
    made = cluster.create_pod(asking("a", namespace, {"compute": "30"}))
    if is_bound:
        guarded.lift_and_bind(made)
    path = cluster.api.path_of(made)
    before = cluster.api.get(path)
    for text in (*FORGED.values(), None):
        note = {} if text is None and "all of it" in way else {NAMES.grant: text}
        now = cluster.api.get(path)
        UNHEARD[way](cluster.api, now, path, note)
        after = cluster.api.get(path)["metadata"]
        assert after.get("annotations") == before["metadata"].get("annotations")


@pytest.mark.parametrize("way", ["merge patch", "strategic patch", "json patch", "replace", "pods/status"])
def test_nobody_takes_a_grant_away_or_changes_it(
    cluster: ClusterHarness, guarded: Guarded, namespace: str, way: str
) -> None:
    """The centre's own binding passes; what it wrote stands."""
    made = cluster.create_pod(asking("bound", namespace, {"compute": "30"}))
    path = cluster.api.path_of(made)
    guarded.lift_and_bind(made)
    bound = cluster.api.get(path)
    assert bound["metadata"]["annotations"][NAMES.grant] == grant_text(30)
    for note in ({NAMES.grant: text} for text in (None, *FORGED.values())):
        given = {key: value for key, value in note.items() if value is not None} if way == "replace" else note
        expect_refused(partial(WAYS[way], cluster.api, bound, path, given), by=guards_of(way))


def test_nobody_else_says_how_far_over_use_goes(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """Nor takes it away: then the node's own word would count."""
    path = cluster.api.path_of(cluster.create_pod(asking("a", namespace, {"compute": "30"})))
    guarded.scheduler.patch(path, annotated({NAMES.over_use: "evict"}))
    for word in ("note", "", None):
        for by in (path, f"{path}/status"):
            expect_refused(partial(cluster.api.patch, by, annotated({NAMES.over_use: word})), by=guards_of(by))
    assert cluster.api.get(path)["metadata"]["annotations"][NAMES.over_use] == "evict"


OF_TURNS = {
    NAMES.turn: ("2", "3"),
    NAMES.promised: ("node1 GPU-1", "node2 GPU-1"),
    NAMES.shown: ("2026-01-01T00:00:00Z 1", "2027-01-01T00:00:00Z 1"),
    NAMES.room: ('{"v": 1}', '{"v": 2}'),
    NAMES.group_run: ("led", "another"),
}


@pytest.mark.parametrize("name", OF_TURNS)
def test_only_the_scheduler_tells_of_turns(
    cluster: ClusterHarness, guarded: Guarded, namespace: str, name: str
) -> None:
    """Nobody else changes it or takes it away, by which the next leader would forget what the pod holds."""
    true, forged = OF_TURNS[name]
    expect_refused(
        lambda: cluster.create_pod(asking("b", namespace, {"compute": "30"}, annotations={name: forged})),
        by="guard-grants",
    )
    path = cluster.api.path_of(cluster.create_pod(asking("a", namespace, {"compute": "30"})))
    guarded.scheduler.patch(path, annotated({name: true}))
    for by in (path, f"{path}/status"):
        for change in ({name: forged}, {name: None}, None):
            patch = {"metadata": {"annotations": change}}
            expect_refused(partial(cluster.api.patch, by, patch), by=guards_of(by))
    others = cluster.api.patch(path, annotated({"example.org/a": "b"}))["metadata"]["annotations"]
    assert others == {name: true, "example.org/a": "b"}
    assert name not in guarded.scheduler.patch(path, annotated({name: None}))["metadata"]["annotations"]


SAID = {"labels": {NAMES.queue: "team"}, "annotations": {NAMES.preemptible: "false"}}


@pytest.mark.parametrize("kind", SAID)
def test_what_a_pod_says_to_us_does_not_change_through_its_status(
    cluster: ClusterHarness, guarded: Guarded, namespace: str, kind: str
) -> None:
    """There no webhook reads it: nothing of ours is added, changed or taken away; what is others' is theirs."""
    ours = {"labels": NAMES.of("note"), "annotations": NAMES.gpus}[kind]
    made = cluster.create_pod(asking("a", namespace, {"compute": "30"}, **{kind: {ours: "1"}}))
    path = cluster.api.path_of(made)
    for change in (SAID[kind], {ours: "2"}, {ours: None}, None):
        patch = {"metadata": {kind: change}}
        expect_refused(partial(cluster.api.patch, f"{path}/status", patch), by="aliquot-guard-status")
    found = cluster.api.patch(f"{path}/status", {"metadata": {kind: {"example.org/a": "b"}}})["metadata"][kind]
    assert {ours: "1", "example.org/a": "b"}.items() <= found.items()
    assert guarded.webhook.running


@pytest.mark.parametrize("kind", SAID)
@pytest.mark.parametrize("way", ["pods/{}/binding", "bindings"])
def test_what_a_pod_says_to_us_does_not_change_through_its_binding(
    cluster: ClusterHarness, guarded: Guarded, namespace: str, way: str, kind: str
) -> None:
    """Whoever may bind pods binds one that was let in, and makes it say nothing; what is others' is theirs."""
    made = cluster.create_pod(asking("a", namespace, {"compute": "30"}))
    path = cluster.api.path_of(made)
    guarded.scheduler.patch(path, {"spec": {"schedulingGates": None}})
    to = f"/api/v1/namespaces/{namespace}/{way.format('a')}"
    body = binding(made, "node1", {})
    said = body | {"metadata": {"name": "a", kind: SAID[kind]}}
    expect_refused(lambda: cluster.api.post(to, said), by="are not changed through a binding")
    cluster.api.post(to, body | {"metadata": {"name": "a", kind: {"example.org/a": "b"}}})
    found = cluster.api.get(path)["metadata"]
    assert found[kind]["example.org/a"] == "b"
    assert not SAID[kind].keys() & found.get(kind, {}).keys()


def test_only_the_scheduler_lifts_the_gate(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """Other gates are their owners'."""
    made = cluster.create_pod(asking("a", namespace, {"compute": "30"}, schedulingGates=[{"name": "a.b/c"}]))
    path = cluster.api.path_of(made)
    expect_refused(lambda: cluster.api.patch(path, {"spec": {"schedulingGates": None}}), by="aliquot-guard-gates")
    now = cluster.api.patch(path, {"spec": {"schedulingGates": [GATE]}})
    assert now["spec"]["schedulingGates"] == [GATE]
    guarded.scheduler.patch(path, {"spec": {"schedulingGates": None}})
    assert "schedulingGates" not in cluster.api.get(path)["spec"]


def test_the_gate_is_for_who_asks(guarded: Guarded, namespace: str) -> None:
    """Nobody would ever lift it; a pod that was read and is applied once more may bring it along, or another's gate."""
    gated: Json = {"schedulingGates": [GATE]}
    said = guarded.refusal(pod("a", shell("true"), namespace=namespace, **gated))
    assert "aliquot-guard-gates" in said
    assert f"is for pods that ask for {NAMES.compute} or {NAMES.memory}" in said
    assert guarded.refusal(asking("a", namespace, {"memory": "3000"}, **gated)) == ""
    assert guarded.refusal(pod("a", shell("true"), namespace=namespace, schedulingGates=[{"name": "a.b/c"}])) == ""


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


def told(kind: str) -> Json:
    """A status with one condition more."""
    return {"status": {"conditions": [{"type": kind, "status": "True", "reason": "Test"}]}}


def test_only_aliquot_speaks_in_its_own_conditions(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """Others write theirs beside ours, and can neither change nor drop ours."""
    path = cluster.api.path_of(cluster.create_pod(asking("a", namespace, {"compute": "30"})))
    ours, strategic = NAMES.of("admitted"), "application/strategic-merge-patch+json"
    write = partial(cluster.api.patch, f"{path}/status", kind=strategic)
    by = "aliquot-guard-status"
    expect_refused(lambda: write(told(ours)), by=by)
    guarded.scheduler.patch(f"{path}/status", told(ours), kind=strategic)
    found = write(told("example.org/ready"))["status"]["conditions"]
    assert {ours, "example.org/ready"} <= {each["type"] for each in found}
    expect_refused(lambda: write({"status": {"conditions": [{"type": ours, "status": "False"}]}}), by=by)
    expect_refused(lambda: cluster.api.patch(f"{path}/status", {"status": {"conditions": []}}), by=by)


def test_only_schedulers_nominate_a_pod_that_asks(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """Anybody may drop a nomination, as kubelets do; pods of others are nominated by whoever may."""
    here = {"status": {"nominatedNodeName": "node1"}}
    path = cluster.api.path_of(cluster.create_pod(asking("a", namespace, {"compute": "30"})))
    expect_refused(lambda: cluster.api.patch(f"{path}/status", here), by="aliquot-guard-status")
    for user in (SCHEDULER, "system:kube-scheduler"):
        cluster.api_as(user).patch(f"{path}/status", here)
        now = cluster.api.patch(f"{path}/status", {"status": {"nominatedNodeName": None}})
        assert "nominatedNodeName" not in now["status"]
    other = cluster.api.path_of(cluster.create_pod(pod("other", shell("true"), namespace=namespace)))
    assert cluster.api.patch(f"{other}/status", here)["status"]["nominatedNodeName"] == "node1"
    assert guarded.webhook.running
