"""Webhook and policies on a real API server: what comes in, what is refused, and who is harmed when nobody answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from aliquot_core.names import LEADER_LEASE, MIX, PACE_LEASE
from cluster.guarded import POLICY, Guarded, asking, privileged
from cluster.harness.api import APPLY, Api, Json
from cluster.harness.cluster import ClusterHarness, Options
from cluster.harness.errors import ApiError
from cluster.harness.pods import pod, shell
from cluster.installed import NAMES, SCHEDULER, binding

GATE = {"name": NAMES.gate}
PODS = "/api/v1/namespaces/{}/pods"


@pytest.fixture(scope="module")
def cluster(able_machine: None) -> Iterator[ClusterHarness]:  # noqa: ARG001 - it may skip
    """A control plane without nodes: nothing runs here, and no other test feels our policies."""
    with ClusterHarness(Options(nodes=())) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(cluster: ClusterHarness) -> Iterator[Guarded]:
    """Webhook and policies in force."""
    guarded = Guarded(cluster)
    guarded.install()
    yield guarded
    guarded.webhook.stop()


@pytest.fixture
def namespace(cluster: ClusterHarness) -> Iterator[str]:
    """Give the test a namespace of its own; pods that are bound here have no kubelet to end them."""
    name = cluster.make_namespace()
    yield name
    cluster.api.delete(f"/api/v1/namespaces/{name}/pods", gracePeriodSeconds=0)
    cluster.api.delete(f"/api/v1/namespaces/{name}")


def refused(write: Callable[[], object], *, by: str) -> str:
    """Expect a write to be refused by a policy or webhook, and give what it says."""
    with pytest.raises(ApiError) as caught:
        write()
    assert caught.value.status in (403, 422), caught.value
    assert by in str(caught.value)
    return str(caught.value)


def annotated(annotations: dict[str, str | None]) -> Json:
    """A merge patch of annotations."""
    return {"metadata": {"annotations": annotations}}


def test_every_policy_is_well_typed(cluster: ClusterHarness, guarded: Guarded) -> None:
    """Kubernetes checks the expressions against its own types, and finds nothing to warn of."""

    def checked() -> bool:
        return all("typeChecking" in policy["status"] for policy in guarded.policies())

    cluster.wait_for(f"each {POLICY} to be checked", checked)
    assert {policy["metadata"]["name"]: policy["status"]["typeChecking"] for policy in guarded.policies()} == {
        policy["metadata"]["name"]: {} for policy in guarded.policies()
    }


# --- the webhook -----------------------------------------------------------------------------------------------------


def test_a_pod_that_asks_comes_in_gated(guarded: Guarded, namespace: str) -> None:
    """Behind the gate, for our profile; the node that its author chose has become an affinity."""
    spec = guarded.tried(asking("a", namespace, {"compute": "30"}, node="node1"))["spec"]
    assert (spec["schedulingGates"], spec["schedulerName"], spec.get("nodeName")) == ([GATE], "aliquot", None)
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    field = {"key": "metadata.name", "operator": "In", "values": ["node1"]}
    assert required == {"nodeSelectorTerms": [{"matchFields": [field]}]}


def test_memory_alone_is_best_effort(guarded: Guarded, namespace: str) -> None:
    """The kubelet is given a resource to call us for."""
    (container,) = guarded.tried(asking("a", namespace, {"memory": "800"}))["spec"]["containers"]
    resources = {NAMES.memory: "800", NAMES.best_effort: "1"}
    assert container["resources"] == {"limits": resources, "requests": resources}


def test_a_pod_that_does_not_ask_is_not_touched(guarded: Guarded, namespace: str) -> None:
    """Not even where it has a node."""
    spec = guarded.tried(pod("a", shell("true"), namespace=namespace, node="node1"))["spec"]
    assert (spec.get("schedulingGates"), spec["schedulerName"], spec["nodeName"]) == (
        None,
        "default-scheduler",
        "node1",
    )


SENTENCES = {
    "a unit": ({"compute": "30", "memory": "8Gi"}, {}, "write 8192 for 8Gi"),
    "no compute": ({"compute": "0"}, {}, "0 is less than 1; write at least 1, or leave it out"),
    "negative": ({"compute": "-5"}, {}, "-5 is less than 1; write at least 1, or leave it out"),
    "a fraction": ({"compute": "500m"}, {}, "500m is not a whole number; write whole percent"),
    "too much for its GPUs": ({"compute": "250"}, {"gpus": "2"}, "250 % does not fit on 2 GPUs; ask for at most 200"),
    "too little memory": ({"compute": "30", "memory": "100"}, {}, "less than a CUDA context needs"),
    "a bad annotation": ({"compute": "30"}, {"placement": "near"}, "write pack or spread"),
}


@pytest.mark.parametrize("row", SENTENCES)
def test_what_can_t_be_meant_is_refused_with_what_to_write(guarded: Guarded, namespace: str, row: str) -> None:
    """In our words, also where Kubernetes itself would refuse it."""
    limits, notes, sentence = SENTENCES[row]
    annotations = {NAMES.of(short): text for short, text in notes.items()}
    assert sentence in guarded.refusal(asking("a", namespace, limits, annotations=annotations))


def test_several_problems_are_told_at_once(guarded: Guarded, namespace: str) -> None:
    """One a line."""
    refusal = guarded.refusal(asking("a", namespace, {"compute": "0", "memory": "8Gi"}))
    assert refusal.count("\n- container main, ") == 2


def test_a_pod_too_large_to_be_judged_is_refused_in_words(
    cluster: ClusterHarness, guarded: Guarded, namespace: str
) -> None:
    """What this API server sends begins so that the question's name is known before it ends."""
    large = asking("large", namespace, {"compute": "30"})
    (container,) = large["spec"]["containers"]
    large["spec"]["containers"] = [{**container, "name": f"c{index}"} for index in range(9_000)]
    # 3 MiB within the webhook's 5 s: a crowded machine may need another try.
    cluster.wait_for("a sentence", lambda: "make it smaller: fewer containers" in guarded.refusal(large))


