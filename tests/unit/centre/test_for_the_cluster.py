"""Whom the leader lets go for a pod that runs the cluster, and how long it waits to hear of that."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from aliquot_core.objects import Namespace, ObjectMeta, Pod
from aliquot_kube.changes import Added, Change, Deleted, Modified, Synced
from aliquot_scheduler.centre.binder import NotReadyError
from aliquot_scheduler.centre.for_the_cluster import ForTheCluster
from aliquot_scheduler.centre.means import Means
from aliquot_scheduler.centre.of_the_cluster import OfTheCluster
from aliquot_scheduler.extender.preemptors import NOMINATED_WITHIN
from support.centre import NAMES, asks, make_pod
from support.centre_means import means
from support.clocks import VirtualClock
from support.fake_api import FakeApi
from support.reigning import reigning, until

VICTIM = asks("slice", 30, 1_000, node="n1")
Json = dict[str, Any]


def dns(uid: str = "dns", **status: Any) -> Pod:
    """A pod of the system that waits."""
    waiting = make_pod(uid, {"name": "main"}, spec={"priority": 5})
    meta = msgspec.structs.replace(waiting.metadata, namespace="kube-system")
    return msgspec.structs.replace(waiting, metadata=meta, status=msgspec.structs.replace(waiting.status, **status))


def knowing(given: Means) -> ForTheCluster:
    """Where no namespace bears a label."""
    return ForTheCluster(means=given, labels_of=lambda _: {})


HERE, ELSEWHERE = dns(nominated_node_name="n1"), dns(nominated_node_name="n2")
MOMENT = NOMINATED_WITHIN / 2
# What is heard before it is asked and a moment later; whether the victim may go, and after how long that is said.
HEARD: dict[str, tuple[list[Change[Pod]], list[Change[Pod]], bool, float]] = {
    "nobody waits": ([], [], False, NOMINATED_WITHIN),
    "one waits": ([Added(new=HERE)], [], True, 0.0),
    "one comes": ([], [Added(new=HERE)], True, MOMENT),
    "one is nominated": ([Added(new=ELSEWHERE)], [Modified(old=ELSEWHERE, new=HERE)], True, MOMENT),
    "one is nominated elsewhere": ([Added(new=ELSEWHERE)], [], False, NOMINATED_WITHIN),
    "one has gone": ([Added(new=HERE), Deleted(old=HERE)], [], False, NOMINATED_WITHIN),
    "one has come in its place": (
        [Added(new=HERE), Modified(old=HERE, new=dns("next", nominated_node_name="n2"))],
        [],
        False,
        NOMINATED_WITHIN,
    ),
}


@pytest.mark.parametrize("row", HEARD)
async def test_who_is_asked_first_hears_for_whom(row: str) -> None:
    """A refusal that comes before kube-scheduler's nomination is heard would cost DNS five minutes."""
    before, later, may, after = HEARD[row]
    clock = VirtualClock()
    known = knowing(means(FakeApi(), clock=clock))
    for change in before:
        known.pod_changed(change)
    told = asyncio.ensure_future(known.one_for(VICTIM))
    await clock.advance(MOMENT - 0.01)
    for change in later:
        known.pod_changed(change)
    assert told.done() is (after < MOMENT - 0.01)
    await clock.advance(0.05)
    assert told.done() is (after <= MOMENT)
    await clock.advance(NOMINATED_WITHIN)
    found = await told
    assert (found.key if found else None) == (dns().key if may else None)


async def test_one_that_nobody_looks_at_is_asked_for_no_longer() -> None:
    """By the leader's clock, from when it was first told of; other words on it change nothing."""
    clock = VirtualClock()
    known = knowing(means(FakeApi(), clock=clock))
    waits, labelled = dns(), dns(message="still here")
    known.pod_changed(Added(new=waits))
    await clock.advance(59.0)
    known.pod_changed(Modified(old=waits, new=labelled))
    assert (await known.one_for(VICTIM)) is labelled
    await clock.advance(2.0)
    told = asyncio.ensure_future(known.one_for(VICTIM))
    await clock.advance(2 * NOMINATED_WITHIN)
    assert await told is None


