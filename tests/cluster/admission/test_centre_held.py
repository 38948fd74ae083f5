"""Policies on a real API server: of all that the centre's rights let it write, it writes what a leader does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from aliquot_core.instants import seconds_of
from aliquot_core.names import LEADER_LEASE
from aliquot_kube.patches import JSON_PATCH, STRATEGIC_MERGE_PATCH, Patch
from aliquot_scheduler.centre.pod_patches import (
    LET_IN,
    let_through,
    nominated,
    not_nominated,
    saying,
    with_over_use,
    with_room,
)
from aliquot_scheduler.deciding.turns import Turn
from cluster.guarded import Guarded, asking, grant_text
from cluster.harness.api import Api, Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.pods import pod, shell
from cluster.installed import NAMES, binding
from cluster.refusals import annotated, expect_refused, lease
from support.admitting import decoded

OTHER_GATE = {"name": "example.org/other"}
SAYS = {"labels": {"app": "a"}, "annotations": {NAMES.gpus: "1"}}


@pytest.fixture(scope="module")
def held(cluster: ClusterHarness, guarded: Guarded) -> Iterator[Json]:
    """A pod that asks and waits, behind a gate of others too, and tells what others say of it."""
    made = asking("held", cluster.make_namespace(), {"compute": "30"}, schedulingGates=[OTHER_GATE], **SAYS)
    made["spec"]["initContainers"] = [{**shell("true"), "name": "first"}]
    held = cluster.create_pod(made)
    told = {"status": {"conditions": [{"type": "example.org/ready", "status": "True"}]}}
    cluster.api.patch(f"{cluster.api.path_of(held)}/status", told, kind=STRATEGIC_MERGE_PATCH)
    yield held
    assert guarded.webhook.running


def status(**fields: Any) -> Json:
    """A patch of a pod's status."""
    return {"status": fields}


POD, SPEC, META, STATUS = (
    "writes pods that ask for slices only",
    "of a pod's spec the centre lifts its gate only",
    "of a pod's metadata the centre writes its own annotations only",
    "of a pod's status the centre writes the condition aliquot.dev/admitted and the nomination only",
)
KINDS = "writes pods that are there and their status only"
ANOTHER = {"image": "example.org/another"}
ELSEWHERE = {"containers": [{"name": "main", **ANOTHER}]}
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": "a"}
WANTS = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}
# What is patched, with what, and what is said.
HARM: dict[str, tuple[str, Json | list[Json], str]] = {
    "its image": ("", {"spec": ELSEWHERE}, SPEC),
    "its image, with its gate": (
        "",
        {"spec": ELSEWHERE | {"schedulingGates": [{"name": NAMES.gate, "$patch": "delete"}]}},
        SPEC,
    ),
    "its first container's image": ("", {"spec": {"initContainers": [{"name": "first", **ANOTHER}]}}, SPEC),
    "a container to look in": (
        "/ephemeralcontainers",
        {"spec": {"ephemeralContainers": [{"name": "look", **ANOTHER}]}},
        KINDS,
    ),
    "what it wants of nodes": (
        "",
        {"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": WANTS}}}},
        SPEC,
    ),
    "a gate of others": ("", {"spec": {"schedulingGates": None}}, SPEC),
    "where it may run": ("", {"spec": {"nodeSelector": {"a": "b"}}}, SPEC),
    "what it tolerates": (
        "",
        [{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}],
        SPEC,
    ),
    "how long it may run": ("", {"spec": {"activeDeadlineSeconds": 1}}, SPEC),
    "its labels": ("", {"metadata": {"labels": {"app": "another"}}}, META),
    "its labels, through its status": ("/status", {"metadata": {"labels": {"app": "another"}}}, META),
    "its owners": ("", {"metadata": {"ownerReferences": [OWNER]}}, META),
    "its finalizers": ("", {"metadata": {"finalizers": ["a.b/c"]}}, META),
    "what it asks": ("", annotated({NAMES.gpus: "2"}), META),
    "what it no longer asks": ("", annotated({NAMES.gpus: None}), META),
    "its grant": ("", annotated({NAMES.grant: grant_text(30)}), META),
    "its phase": ("/status", status(phase="Succeeded"), STATUS),
    "its address": ("/status", status(podIPs=[{"ip": "10.0.0.9"}], podIP="10.0.0.9"), STATUS),
    "what others say of it": (
        "/status",
        status(conditions=[{"type": "example.org/ready", "status": "False"}]),
        STATUS,
    ),
    "what the agent says of it": (
        "/status",
        status(conditions=[{"type": NAMES.of("granted"), "status": "True"}]),
        STATUS,
    ),
}


