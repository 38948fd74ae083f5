"""What a pod holds on a GPU that is lost is told beside the healthy ones, also by an agent that never saw that GPU."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aliquot_kube.resources import PODS
from simulation.universe.world import Scale, World

QUIET = Scale(gpus=2, status_every=5.0)
HELD, HELD_MEMORY = 60, 8_000


def test_a_node_tells_of_what_pods_hold_on_a_lost_gpu_until_they_end() -> None:
    """As much of its neighbour would be out of reach by kube-scheduler's count, for as long as the pod stays."""
    world = World(1, QUIET)
    node, names = world.node, world.names
    limits = {names.compute: str(HELD), names.memory: str(HELD_MEMORY)}

    def told() -> tuple[int, str]:
        """Percent by the ids that the kubelet has, and MiB by the node's object."""
        seen = world.api.node(node.name)
        healthy = sum(device.healthy for device in node.endpoint.tables.get(names.compute, ()))
        return healthy, seen.status.capacity.get(names.memory, "") if seen else ""

    async def until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():  # noqa: ASYNC110 - what is waited for has no event of its own, and time costs nothing
                await asyncio.sleep(0.1)

    async def story() -> None:
        await world.furnish()
        node.start_agent()
        await until(lambda: not world.shortcomings())
        await node.kubelet.tell_node_once()
        spec: dict[str, Any] = {"containers": [{"name": "main", "image": "x", "resources": {"limits": limits}}]}
        pod = await world.api.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, namespace="default")
        assert await world.placer.place(pod)
        await until(lambda: bool(node.runtime.running))
        (part,) = world.judge.deeds[pod.metadata.uid].parts["main"]
        node.hardware.lose(node.hardware.uuids.index(part.gpu))
        in_use = 100 + HELD, str(node.hardware.memory + HELD_MEMORY)
        await until(lambda: told() == in_use)
        node.kill_agent()
        node.start_agent()
        # This one does not find the GPU. Long enough for whatever it has to say.
        await asyncio.sleep(10.0)
        assert told() == in_use
        await world.workload.delete(pod, force=True)
        await until(lambda: told() == (100, str(node.hardware.memory)))

    world.play(story())
