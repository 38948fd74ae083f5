"""A quiet town whose leader dies at one chosen step of a story, and what the other replica makes of it.

Or something else happens at that step (`strike`). A step is a turn of any of the leader's tasks, or a request of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from aliquot_core.objects import Node
from aliquot_kube.resources import Resource, queues_of
from aliquot_standalone.installed import as_installed
from simulation.universe.replica import SimReplica
from simulation.universe.runtime import Plan
from simulation.universe.town import Town, TownScale
from simulation.universe.world import NAMESPACES

DEFINITIONS = Resource(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    type=Node,
    namespaced=False,
)
PRIORITIES = Resource(
    group="scheduling.k8s.io", version="v1", plural="priorityclasses", kind="PriorityClass", type=Node, namespaced=False
)
# A Deployment starts it anew; it follows then.
RESTART = 3.0
STORY_ENDS_WITHIN = 120.0


def definition_of_queues() -> dict[str, Any]:
    """As it is installed."""
    definition = next(one for one in as_installed() if one["metadata"]["name"].startswith("queues."))
    return {key: definition[key] for key in ("metadata", "spec")}


def quiet(test: str) -> TownScale:
    """One node with one GPU, and no faults but the leader's death; `test` is the file that shows it."""
    return TownScale(
        again=f"ALIQUOT_STEP=<step> pytest tests/simulation/{test}",
        nodes=1,
        gpus=1,
        deadly=False,
        heartbeat=5.0,
        status_every=5.0,
        settle=90.0,
        look_every=1.0,
    )


class Doomed:
    """One story; whoever tells it says how it begins, how far the leader may die, and what must be in the end."""

    def __init__(self, *, scale: TownScale, death: int) -> None:
        self.town = Town(1, scale)
        self.town.workload.plan_of = lambda *_: Plan()  # type: ignore[method-assign]
        self._death = death
        # Whether it was struck before the story was over.
        self.died = False

    async def furnish(self) -> None:
        """Put in what there is before anybody starts."""
        await self.town.furnish()

    async def open_queues(self, specs: Mapping[str, Mapping[str, Any]]) -> None:
        """Queues of these names, each with a namespace of its own."""
        town = self.town
        await town.api.create(DEFINITIONS, definition_of_queues())
        for name, spec in specs.items():
            queue = {"metadata": {"name": name}, "spec": {**spec, "namespaces": ["*"]}}
            await town.api.create(queues_of(town.names), queue)
            labels = {town.names.queue: name}
            await town.api.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})

    async def before(self) -> None:
        """What has come about before anybody dies."""

    async def begin(self) -> None:
        """What users do, and the leader is to see through."""
        raise NotImplementedError

    def is_over(self) -> bool:
        """Whether the leader has done what it may be killed in."""
        raise NotImplementedError

    def strike(self, leader: SimReplica) -> None:
        """What happens at the step."""
        leader.kill()

    async def end(self, leader: SimReplica) -> None:
        """See that all came to its good end; `leader` is who led in the beginning."""
        raise NotImplementedError

    def dies(self) -> bool:
        """Play it; whether the leader died before it had done its part."""
        self.town.play(self._play())
        return self.died

    async def _play(self) -> None:
        town = self.town
        await self.furnish()
        for node in town.nodes:
            node.start_agent()
        for replica in town.replicas:
            replica.start()
        await self.until(lambda: not town.shortcomings())
        await self.before()
        leader = self.leader
        assert leader.life is not None
        leader.life.doom(self._death, struck=lambda: self._struck(leader))
        await self.begin()
        await self.until(lambda: self.is_over() or self.died)
        if self.died:
            await self.after_death()
        else:
            leader.life.spare()
        if not leader.alive:
            await asyncio.sleep(RESTART)
            leader.start()
        await self.end(leader)

    def _struck(self, leader: SimReplica) -> None:
        self.died = True
        self.strike(leader)

    async def after_death(self) -> None:
        """What happens before another leads."""

    @property
    def leader(self) -> SimReplica:
        """Who leads now."""
        return next(replica for replica in self.town.replicas if replica.leads)

    async def well(self) -> None:
        """Wait until all is well."""
        town = self.town
        await town.until_well(town.loop.spawn(town.workload.place_waiting()), within=town.scale.settle)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds, unless something breaks."""
        async with asyncio.timeout(STORY_ENDS_WITHIN):
            while not holds():
                self.town.raise_broken()
                await asyncio.sleep(0.05)

    def asking(self, name: str, compute: int, memory: int, **meta: Any) -> dict[str, Any]:
        """A pod behind our gate."""
        names = self.town.names
        limits = {names.compute: str(compute), names.memory: str(memory)}
        container = {"name": "main", "image": "x", "resources": {"limits": limits}}
        spec = {"containers": [container], "schedulingGates": [{"name": names.gate}]}
        return {"metadata": {"name": name, **meta}, "spec": spec}
