"""What whoever leads next finds, of what the leader before it knew."""

from __future__ import annotations

import asyncio

import pytest

from aliquot_kube.resources import EVENTS
from aliquot_scheduler.centre.reign import Reign
from aliquot_scheduler.centre.settings import CentreSettings
from aliquot_scheduler.picture.picture import Picture
from support.large_cluster import NAMESPACE, Json, pod_manifest
from support.reigning import Reigning, reigning, runs, until

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
# Of pods without slices: the nodes for which each is nominated, one after the other; empty if it is so no more.
NOMINATED = {"meant": ["n1"], "meant for another": ["n1", "n2"], "no more": ["n1", ""], "never": []}
KEPT = {"n1": ["team/meant"], "n2": ["team/meant-for-another"]}


def plain(name: str) -> Json:
    """It asks for cores alone."""
    resources = {"requests": {"cpu": "2", "memory": "1Gi"}}
    return {
        "metadata": {"name": name.replace(" ", "-")},
        "spec": {"containers": [{"name": "main", "image": "none", "resources": resources}]},
    }


def kept(picture: Picture) -> dict[str, tuple[list[str], list[int]]]:
    """Who is nominated for each node, and what all leave of it."""
    hosts = picture.hosts
    return {
        name: (sorted(hosts.nominated.get(name, {}).values()), hosts.free[known.row].tolist())
        for name, known in picture.nodes.items()
    }


@pytest.mark.timeout(30)
async def test_what_is_kept_for_nominated_pods_the_next_leader_keeps_too() -> None:
    """Else a slice would be promised what kube-scheduler lets nobody have, until each of them changes."""
    async with reigning() as town:
        for node in ("n1", "n2"):
            town.join(node)
        await knows_all(town.reign)
        for name, nodes in NOMINATED.items():
            made = town.create(PODS, plain(name))["metadata"]["name"]
            for node in nodes:
                await town.nominate(made, node=node)
        await until(lambda: {node: who for node, (who, _) in kept(town.reign.picture).items()} == KEPT)
        after = town.new_reign()
        async with runs(after):
            await knows_all(after)
            assert kept(after.picture) == kept(town.reign.picture)


async def knows_all(reign: Reign) -> None:
    """Let it read what there is."""
    await until(lambda: not reign.why_not())


async def reasons(town: Reigning) -> list[str]:
    """Of all Events, after others have had their turn."""
    await asyncio.sleep(0)
    return [event.reason for event in await town._client.list(EVENTS)]


@pytest.mark.timeout(30)
async def test_who_went_by_priority_while_nobody_led_the_next_leader_tells_of() -> None:
    """Once: to whoever leads after that it is told already."""
    town = Reigning(CentreSettings())
    town.join("n1")
    async with runs(town.reign):
        await knows_all(town.reign)
        town.create(PODS, pod_manifest("slice", compute=50, memory=1_000))
        await town.place("slice")
    led_until = town.clock.wall()
    await town.evict_by_priority("slice", at=led_until + 20.0)
    for before, told in ((led_until, 1), (led_until + 60.0, 0)):
        after = town.new_reign(led_until=before)
        async with runs(after):
            await knows_all(after)
            assert after.clerks.by_priority.count == told
            while "EvictedByPriority" not in await reasons(town):
                pass
    assert (await reasons(town)).count("EvictedByPriority") == 1