@pytest.mark.parametrize("what", HARM)
def test_the_centre_leaves_a_pod_what_it_is(cluster: ClusterHarness, guarded: Guarded, held: Json, what: str) -> None:
    """Of a pod that waits for it, nothing but gate, turn, condition and nomination is its to write."""
    part, patch, said = HARM[what]
    path, kind = cluster.api.path_of(held) + part, JSON_PATCH if isinstance(patch, list) else STRATEGIC_MERGE_PATCH
    expect_refused(lambda: guarded.scheduler.patch(path, patch, kind=kind), by=said)


def test_what_a_leader_writes_passes(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """Its very patches: the room made for a pod, the word on it, its nomination and its gate."""
    made = cluster.create_pod(asking("led", namespace, {"compute": "30"}))
    path, read = cluster.api.path_of(made), decoded(made)

    def write(patch: Patch, part: str = "") -> Json:
        return guarded.scheduler.patch(path + part, json.loads(patch.body), kind=patch.content_type)

    write(with_room(read, "{}", names=NAMES))
    write(with_room(read, "", names=NAMES))
    write(nominated(read, "node1"), "/status")
    write(not_nominated(read), "/status")
    at = "2026-01-01T00:00:00Z"
    wall = seconds_of(at)
    assert wall is not None
    told = write(saying(read, LET_IN, admitted=True, names=NAMES, at=at, node="node1"), "/status")
    assert told["status"]["nominatedNodeName"] == "node1"
    turn = Turn(pod=read, promise=None, number=1, shown=1, run="led")
    let_in = write(let_through(turn, queue="default", names=NAMES, wall=wall))
    assert "schedulingGates" not in let_in["spec"]
    assert let_in["metadata"]["annotations"][NAMES.charged] == "default"
    assert let_in["metadata"]["annotations"][NAMES.group_run] == "led"
    assert let_in["metadata"]["annotations"][NAMES.shown] == "2026-01-01T00:00:00Z 1"
    turn = Turn(pod=decoded(let_in), promise=None, number=2, shown=2)
    again = write(let_through(turn, queue="default", names=NAMES, wall=wall))
    assert again["metadata"]["annotations"][NAMES.turn] == "2"
    assert NAMES.group_run not in again["metadata"]["annotations"]
    notes = {NAMES.grant: grant_text(30), NAMES.charged: "default"}
    guarded.scheduler.post(f"{path}/binding", binding(made, "node1", notes))
    assert cluster.api.get(path)["spec"]["nodeName"] == "node1"
    said = write(with_over_use(read, "throttle", names=NAMES))
    assert said["metadata"]["annotations"][NAMES.over_use] == "throttle"
    write(with_over_use(read, "", names=NAMES))
    guarded.scheduler.post(f"{path}/eviction", eviction(made, preconditions={"uid": made["metadata"]["uid"]}))


def test_the_centre_writes_no_pod_that_asks_for_nothing(
    cluster: ClusterHarness, guarded: Guarded, namespace: str
) -> None:
    """Not even what it may write on others."""
    path = cluster.api.path_of(cluster.create_pod(pod("plain", shell("true"), namespace=namespace)))
    for part, patch in (("", annotated({NAMES.turn: "2"})), ("/status", status(nominatedNodeName="node1"))):
        expect_refused(partial(guarded.scheduler.patch, path + part, patch), by=POD)


BINDINGS: dict[str, tuple[Json, str]] = {
    "no grant": ({}, "the centre binds with a grant only"),
    "an empty grant": ({"annotations": {NAMES.grant: ""}}, "the centre binds with a grant only"),
    "more than a grant": ({"annotations": {NAMES.grant: "{}", "a": "b"}}, "and nothing else"),
    "a label": ({"annotations": {NAMES.grant: "{}"}, "labels": {"app": "a"}}, "and nothing else"),
}


@pytest.mark.parametrize("with_what", BINDINGS)
@pytest.mark.parametrize("way", ["pods/held/binding", "bindings"])
def test_the_centre_binds_with_a_grant_alone(guarded: Guarded, held: Json, with_what: str, way: str) -> None:
    """What asks for nothing is not its to place, and a binding changes nothing else of a pod."""
    metadata, said = BINDINGS[with_what]
    body = binding(held, "node1", {}) | {"metadata": {"name": "held", **metadata}}
    path = f"/api/v1/namespaces/{held['metadata']['namespace']}/{way}"
    expect_refused(lambda: guarded.scheduler.post(path, body), by=said)


def eviction(made: Json, **options: Any) -> Json:
    """An eviction with these options."""
    where = {"name": made["metadata"]["name"], "namespace": made["metadata"]["namespace"]}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": where, "deleteOptions": options}


EVICTIONS: dict[str, tuple[Json, str]] = {
    "whoever bears the name": ({}, "by its uid"),
    "at once": ({"gracePeriodSeconds": 0, "preconditions": {"uid": "any"}}, "the time to end"),
}


@pytest.mark.parametrize("how", EVICTIONS)
def test_the_centre_evicts_one_very_pod_with_its_own_grace(
    cluster: ClusterHarness, guarded: Guarded, held: Json, how: str
) -> None:
    """Not whoever bears its name by then, and not at once."""
    options, said = EVICTIONS[how]
    path = f"{cluster.api.path_of(held)}/eviction"
    expect_refused(lambda: guarded.scheduler.post(path, eviction(held, **options)), by=said)


@pytest.mark.parametrize("where", ["kube-system", NAMES.namespace])
def test_the_centre_evicts_nobody_who_runs_the_cluster(cluster: ClusterHarness, guarded: Guarded, where: str) -> None:
    """Nor its own colleagues."""
    made = cluster.create_pod(pod("needed", shell("true"), namespace=where))
    path = cluster.api.path_of(made)
    wanted = eviction(made, preconditions={"uid": made["metadata"]["uid"]})
    expect_refused(
        lambda: guarded.scheduler.post(f"{path}/eviction", wanted), by="the centre evicts no pod of kube-system"
    )
    cluster.api.delete(path, gracePeriodSeconds=0)


@pytest.mark.parametrize("how", ["whoever bears the name", "at once", "this very one"])
def test_the_centre_deletes_none_that_holds_no_slice(
    cluster: ClusterHarness, guarded: Guarded, held: Json, how: str
) -> None:
    """Nor whoever bears a name by then, nor at once: policies say each by itself."""
    very = {"preconditions": {"uid": held["metadata"]["uid"]}}
    ways: dict[str, Json] = {"whoever bears the name": {}, "at once": {"gracePeriodSeconds": 0}, "this very one": very}
    expect_refused(
        lambda: guarded.scheduler.delete(cluster.api.path_of(held), **ways[how]), by="aliquot-centre-deletions"
    )


LEASES: dict[str, Callable[[Api], object]] = {
    "a heart-beat": lambda api: api.create(lease("node-forged")),
    "a heart-beat under a long name": lambda api: api.create(lease("n" * 250)),
    "who leads something else": lambda api: api.create(lease(LEADER_LEASE, namespace="default")),
}


@pytest.mark.parametrize("which", LEASES)
def test_the_centre_beats_for_no_node(guarded: Guarded, which: str) -> None:
    """Who could would have pods bound to nodes that are not there."""
    expect_refused(lambda: LEASES[which](guarded.scheduler), by="writes the leases scheduler and pace only")
