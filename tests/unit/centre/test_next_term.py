"""What whoever leads next finds, of what the leader before it knew."""

from __future__ import annotations

import pytest

from aliquot_scheduler.picture.picture import Picture
from support.large_cluster import NAMESPACE, Json
from support.reigning import reigning, runs, until

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
        await until(lambda: not town.reign.why_not())
        for name, nodes in NOMINATED.items():
            made = town.create(PODS, plain(name))["metadata"]["name"]
            for node in nodes:
                await town.nominate(made, node=node)
        await until(lambda: {node: who for node, (who, _) in kept(town.reign.picture).items()} == KEPT)
        after = town.new_reign()
        async with runs(after):
            await until(lambda: not after.why_not())
            assert kept(after.picture) == kept(town.reign.picture)