async def test_blind_nobody_is_judged() -> None:
    """Nor when that comes while it waits: the victim goes as if nobody were there to ask."""
    clock, blind = VirtualClock(), [""]
    known = knowing(means(FakeApi(), clock=clock, why_not=lambda: blind[0]))
    told = asyncio.ensure_future(known.one_for(VICTIM))
    await clock.advance(MOMENT)
    blind[0] = "nothing was heard of pods for 151 s"
    await clock.advance(NOMINATED_WITHIN)
    with pytest.raises(NotReadyError, match="151 s"):
        await told


@pytest.mark.timeout(30)
async def test_a_leader_hears_of_it_by_its_watch() -> None:
    """The server's own copy of it is asked for nothing more."""
    async with reigning() as town:
        town.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 9})
        spec = {"containers": [{"name": "main", "image": "none"}], "priorityClassName": "high"}
        town.create("/api/v1/namespaces/kube-system/pods", {"metadata": {"name": "dns"}, "spec": spec})
        await until(lambda: not town.reign.why_not())
        found = await town.reign.for_the_cluster.one_for(VICTIM)
        assert found is not None
        assert found.key == "kube-system/dns"


def network(uid: str = "network") -> Pod:
    """One that waits in a namespace that is not the system's own."""
    return msgspec.structs.replace(dns(uid), metadata=msgspec.structs.replace(dns(uid).metadata, namespace="calico"))


def labelled(value: str) -> Namespace:
    """The namespace, with what an operator says there."""
    return Namespace(metadata=ObjectMeta(name="calico", labels={NAMES.runs_the_cluster: value} if value else {}))


# What the watch of namespaces tells, word by word, and whether others go for one of calico that waits by then.
SAID: dict[str, tuple[list[Change[Namespace]], bool]] = {
    "nothing": ([Added(new=labelled(""))], False),
    "it is labelled": ([Added(new=labelled("true"))], True),
    "it is labelled later": ([Added(new=labelled("")), Modified(old=labelled(""), new=labelled("true"))], True),
    "no more": ([Added(new=labelled("true")), Modified(old=labelled("true"), new=labelled("false"))], False),
    "it is gone": ([Added(new=labelled("true")), Deleted(old=labelled("true"))], False),
}


@pytest.mark.parametrize("pod_first", [True, False], ids=["the pod came first", "the namespace came first"])
@pytest.mark.parametrize("row", SAID)
async def test_whom_an_operator_labels_counts_from_then_on(row: str, pod_first: bool) -> None:
    """And no longer than that, whoever waits there already."""
    changes, may = SAID[row]
    clock, labels, pods = VirtualClock(), dict[str, str](), {"network": network()}
    known = ForTheCluster(
        means=means(FakeApi(), clock=clock),
        labels_of=lambda name: labels if name == "calico" else {},
    )
    of_the_cluster = OfTheCluster(names=NAMES, pods=lambda: pods, tell=[known.pod_changed])
    if pod_first:
        known.pod_changed(Added(new=network()))
    for change in changes:
        labels = {} if isinstance(change, Deleted | Synced) else dict(change.new.metadata.labels)
        of_the_cluster.namespace_changed(change)
    if not pod_first:
        known.pod_changed(Added(new=network()))
    told = asyncio.ensure_future(known.one_for(VICTIM))
    await clock.advance(2 * NOMINATED_WITHIN)
    found = await told
    assert (found.key if found else None) == (network().key if may else None)


@pytest.mark.timeout(30)
async def test_a_leader_knows_what_an_operator_labels_by_its_watch() -> None:
    """For the webhook and for the extender alike."""
    async with reigning() as town:
        spec = {"containers": [{"name": "main", "image": "none"}], "priorityClassName": "system-node-critical"}
        label = {NAMES.runs_the_cluster: "true"}
        for name, labels in (("calico", label), ("tenant", {}), ("exporters", {NAMES.of("ways-round"): "allow"})):
            town.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
            town.create(f"/api/v1/namespaces/{name}/pods", {"metadata": {"name": "p"}, "spec": spec})
        await until(lambda: not town.reign.why_not())
        found = await town.reign.for_the_cluster.one_for(VICTIM)
        assert found is not None
        assert found.key == "calico/p"
        held = asks("s", 10, 1_000)
        town.reign.desk.pod_seen(held)
        offered = {"n1": [held.metadata.uid]}
        names = ("calico", "tenant", "exporters")
        left = {name: town.reign.binder.preempt(town.reign.pods[f"{name}/p"], offered) for name in names}
        assert left == {"calico": offered, "tenant": {}, "exporters": {}}