def test_what_is_only_odd_is_warned_of(guarded: Guarded, namespace: str) -> None:
    """The author reads it, and the pod comes in."""
    assert guarded.warnings(asking("a", namespace, {"compute": "30"}, scheduler="volcano")) == [
        "scheduler volcano must ask Aliquot's extender, or this pod never starts"
    ]


def limit_range(namespace: str) -> Json:
    """Every container of the namespace gets a slice."""
    default = {NAMES.compute: "10", NAMES.memory: "800"}
    item = {"type": "Container", "default": default, "defaultRequest": default}
    meta = {"name": "slices", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": meta, "spec": {"limits": [item]}}


def test_use_none_keeps_a_limit_range_off(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """Without the label a pod of the namespace asks for a slice; with it, it asks for nothing and is not gated."""
    cluster.create_pod(limit_range(namespace))
    plain = pod("plain", shell("true"), namespace=namespace)
    cluster.wait_for("the LimitRange", lambda: guarded.tried(plain)["spec"].get("schedulingGates"))
    spec = guarded.tried(pod("declines", shell("true"), namespace=namespace, labels={NAMES.use: "none"}))["spec"]
    assert (spec.get("schedulingGates"), spec["schedulerName"]) == (None, "default-scheduler")
    assert not any(spec["containers"][0]["resources"].values())


def test_a_bound_pod_keeps_what_its_grant_was_made_from(
    cluster: ClusterHarness, guarded: Guarded, namespace: str
) -> None:
    """While it waits its annotations may be mended; once bound they stand, and others may still change."""
    made = cluster.create_pod(asking("a", namespace, {"compute": "30"}))
    path = cluster.api.path_of(made)
    cluster.api.patch(path, annotated({NAMES.placement: "pack"}))
    refused(lambda: cluster.api.patch(path, annotated({NAMES.placement: "near"})), by="write pack or spread")
    lift_and_bind(guarded, made)
    for note in ({NAMES.gpus: "2"}, {NAMES.placement: "spread"}, {NAMES.placement: None}):
        said = refused(lambda note=note: cluster.api.patch(path, annotated(note)), by="validate.aliquot.dev")  # type: ignore[misc]
        assert "can't change any more" in said
    cluster.api.patch(path, annotated({"note": "x"}))


def lift_and_bind(guarded: Guarded, made: Json) -> None:
    """What the centre does: lift the gate, then bind with the grant."""
    path = guarded.cluster.api.path_of(made)
    guarded.scheduler.patch(path, {"spec": {"schedulingGates": None}})
    guarded.scheduler.post(f"{path}/binding", binding(made, "node1", {NAMES.grant: grant_text(30)}))


def test_a_mirror_pod_is_let_be(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """A kubelet tells of a static pod that asks for a slice; it stays on its node, ungated."""
    node = cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node9"}})
    mirror = asking(
        "static", namespace, {"compute": "30"}, node="node9", annotations={"kubernetes.io/config.mirror": "x"}
    )
    owner = {"apiVersion": "v1", "kind": "Node", "name": "node9", "uid": node["metadata"]["uid"], "controller": True}
    mirror["metadata"]["ownerReferences"] = [owner]
    made = cluster.api_as("system:node:node9").create(mirror)
    assert (made["spec"]["nodeName"], made["spec"].get("schedulingGates")) == ("node9", None)
    cluster.api.delete(cluster.api.path_of(made), gracePeriodSeconds=0)
    assert guarded.webhook.running


# --- nobody answers --------------------------------------------------------------------------------------------------


def test_a_dead_webhook_harms_nobody_else(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """Other pods come in, ours are refused; those that are in already can still be worked on."""
    waiting = cluster.api.path_of(cluster.create_pod(asking("waiting", namespace, {"compute": "30"})))
    guarded.webhook.kill()
    try:
        cluster.create_pod(pod("other", shell("true"), namespace=namespace))
        cluster.create_pod(pod("declines", shell("true"), namespace=namespace, labels={NAMES.use: "none"}))
        assert "failed calling webhook" in guarded.refusal(asking("ours", namespace, {"compute": "30"}))
        assert guarded.refusal(asking("ours", "kube-system", {"compute": "30"})) == ""
        cluster.api.patch(waiting, {"metadata": {"labels": {"a": "b"}, "finalizers": ["a.b/c"]}})
        cluster.api.patch(waiting, {"metadata": {"finalizers": None}})
        guarded.scheduler.patch(waiting, annotated({NAMES.charged: "default"}) | {"spec": {"schedulingGates": None}})
        with pytest.raises(ApiError, match="failed calling webhook"):
            cluster.api.patch(waiting, annotated({NAMES.gpus: "2"}))
        # Policies need nobody who answers.
        refused(lambda: cluster.api.patch(waiting, annotated({NAMES.grant: "{}"})), by="aliquot-guard-grants")
    finally:
        guarded.webhook.start()
        guarded.webhook.wait_ready()


# --- what Aliquot writes about pods, nobody else does ----------------------------------------------------------------


def grant_text(compute: int, *, node: str = "node1") -> str:
    """A grant as somebody might forge it."""
    part = {"gpu": "GPU-1", "compute": compute, "memory": 100}
    return json.dumps({"v": 1, "node": node, "pod": "u", "containers": {"main": {"slices": [part]}}})


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
    "strategic patch": lambda api, _, path, note: api.patch(
        path, annotated(note), kind="application/strategic-merge-patch+json"
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
    others = [{NAMES.charged: "another"}, {NAMES.turn: "9"}, {NAMES.room: "{}"}]
    for note in [*({NAMES.grant: text} for text in FORGED.values()), *others]:
        refused(lambda note=note: WAYS[way](cluster.api, made, path, note), by=guards_of(way))  # type: ignore[misc]
    ours = {NAMES.grant, NAMES.charged, NAMES.turn, NAMES.room}
    assert not ours & cluster.api.get(path)["metadata"].get("annotations", {}).keys()


@pytest.mark.parametrize("way", ["merge patch", "strategic patch", "replace", "pods/status"])
def test_nobody_takes_a_grant_away_or_changes_it(
    cluster: ClusterHarness, guarded: Guarded, namespace: str, way: str
) -> None:
    """The centre's own binding passes; what it wrote stands."""
    made = cluster.create_pod(asking("bound", namespace, {"compute": "30"}))
    path = cluster.api.path_of(made)
    lift_and_bind(guarded, made)
    bound = cluster.api.get(path)
    assert bound["metadata"]["annotations"][NAMES.grant] == grant_text(30)
    for note in ({NAMES.grant: text} for text in (None, *FORGED.values())):
        given = {key: value for key, value in note.items() if value is not None} if way == "replace" else note
        refused(lambda given=given: WAYS[way](cluster.api, bound, path, given), by=guards_of(way))  # type: ignore[misc]


def test_only_the_scheduler_counts_turns(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """Nobody else changes the number; whoever uninstalls takes it away."""
    path = cluster.api.path_of(cluster.create_pod(asking("a", namespace, {"compute": "30"})))
    guarded.scheduler.patch(path, annotated({NAMES.turn: "2"}))
    for by in (path, f"{path}/status"):
        refused(lambda by=by: cluster.api.patch(by, annotated({NAMES.turn: "3"})), by=guards_of(by))  # type: ignore[misc]
    assert "annotations" not in cluster.api.patch(path, annotated({NAMES.turn: None}))["metadata"]


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
        refused(lambda patch=patch: cluster.api.patch(f"{path}/status", patch), by="aliquot-guard-status")  # type: ignore[misc]
    found = cluster.api.patch(f"{path}/status", {"metadata": {kind: {"example.org/a": "b"}}})["metadata"][kind]
    assert {ours: "1", "example.org/a": "b"}.items() <= found.items()
    assert guarded.webhook.running


def test_only_the_scheduler_lifts_the_gate(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """Other gates are their owners'."""
    made = cluster.create_pod(asking("a", namespace, {"compute": "30"}, schedulingGates=[{"name": "a.b/c"}]))
    path = cluster.api.path_of(made)
    refused(lambda: cluster.api.patch(path, {"spec": {"schedulingGates": None}}), by="aliquot-guard-gates")
    now = cluster.api.patch(path, {"spec": {"schedulingGates": [GATE]}})
    assert now["spec"]["schedulingGates"] == [GATE]
    guarded.scheduler.patch(path, {"spec": {"schedulingGates": None}})
    assert "schedulingGates" not in cluster.api.get(path)["spec"]


def test_only_the_scheduler_writes_what_was_learnt_of_requests(cluster: ClusterHarness, guarded: Guarded) -> None:
    """Whoever installs it may write its labels, and other ConfigMaps are their owners'."""
    where = {"name": MIX, "namespace": NAMES.namespace}
    body: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": where}
    path, by = cluster.api.path_of(body), "aliquot-guard-mix"
    learnt: Json = {"data": {"page.json": "{}"}}
    refused(lambda: cluster.api.create(body | learnt), by=by)
    cluster.apply(body)
    refused(lambda: cluster.api.patch(path, learnt), by=by)
    guarded.scheduler.patch(path, learnt)
    refused(lambda: cluster.api.patch(path, {"data": {"page.json": "?"}}), by=by)
    refused(lambda: cluster.api.patch(path, {"data": None}), by=by)
    cluster.apply(body | {"metadata": where | {"labels": {"team": "a"}}})
    assert cluster.api.get(path)["data"] == learnt["data"]
    other = cluster.api.create(body | learnt | {"metadata": where | {"name": "other"}})
    tidier = may_delete(cluster, "configmaps")
    refused(lambda: tidier.delete(path), by=by)
    tidier.delete(cluster.api.path_of(other))
    cluster.api.delete(path)  # who may delete the policy may delete what it guards


def may_delete(cluster: ClusterHarness, resource: str) -> Api:
    """Somebody who may delete these of our namespace, and no policies."""
    user, version = f"tidier-of-{resource}", "rbac.authorization.k8s.io/v1"
    where = {"name": user, "namespace": NAMES.namespace}
    rules = [{"apiGroups": ["", "coordination.k8s.io"], "resources": [resource], "verbs": ["delete"]}]
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user}
    cluster.apply({"apiVersion": version, "kind": "Role", "metadata": where, "rules": rules})
    cluster.apply(
        {"apiVersion": version, "kind": "RoleBinding", "metadata": where, "roleRef": role, "subjects": [subject]}
    )
    allowed = cluster.api_as(user)

    def may() -> bool:
        review = {"resourceAttributes": {"namespace": NAMES.namespace, "verb": "delete", "resource": resource}}
        asked = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": review}
        found = allowed.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", asked)
        return bool(found["status"]["allowed"])

    cluster.wait_for("the right to delete", may)
    return allowed


def lease(name: str, *, namespace: str = NAMES.namespace) -> Json:
    """A Lease as it is created."""
    where = {"name": name, "namespace": namespace}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": where}


def test_nobody_else_writes_our_leases(cluster: ClusterHarness, guarded: Guarded) -> None:
    """Heart-beats and who leads: nor an administrator; those of other namespaces are their owners'."""
    ours = lease("node-written")
    path, by = cluster.api.path_of(ours), "aliquot-guard-leases"
    refused(lambda: cluster.api.create(ours), by=by)
    guarded.scheduler.create(ours)
    refused(lambda: cluster.api.patch(path, annotated({NAMES.state: "away"})), by=by)
    guarded.scheduler.delete(path)
    other = cluster.api.create(lease("node-written", namespace="default"))
    cluster.api.delete(cluster.api.path_of(other))


def test_an_administrator_tidies_up_after_a_node_that_is_gone(cluster: ClusterHarness, guarded: Guarded) -> None:
    """By the right to delete the policy; whoever may only delete Leases may not, and who leads is left to nobody."""
    heartbeat, led, paced = (
        cluster.api.path_of(guarded.scheduler.create(lease(name))) for name in ("node-gone", LEADER_LEASE, PACE_LEASE)
    )
    tidier, by = may_delete(cluster, "leases"), "aliquot-guard-leases"
    refused(lambda: tidier.delete(heartbeat), by=by)
    cluster.api.delete(heartbeat)
    assert cluster.api.find(heartbeat) is None
    for path in (led, paced):
        refused(lambda path=path: cluster.api.delete(path), by=by)  # type: ignore[misc]
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
    refused(lambda: write(told(ours)), by=by)
    guarded.scheduler.patch(f"{path}/status", told(ours), kind=strategic)
    found = write(told("example.org/ready"))["status"]["conditions"]
    assert {ours, "example.org/ready"} <= {each["type"] for each in found}
    refused(lambda: write({"status": {"conditions": [{"type": ours, "status": "False"}]}}), by=by)
    refused(lambda: cluster.api.patch(f"{path}/status", {"status": {"conditions": []}}), by=by)


def test_only_schedulers_nominate_a_pod_that_asks(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """Anybody may drop a nomination, as kubelets do; pods of others are nominated by whoever may."""
    here = {"status": {"nominatedNodeName": "node1"}}
    path = cluster.api.path_of(cluster.create_pod(asking("a", namespace, {"compute": "30"})))
    refused(lambda: cluster.api.patch(f"{path}/status", here), by="aliquot-guard-status")
    for user in (SCHEDULER, "system:kube-scheduler"):
        cluster.api_as(user).patch(f"{path}/status", here)
        now = cluster.api.patch(f"{path}/status", {"status": {"nominatedNodeName": None}})
        assert "nominatedNodeName" not in now["status"]
    other = cluster.api.path_of(cluster.create_pod(pod("other", shell("true"), namespace=namespace)))
    assert cluster.api.patch(f"{other}/status", here)["status"]["nominatedNodeName"] == "node1"
    assert guarded.webhook.running


# --- ways round ------------------------------------------------------------------------------------------------------


def mounts(path: str) -> Json:
    """Settings of a pod that mounts a path of its node."""
    return {"volumes": [{"name": "v", "hostPath": {"path": path}}]}


def mounting(at: str) -> Json:
    """A container that has a volume there."""
    return {**shell("true"), "volumeMounts": [{"name": "v", "mountPath": at}]}


def sees(value: str, **limits: str) -> Json:
    """A container that sets NVIDIA's variable."""
    named = {NAMES.of(short): amount for short, amount in limits.items()}
    return shell("true", env={"NVIDIA_VISIBLE_DEVICES": value}, limits=named)


ROUND: dict[str, Json] = {
    **{
        f"mounts {path}": mounts(path)
        for path in (
            *("/", "/dev", "/dev/", "//dev/./nvidia0", "/dev/nvidia0", "/dev/nvidia-caps/x", "/run", "/var", "/etc"),
            *("/var/run/cdi", "/run/cdi", "/run/cdi/x", "/etc/cdi", "/var/run", "/var/lib", "/var/lib/kubelet"),
            *("/var/lib/kubelet/device-plugins", "/run/nvidia/driver", "/run/aliquot", "/var/lib/aliquot/isolation"),
            *(
                "/dev/char",
                "/dev/char/195:0",
                "/run/containerd",
                "/run/containerd/containerd.sock",
                "/run/k3s/containerd",
            ),
            *(
                "/var/run/docker.sock",
                "/run/docker.sock",
                "/run/crio/crio.sock",
                "/proc",
                "/proc/1/root",
                "/sys/fs/cgroup",
            ),
        )
    },
    "is privileged": {"containers": [privileged()]},
    "has a privileged init container": {"initContainers": [{**privileged(), "name": "init"}]},
    "sees all": {"containers": [sees("all")]},
    "sees one": {"containers": [sees("0")]},
    "sees what a field says": {
        "containers": [
            {
                **shell("true"),
                "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            }
        ]
    },
    "sees all beside a container with a slice": {
        "containers": [sees("all"), {**sees("all", compute="30"), "name": "slice"}]
    },
    **{
        f"mounts something at {at}": {"containers": [mounting(at)], "volumes": [{"name": "v", "emptyDir": {}}]}
        for at in ("/var/run/nvidia-container-devices/all", "/run//nvidia-container-devices/0")
    },
    "names a device": {"metadata": {"annotations": {"cdi.k8s.io/gpu": "nvidia.com/gpu=all"}}},
}
HARMLESS: dict[str, Json] = {
    **{
        f"mounts {path}": mounts(path)
        for path in (
            *("/data", "/device", "/dev/shm", "/var/log", "/var/lib/kubelets", "/run/cdix", "/var/run/user"),
            *("/dev/charm", "/run/containerds", "/process", "/system", "/run/docker"),
        )
    },
    "mounts something elsewhere": {
        "containers": [mounting("/opt/nvidia-container-devices-of-mine")],
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
    "mounts nothing of its node": {"volumes": [{"name": "v", "emptyDir": {}}]},
    "is not privileged": {"containers": [{**shell("true"), "securityContext": {"privileged": False}}]},
    "sees nothing": {"containers": [sees("void"), {**sees("none"), "name": "b"}, {**sees(""), "name": "c"}]},
    "has a slice": {"containers": [sees("all", compute="30")]},
    "has other annotations": {"metadata": {"annotations": {"accidi.io/cdi": "x", "cdi": "x"}}},
}


def going_round(settings: Json, namespace: str) -> Json:
    """A pod with these settings of its spec, or of its metadata."""
    made = pod("round", shell("true"), namespace=namespace)
    made["metadata"] |= settings.get("metadata", {})
    made["spec"] |= {key: value for key, value in settings.items() if key != "metadata"}
    return made


@pytest.fixture(scope="module")
def denying(cluster: ClusterHarness, guarded: Guarded) -> str:
    """A namespace in which ways round are refused."""
    name = cluster.make_namespace()
    cluster.api.patch(f"/api/v1/namespaces/{name}", label("deny"))
    probe = going_round(ROUND["is privileged"], name)
    cluster.wait_for("the label to count", lambda: "aliquot-ways-round" in guarded.refusal(probe))
    return name


def label(value: str) -> Json:
    """What a namespace says of ways round."""
    return {"metadata": {"labels": {NAMES.of("ways-round"): value}}}


@pytest.mark.parametrize("row", ROUND)
def test_a_way_round_is_refused_where_so_labelled(guarded: Guarded, denying: str, row: str) -> None:
    """With what it is that goes round."""
    assert "aliquot-ways-round" in guarded.refusal(going_round(ROUND[row], denying))


@pytest.mark.parametrize("row", HARMLESS)
def test_what_leads_to_no_gpu_is_let_be(guarded: Guarded, denying: str, row: str) -> None:
    """Also where ways round are refused."""
    assert guarded.refusal(going_round(HARMLESS[row], denying)) == ""


def test_a_way_round_is_only_warned_of_elsewhere(guarded: Guarded, namespace: str) -> None:
    """The author reads all of it, and the pod comes in."""
    settings = {**mounts("/var/run/cdi"), "containers": [privileged()]}
    said = guarded.warnings(going_round(settings, namespace))
    assert len(said) == 2
    assert "mounts /run/cdi of its node" in said[0]
    assert "privileged containers have every GPU of their node: main" in said[1]


def test_exempt_namespaces_and_the_system_s_own_go_round(
    cluster: ClusterHarness, guarded: Guarded, namespace: str
) -> None:
    """Drivers, exporters and storage plugins live there; a label does not make kube-system ours."""
    settings = ROUND["is privileged"]
    cluster.api.patch("/api/v1/namespaces/kube-system", label("deny"))
    # Labelled later, and seen later: when it counts, the other does too.
    cluster.api.patch(f"/api/v1/namespaces/{namespace}", label("allow"))
    cluster.wait_for("the label to count", lambda: not guarded.warnings(going_round(settings, namespace)) or None)
    assert guarded.warnings(going_round(settings, "kube-system")) == []


def test_an_ephemeral_container_goes_no_way_round(cluster: ClusterHarness, guarded: Guarded, denying: str) -> None:
    """What `kubectl debug` adds to a pod counts as well."""
    made = cluster.create_pod(pod("debugged", shell("true"), namespace=denying))
    path = f"{cluster.api.path_of(made)}/ephemeralcontainers"
    debug = {key: value for key, value in privileged().items() if key != "resources"} | {"name": "debug"}
    strategic = "application/strategic-merge-patch+json"
    patch = {"spec": {"ephemeralContainers": [debug]}}
    refused(lambda: cluster.api.patch(path, patch, kind=strategic), by="aliquot-ways-round")
    harmless = {"spec": {"ephemeralContainers": [{**debug, "securityContext": {"privileged": False}}]}}
    assert cluster.api.patch(path, harmless, kind=strategic)["spec"]["ephemeralContainers"]
    assert guarded.webhook.running
