"""Whom the leader lets go for a pod that runs the cluster, and how long it waits to hear of that."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from aliquot_core.objects import Pod
from aliquot_kube.changes import Added, Change, Deleted, Modified
from aliquot_scheduler.centre.binder import NotReadyError
from aliquot_scheduler.centre.for_the_cluster import PATIENCE, ForTheCluster
from support.centre import asks, make_pod
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


HERE, ELSEWHERE = dns(nominated_node_name="n1"), dns(nominated_node_name="n2")
MOMENT = PATIENCE / 2
# What is heard before it is asked and a moment later; whether the victim may go, and after how long that is said.
HEARD: dict[str, tuple[list[Change[Pod]], list[Change[Pod]], bool, float]] = {
    "nobody waits": ([], [], False, PATIENCE),
    "one waits": ([Added(new=HERE)], [], True, 0.0),
    "one comes": ([], [Added(new=HERE)], True, MOMENT),
    "one is nominated": ([Added(new=ELSEWHERE)], [Modified(old=ELSEWHERE, new=HERE)], True, MOMENT),
    "one is nominated elsewhere": ([Added(new=ELSEWHERE)], [], False, PATIENCE),
    "one has gone": ([Added(new=HERE), Deleted(old=HERE)], [], False, PATIENCE),
    "one has come in its place": (
        [Added(new=HERE), Modified(old=HERE, new=dns("next", nominated_node_name="n2"))],
        [],
        False,
        PATIENCE,
    ),
}


@pytest.mark.parametrize("row", HEARD)
async def test_who_is_asked_first_hears_for_whom(row: str) -> None:
    """A refusal that comes before kube-scheduler's nomination is heard would cost DNS five minutes."""
    before, later, may, after = HEARD[row]
    clock = VirtualClock()
    known = ForTheCluster(means=means(FakeApi(), clock=clock))
    for change in before:
        known.pod_changed(change)
    told = asyncio.ensure_future(known.one_for(VICTIM))
    await clock.advance(MOMENT - 0.01)
    for change in later:
        known.pod_changed(change)
    assert told.done() is (after < MOMENT - 0.01)
    await clock.advance(0.05)
    assert told.done() is (after <= MOMENT)
    await clock.advance(PATIENCE)
    found = await told
    assert (found.key if found else None) == (dns().key if may else None)


async def test_one_that_nobody_looks_at_is_asked_for_no_longer() -> None:
    """By the leader's clock, from when it was first told of; other words on it change nothing."""
    clock = VirtualClock()
    known = ForTheCluster(means=means(FakeApi(), clock=clock))
    waits, labelled = dns(), dns(message="still here")
    known.pod_changed(Added(new=waits))
    await clock.advance(59.0)
    known.pod_changed(Modified(old=waits, new=labelled))
    assert (await known.one_for(VICTIM)) is labelled
    await clock.advance(2.0)
    told = asyncio.ensure_future(known.one_for(VICTIM))
    await clock.advance(2 * PATIENCE)
    assert await told is None


async def test_blind_nobody_is_judged() -> None:
    """Nor when that comes while it waits: the victim goes as if nobody were there to ask."""
    clock, blind = VirtualClock(), [""]
    known = ForTheCluster(means=means(FakeApi(), clock=clock, why_not=lambda: blind[0]))
    told = asyncio.ensure_future(known.one_for(VICTIM))
    await clock.advance(MOMENT)
    blind[0] = "nothing was heard of pods for 151 s"
    await clock.advance(PATIENCE)
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
