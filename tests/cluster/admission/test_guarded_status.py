"""Policies on a real API server: what is said of a pod that asks, and what it says to us, nobody else writes there."""

from __future__ import annotations

from functools import partial

import pytest

from aliquot_kube.patches import STRATEGIC_MERGE_PATCH
from cluster.guarded import Guarded, asking
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.pods import BY_HAND, pod, shell
from cluster.installed import NAMES, SCHEDULER, binding
from cluster.refusals import expect_refused
from cluster.ways import TAKING_AWAY, WRITES

GUARD = "aliquot-guard-status"
SAID = {"labels": {NAMES.queue: "team"}, "annotations": {NAMES.preemptible: "false"}}


@pytest.mark.parametrize("kind", SAID)
@pytest.mark.parametrize("way", WRITES)
def test_what_a_pod_says_to_us_does_not_change_through_its_status(
    cluster: ClusterHarness, guarded: Guarded, namespace: str, way: str, kind: str
) -> None:
    """There no webhook reads it: nothing of ours is added, changed or taken away; what is others' is theirs."""
    ours = {"labels": NAMES.of("note"), "annotations": NAMES.gpus}[kind]
    made = cluster.create_pod(asking("a", namespace, {"compute": "30"}, **{kind: {ours: "1"}}))
    path = cluster.api.path_of(made)
    write = partial(WRITES[way], cluster.api, made, f"{path}/status")
    taken: tuple[dict[str, None] | None, ...] = ({ours: None}, None) if way in TAKING_AWAY else ()
    for change in (SAID[kind], {ours: "2"}, *taken):
        expect_refused(partial(write, {"metadata": {kind: change}}), by=GUARD)
    write({"metadata": {kind: {"example.org/a": "b"}}})
    assert {ours: "1", "example.org/a": "b"}.items() <= cluster.api.get(path)["metadata"][kind].items()
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


OURS = {"type": NAMES.of("admitted"), "status": "True", "reason": "Test"}
THEIRS = {"type": "example.org/ready", "status": "True", "reason": "Test"}


def told(*conditions: Json) -> Json:
    """A change of a pod's conditions."""
    return {"status": {"conditions": list(conditions)}}


@pytest.mark.parametrize("way", WRITES)
def test_only_aliquot_speaks_in_its_own_conditions(
    cluster: ClusterHarness, guarded: Guarded, namespace: str, way: str
) -> None:
    """Others write theirs beside ours, and can neither change nor drop ours."""
    path = cluster.api.path_of(cluster.create_pod(asking("a", namespace, {"compute": "30"})))

    def write(*conditions: Json) -> None:
        WRITES[way](cluster.api, cluster.api.get(path), f"{path}/status", told(*conditions))

    expect_refused(lambda: write(OURS), by=GUARD)
    guarded.scheduler.patch(f"{path}/status", told(OURS), kind=STRATEGIC_MERGE_PATCH)
    (stands,) = (one for one in cluster.api.get(path)["status"]["conditions"] if one["type"] == OURS["type"])
    expect_refused(lambda: write(stands | {"status": "False"}), by=GUARD)
    if way in TAKING_AWAY:
        dropped = [{"type": OURS["type"], "$patch": "delete"}] if way == "strategic patch" else []
        expect_refused(lambda: write(*dropped), by=GUARD)
    write(stands, THEIRS)
    found = {one["type"]: one for one in cluster.api.get(path)["status"]["conditions"]}
    assert found[OURS["type"]] == stands
    assert found[THEIRS["type"]].items() >= THEIRS.items()


def test_a_pod_that_comes_with_a_status_has_none(cluster: ClusterHarness, guarded: Guarded, namespace: str) -> None:
    """The API server leaves it out, and so it does of one that is written as a whole; a policy must, should it not."""
    forged = {"status": {**told(OURS)["status"], "nominatedNodeName": "node1"}}
    made = cluster.create_pod(asking("a", namespace, {"compute": "30"}) | forged)
    path = cluster.api.path_of(made)
    for write in WRITES.values():
        write(cluster.api, cluster.api.get(path), path, forged)
        status = cluster.api.get(path)["status"]
        assert "nominatedNodeName" not in status
        assert OURS["type"] not in {one["type"] for one in status.get("conditions", [])}
    assert guarded.webhook.running


@pytest.mark.parametrize("way", WRITES)
def test_only_schedulers_nominate_a_pod_that_asks(
    cluster: ClusterHarness, guarded: Guarded, namespace: str, way: str
) -> None:
    """Anybody may drop a nomination, as kubelets do; pods of others are nominated by whoever may."""
    here, away = ({"status": {"nominatedNodeName": node}} for node in ("node1", None))
    made = cluster.create_pod(asking("a", namespace, {"compute": "30"}))
    path = cluster.api.path_of(made)
    expect_refused(lambda: WRITES[way](cluster.api, made, f"{path}/status", here), by=GUARD)
    for user in (SCHEDULER, "system:kube-scheduler"):
        cluster.api_as(user).patch(f"{path}/status", here)
        now = cluster.api.patch(f"{path}/status", away)
        assert "nominatedNodeName" not in now["status"]
    # One that no scheduler looks at: it would write on it, and who replaces it would have another version.
    other = cluster.create_pod(pod("other", shell("true"), namespace=namespace, scheduler=BY_HAND))
    path = cluster.api.path_of(other)
    WRITES[way](cluster.api, other, f"{path}/status", here)
    assert cluster.api.get(path)["status"]["nominatedNodeName"] == "node1"
    assert guarded.webhook.running
