"""Days of pods coming and going: what the agent remembers does not grow with what is gone. `make soak` has a week."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator

import msgspec
import pytest

from aliquot_agent.health import gpu_watch, sick_notes
from aliquot_agent.publishing import life_sign, node_publisher
from aliquot_agent.starting import complaints, offer
from aliquot_deviceplugin.endpoint import given_names
from simulation.seeds import SOAK
from simulation.universe.workload import Habits
from simulation.universe.world import Scale, World

DAY = 86_400.0
# On the evening of the first all is warm.
EARLY, DAYS = (2, 7) if SOAK else (1, 3)
# The end of each day, without pods.
REST = 3_600.0
# One agent lives all these days: a pod each few minutes, a fault each two hours. Few of the pods are refused, since a
# pod that is refused asks again all the time, and time is what days of virtual time cost.
SCALE = Scale(
    again="pytest tests/simulation/test_a_week.py",
    faults_every=7_200.0,
    deadly=False,
    gpus=2,
    heartbeat=300.0,
    collect=600.0,
    sample=600.0,
    bookmark=600.0,
    status_every=600.0,
    look_every=3_600.0,
    habits=Habits(
        between_pods=900.0, most_pods=10, work=1_800.0, place_every=120.0, bad=0.01, overcommitted=0.0, tampered=0.01
    ),
)
# What idle parts look after every 10 or 30 s, they look after every 10 minutes: events wake them all the same.
PACES = {
    (complaints, "LOOK_EVERY"),
    (gpu_watch, "LOOK_AFRESH"),
    (life_sign, "LOOK_AGAIN"),
    (node_publisher, "LOOK_AGAIN"),
    (offer, "LOOK_AGAIN"),
    (sick_notes, "LOOK_AGAIN"),
}
# A pod that has gone and leaves a dictionary's entry and its UID leaves some 200 bytes; some 350 go between the looks.
ALLOWED_KIB = 15.0
# Where what the agent remembers is made; but a copy of the kubelet's record is as large as the kubelet leaves it.
OURS = [
    *(tracemalloc.Filter(True, f"*/aliquot_{part}/*") for part in ("agent", "core", "deviceplugin", "kube")),
    tracemalloc.Filter(False, "*/checkpoint.py"),
]


class Weight(msgspec.Struct, frozen=True, kw_only=True):
    """How much an agent has on its mind."""

    kib: float
    tasks: int


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Allocations are traced, the idle are slow, and the endpoint's memory, which is bounded, is full early."""
    for module, pace in PACES:
        monkeypatch.setattr(module, pace, 600.0)
    monkeypatch.setattr(given_names, "MOST_SETS", 32)
    tracemalloc.start()
    yield
    tracemalloc.stop()


class Week:
    """One agent through all days; at the end of some it is alone on the node, and weighed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.weights: dict[int, Weight] = {}

    async def live(self, *, weighed: tuple[int, ...]) -> None:
        """Live all of them."""
        world = self.world
        await world.furnish()
        life = world.node.start_agent()
        faults = world.loop.spawn(world.faults.run(every=world.scale.faults_every))
        for day in range(1, DAYS + 1):
            users = world.loop.spawn(world.workload.run())
            await world.watch([users, faults], DAY - REST)
            users.cancel()
            await self._empty(faults)
            if day in weighed:
                self.weights[day] = self._weigh()
        faults.cancel()
        assert world.node.life is life, "the agent did not live through all days"

    async def _empty(self, faults: asyncio.Task[None]) -> None:
        """All pods go, and there is time to forget them."""
        for pod in self.world.api.pods():
            await self.world.workload.delete(pod, force=False)
        await self.world.watch([faults], REST)
        assert not self.world.api.pods()

    def _weigh(self) -> Weight:
        """Count what is left when all garbage is gone."""
        self.world.forget_gone()
        self.world.forget_gone()
        gc.collect()
        kept = tracemalloc.take_snapshot().filter_traces(OURS).statistics("filename")
        assert self.world.node.life is not None
        return Weight(kib=sum(one.size for one in kept) / 1024, tasks=len(self.world.node.life.tasks))


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("traced")
def test_after_days_the_agent_remembers_no_more_than_early() -> None:
    """Pods, Events, GPUs and connections come and go; what they leave behind goes with them."""
    world = World(1, SCALE)
    week = Week(world)
    world.play(week.live(weighed=(EARLY, DAYS)))
    early, late = week.weights.values()
    assert late.kib < early.kib + ALLOWED_KIB, f"{early.kib:.0f} KiB early, {late.kib:.0f} on the last day"
    # Some watch may just be opened anew; a task for each who came would be hundreds.
    assert late.tasks <= early.tasks + 5, f"{early.tasks} tasks early, {late.tasks} on the last day"
    assert world.judge.starts > 400, f"only {world.judge.starts} containers started"
