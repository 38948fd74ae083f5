"""The whole agent of a node beats as often as the centre has written."""

from __future__ import annotations

import asyncio

from aliquot_core.names import PACE_LEASE
from aliquot_kube.resources import LEASES
from simulation.universe.world import Scale, World

CALM = Scale(gpus=1, heartbeat=5.0, status_every=600.0)


def test_an_agent_slows_down_when_it_is_told() -> None:
    """Its lease says so, by which the centre knows how long to wait for the next beat."""
    world = World(1, CALM)

    def beats_for() -> int | None:
        lease = world.api.lease(world.names.namespace, world.names.lease(world.node.name))
        return lease.spec.lease_duration_seconds if lease else None

    async def story() -> None:
        await world.furnish()
        world.node.start_agent()
        await asyncio.sleep(30)
        assert beats_for() == 10
        metadata = {"name": PACE_LEASE, "annotations": {world.names.heartbeat_interval: "15"}}
        await world.api.create(LEASES, {"metadata": metadata}, namespace=world.names.namespace)
        await asyncio.sleep(80)
        assert beats_for() == 30

    world.play(story())
