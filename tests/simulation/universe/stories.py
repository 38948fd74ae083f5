"""Short stories of a node, played without luck, with an agent that dies at the step it is told to, and a successor."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from aliquot_core.objects import Pod
from aliquot_kube.resources import PODS
from simulation.universe.life import Life
from simulation.universe.runtime import Plan
from simulation.universe.world import Scale, World

# Nothing but the story: no beats in between, all looked at often.
QUIET = Scale(gpus=1, heartbeat=600.0, collect=4.0, status_every=600.0, settle=90.0, look_every=1.0)
SUCCESSOR_AFTER = 0.3
STORY_ENDS_WITHIN = 60.0
# A step that no story reaches.
NEVER = 10**9


class Stage:
    """A world without luck, an agent that dies when it is told to, and its successor."""

    def __init__(self, story: Story, *, death: int) -> None:
        again = f"ALIQUOT_STEP={death} pytest tests/simulation/test_every_step.py -k {story.__name__}"
        self.world = World(1, msgspec.structs.replace(QUIET, again=again))
        self._story = story
        self._death = death
        self._plans: dict[str, Plan] = {}
        self.world.workload.plan_of = self._plan_of  # type: ignore[method-assign]
        self.died = False

    def play(self) -> None:
        """Play the story with one death in it."""
        self.world.play(self._play())

    async def _play(self) -> None:
        world = self.world
        await world.furnish()
        keeping = world.loop.spawn(self._keep_agent(world.node.start_agent()))
        await self._story(self)
        await world.until_well(keeping, within=QUIET.settle)
        keeping.cancel()

    async def _keep_agent(self, first: Life) -> None:
        await first.died
        self.died = True
        await asyncio.sleep(SUCCESSOR_AFTER)
        await self.world.node.start_agent().died

    def doom(self) -> None:
        """From here on the steps are counted."""
        assert self.world.node.life is not None
        self.world.node.life.doom(self._death)

    async def offered(self) -> None:
        """Wait until the node says that it is ready for pods."""
        await self._until(lambda: not self.world.shortcomings(), often=0.1)
        # The count of ids comes with the kubelet's next status, which this story does not wait for.
        await self.world.node.kubelet.tell_node_once()

    async def pod(self, name: str, *, inits: list[Any] | None = None, apps: list[Any], plan: Plan | None = None) -> Pod:
        """Create a pod and have it placed."""
        spec = {"containers": apps, "initContainers": inits or [], "terminationGracePeriodSeconds": 1}
        pod: Pod = await self.world.api.create(PODS, {"metadata": {"name": name}, "spec": spec}, namespace="default")
        self._plans[pod.metadata.uid] = plan or Plan()
        assert await self.world.placer.place(pod)
        return pod

    async def until_runs(self, pod: Pod, container: str) -> None:
        """Wait until a container of it runs."""
        await self._until(lambda: container in self._running(pod))

    async def until_permitted(self, pod: Pod) -> None:
        """Wait until a container of it has its slice, and is yet to be made."""
        uid = pod.metadata.uid.encode()
        await self._until(lambda: any(uid in content for content in self.world.node.disk.files.values()), often=0.001)

    async def until_gone(self, pod: Pod) -> None:
        """Wait until none of it runs."""
        await self._until(lambda: not self._running(pod))

    def _running(self, pod: Pod) -> set[str]:
        return {one.container for one in self.world.node.runtime.running.values() if one.uid == pod.metadata.uid}

    async def _until(self, holds: Callable[[], bool], *, often: float = 0.05) -> None:
        async with asyncio.timeout(STORY_ENDS_WITHIN):
            while not holds():  # noqa: ASYNC110 - what is waited for has no event of its own, and time costs nothing
                await asyncio.sleep(often)

    def _plan_of(self, uid: str, container: str) -> Plan:
        return Plan(seconds=0.5) if container.startswith("init") else self._plans[uid]

    def asks(self, name: str, percent: int, memory: int, **more: Any) -> dict[str, Any]:
        """A container that asks for a slice."""
        limits = {self.world.names.compute: str(percent), self.world.names.memory: str(memory)}
        return {"name": name, "image": "x", "resources": {"limits": limits}, **more}


Story = Callable[[Stage], Awaitable[None]]


async def a_pod_starts(stage: Stage) -> None:
    """Between Allocate and the last PreStart of a pod with an init container, a sidecar and two app containers."""
    await stage.offered()
    stage.doom()
    pod = await stage.pod(
        "whole",
        inits=[stage.asks("init", 30, 8_000), stage.asks("side", 5, 500, restartPolicy="Always")],
        apps=[stage.asks("main", 30, 16_000), stage.asks("other", 10, 1_000)],
    )
    for container in ("side", "main", "other"):
        await stage.until_runs(pod, container)


async def an_agent_starts(stage: Stage) -> None:
    """From exec to ready, while a pod waits for its start."""
    stage.doom()
    await stage.offered()
    pod = await stage.pod("waiting", inits=[stage.asks("init", 100, 600)], apps=[stage.asks("main", 100, 900)])
    await stage.until_runs(pod, "main")


async def a_slice_changes_hands(stage: Stage) -> None:
    """A pod is deleted by force while its process lives on; whoever gets its slice starts only after that."""
    await stage.offered()
    first = await stage.pod("first", apps=[stage.asks("main", 60, 20_000)], plan=Plan(on_term=None, after_kill=2.0))
    await stage.until_runs(first, "main")
    stage.doom()
    await stage.world.workload.delete(first, force=True)
    second = await stage.pod("second", apps=[stage.asks("main", 60, 20_000)])
    await stage.until_gone(first)
    await stage.until_runs(second, "main")


async def a_pod_is_gone_while_it_starts(stage: Stage) -> None:
    """A pod is deleted by force between PreStart and its process, which comes all the same, and is then ended."""
    await stage.offered()
    first = await stage.pod("first", apps=[stage.asks("main", 60, 20_000)], plan=Plan(on_term=None))
    await stage.until_permitted(first)
    stage.doom()
    await stage.world.workload.delete(first, force=True)
    second = await stage.pod("second", apps=[stage.asks("main", 60, 20_000)])
    await stage.until_runs(first, "main")
    await stage.until_gone(first)
    await stage.until_runs(second, "main")


async def specs_are_collected(stage: Stage) -> None:
    """The specs of a pod that is gone go, those of its neighbour stay."""
    await stage.offered()
    stays = await stage.pod("stays", apps=[stage.asks("main", 20, 2_000)])
    goes = await stage.pod("goes", inits=[stage.asks("init", 20, 600)], apps=[stage.asks("main", 20, 2_000)])
    for pod in (stays, goes):
        await stage.until_runs(pod, "main")
    stage.doom()
    await stage.world.workload.delete(goes, force=False)
    await stage.until_gone(goes)


STORIES = [
    a_pod_starts,
    an_agent_starts,
    a_slice_changes_hands,
    a_pod_is_gone_while_it_starts,
    specs_are_collected,
]
