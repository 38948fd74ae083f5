"""Policies on a real API server: what Aliquot writes of a pod's slices and turns, nobody else does."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from cluster.guarded import POLICY, Guarded, asking, grant_text
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.pods import pod, shell
from cluster.installed import NAMES, binding
from cluster.refusals import annotated, expect_refused
from cluster.ways import TAKING_AWAY, WRITES, Write

GATE = {"name": NAMES.gate}


def test_every_policy_is_well_typed(cluster: ClusterHarness, guarded: Guarded) -> None:
    """Kubernetes checks the expressions against its own types, and finds nothing to warn of."""

    def checked() -> bool:
        return all("typeChecking" in policy["status"] for policy in guarded.policies())

    cluster.wait_for(f"each {POLICY} to be checked", checked)
    assert {policy["metadata"]["name"]: policy["status"]["typeChecking"] for policy in guarded.policies()} == {
        policy["metadata"]["name"]: {} for policy in guarded.policies()
    }


def another(made: Json, change: Json) -> Json:
    """The metadata of another pod like this one."""
    return {"name": "another", "namespace": made["metadata"]["namespace"], **change["metadata"]}


def noted(made: Json, change: Json) -> Json:
    """A binding with these annotations."""
    return binding(made, "node1", change["metadata"]["annotations"])


def through(part: str, write: Write) -> Write:
    """The same way through a part of the pod that has a path of its own."""
    return lambda api, made, path, change: write(api, made, f"{path}/{part}", change)


FORGED = {
    "positive": grant_text(100),
    "negative": grant_text(-100),
    "another node's": grant_text(30, node="node2"),
    "empty": "",
}
# Each is given an API, a waiting pod, the pod's path, and a change of its annotations.
WAYS: dict[str, Write] = {
    "create": lambda api, made, _, change: api.create({**made, "metadata": another(made, change)}),
    **WRITES,
    **{f"pods/status, {way}": through("status", write) for way, write in WRITES.items()},
    "pods/binding": lambda api, made, path, change: api.post(f"{path}/binding", noted(made, change)),
    "bindings": lambda api, made, path, change: api.post(
        f"{path.rpartition('/pods/')[0]}/bindings", noted(made, change)
    ),
}

# The API server takes these, and keeps of the metadata what was there.
UNHEARD: dict[str, Write] = {
    f"pods/{part}, {way}": through(part, WRITES[way])
    for part in ("ephemeralcontainers", "resize")
    for way in ("strategic patch", "replace")
}


def guards_of(way: str) -> str:
    """Whose word is expected: of a pod's status a second policy says no too, and either may be the first."""
    return "aliquot-guard-" if "status" in way else "aliquot-guard-grants"


@pytest.mark.parametrize("way", WAYS)
def test_nobody_forges_a_grant_whatever_it_says(
    cluster: ClusterHarness, guarded: Guarded, namespace: str, way: str
) -> None:
    """Nor turns or room; more than was granted, less than nothing, another node's or queue's: nor an administrator."""
    made = guarded.cluster.create_pod(asking("waiting", namespace, {"compute": "30"}))
    path = cluster.api.path_of(made)
    said = {NAMES.charged: "another", NAMES.turn: "9", NAMES.room: "{}", NAMES.over_use: "note", NAMES.group_run: "a"}
    forged = [(NAMES.grant, text) for text in FORGED.values()]
    for name, text in [*forged, *said.items()]:
        expect_refused(partial(WAYS[way], cluster.api, made, path, annotated({name: text})), by=guards_of(way))
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
        UNHEARD[way](cluster.api, cluster.api.get(path), path, annotated({NAMES.grant: text}))
        after = cluster.api.get(path)["metadata"]
        assert after.get("annotations") == before["metadata"].get("annotations")


@pytest.mark.parametrize("way", [*TAKING_AWAY, *(f"pods/status, {way}" for way in TAKING_AWAY)])
def test_nobody_takes_a_grant_away_or_changes_it(
    cluster: ClusterHarness, guarded: Guarded, namespace: str, way: str
) -> None:
    """The centre's own binding passes; what it wrote stands."""
    made = cluster.create_pod(asking("bound", namespace, {"compute": "30"}))
    path = cluster.api.path_of(made)
    guarded.lift_and_bind(made)
    bound = cluster.api.get(path)
    assert bound["metadata"]["annotations"][NAMES.grant] == grant_text(30)
    for text in (None, *FORGED.values()):
        forged = annotated({NAMES.grant: text})
        expect_refused(partial(WAYS[way], cluster.api, bound, path, forged), by=guards_of(way))


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
