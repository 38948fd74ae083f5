"""Queues whose pods are shown to a cluster autoscaler: gates lifted without a card, nodes that join, none that come.

A pod that is shown holds its queue's quota until a node joins for it, or its time is over; whoever leads by then. In a
story the leader is killed at steps all over it (`ALIQUOT_STEP=17` plays that one alone, `ALIQUOT_STRIDE=1` each of
them); in towns everything breaks, by the seed, and a node joins in the middle of it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Coroutine, Iterator
from math import inf
from typing import Any

import msgspec
import pytest

from aliquot_core.objects import Pod
from aliquot_kube.resources import PODS, queues_of
from aliquot_standalone.apiserver.store import Change
from simulation.seeds import SOAK, chosen
from simulation.universe.chance import Chance
from simulation.universe.doomed import DEFINITIONS, Doomed, definition_of_queues, quiet
from simulation.universe.holders import asked_in_all
from simulation.universe.judge import BrokenError
from simulation.universe.replica import SimReplica
from simulation.universe.town import HONEST, Seat, Town, TownScale
from simulation.universe.workload import Workload

STRIDE = int(os.environ.get("ALIQUOT_STRIDE", "0"))
QUIET = msgspec.structs.replace(quiet("test_queues_that_grow.py"), nodes=2)
GROWS = "grows"
MINUTE = 60.0
# Within so many seconds it is written on a pod that it is shown.
WRITTEN = 5.0
LIMIT = 200


# --- a story, with the leader's death at a step -----------------------------------------------------------------------
class Shown(Doomed):
    """One GPU is in use, and the queue may have another: of two pods that want it the older one is shown."""

    # Every so manieth step is tried.
    stride = 29

    def __init__(self, *, death: int) -> None:
        super().__init__(scale=QUIET, death=death)
        self.late = self.town.hold_back()
        self.since = 0.0
        # By the clock on the wall, when the API server first said so of the first one.
        self.shown_at = inf

    async def furnish(self) -> None:
        """A queue that grows, for a minute at a time."""
        await super().furnish()
        quota = {"compute": {"limit": LIMIT}}
        await self.open_queues({GROWS: {**quota, "autoscale": True, "autoscaleMinutes": 1}})

    async def before(self) -> None:
        """All there is is in use."""
        await self._submit("runs")
        await self.until(lambda: self.town.starts == 1)

    async def begin(self) -> None:
        """They come one after the other; each asks for all that the queue may have beside."""
        await self._submit("first")
        await asyncio.sleep(1.0)
        # Another shape: after the first one's time its like are not shown for a while.
        await self._submit("second", memory=8000)
        self.since = self.town.clock.monotonic()

    def is_over(self) -> bool:
        """Long enough that the second would be shown, too, if the quota were not held."""
        if self.is_shown("first"):
            self.shown_at = min(self.shown_at, self.town.clock.wall())
        return self.is_shown("first") and self.town.clock.monotonic() > self.since + 10.0

    async def node_joins(self) -> None:
        """With an agent."""
        await self.town.join(self.late)
        self.late.node.start_agent()

    async def _submit(self, name: str, memory: int = 9000) -> None:
        await self.town.api.create(PODS, self.asking(name, 100, memory), namespace=GROWS)

    def pod(self, name: str) -> Pod:
        """As it is now."""
        return next(pod for pod in self.town.api.pods() if pod.metadata.name == name)

    def is_shown(self, name: str) -> bool:
        """Whether its gate is lifted though it has no room, and that is written on it."""
        pod = self.pod(name)
        noted = self.town.names.shown in pod.metadata.annotations
        return noted and not pod.spec.scheduling_gates and not pod.spec.node_name

    def holds_quota(self) -> list[str]:
        """Who is shown now, as the leader knows it; nobody as long as there is none."""
        reigns = [replica.reign for replica in self.town.replicas if replica.leads and replica.reign]
        shown = reigns[0].turns.register.showings.shown if reigns else set[str]()
        return [pod.metadata.name for pod in self.town.api.pods() if pod.metadata.uid in shown]

    async def is_held(self) -> None:
        """The first one holds the quota, and the second one waits behind its gate."""
        await self.until(lambda: self.is_shown("first") and self.holds_quota() == ["first"])
        assert self.pod("second").spec.scheduling_gates


class NodeJoins(Shown):
    """A node comes for it within the minute."""

    async def end(self, leader: SimReplica) -> None:
        """It is bound there; when it is gone the other one is, and no quota is left with anybody."""
        await self.is_held()
        await self.node_joins()
        await self.until(lambda: bool(self.pod("first").spec.node_name))
        assert self.pod("first").spec.node_name == self.late.node.name
        assert not self.pod("second").spec.node_name, f"the other has a node, the leader being {leader.name}"
        await self.town.workload.delete(self.pod("first"), force=False)
        await self.until(lambda: bool(self.pod("second").spec.node_name))
        await self.well()
        assert self.town.books.bound == 3


class NoNodeComes(Shown):
    """None does."""

    stride = 61

    async def end(self, leader: SimReplica) -> None:
        """Its quota is taken back after the minute, whoever leads by then, and shows the other; both wait still."""
        del leader
        await self.is_held()
        began = self._shown_at("first")
        # Whoever leads by now counts from then on.
        assert self.shown_at == inf or abs(self.shown_at - began) < WRITTEN, (self.shown_at, began)
        await self.until(lambda: self.holds_quota() == ["second"])
        late = self.town.clock.wall() - began - MINUTE
        # As long as nobody leads nobody is shown: a lease's length and a look, and the turns of pods that were let in.
        assert 0.0 <= late <= (MINUTE if self.died else 10.0), late
        await self.until(lambda: self.is_shown("second"))
        assert not self.pod("first").spec.node_name
        await self.node_joins()
        await self.until(lambda: any(self.pod(name).spec.node_name for name in ("first", "second")))
        await self.well()
        assert self.town.books.bound == 2, "the limit leaves room for one of them"

    def _shown_at(self, name: str) -> float:
        reign = self.leader.reign
        assert reign is not None
        clock, uid = self.leader.clock, self.pod(name).metadata.uid
        return reign.turns.register.showings.since(uid) + clock.wall() - clock.monotonic()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("story", [NodeJoins, NoNodeComes])
def test_who_is_shown_holds_its_quota_until_a_node_joins_or_its_time_is_over(story: type[Shown]) -> None:
    """Whenever the leader dies: its successor reads on the pods who is shown, and since when."""
    first, stride = int(os.environ.get("ALIQUOT_STEP", "1")), STRIDE or story.stride
    deaths = 0
    for death in itertools.count(first, stride):
        if not story(death=death).dies() or "ALIQUOT_STEP" in os.environ:
            break
        deaths += 1
    assert first > 1 or deaths >= 3, deaths


# --- towns, by the seed -----------------------------------------------------------------------------------------------
SPECS: dict[str, dict[str, Any]] = {
    GROWS: {"compute": {"limit": 300}, "autoscale": True, "autoscaleMinutes": 1},
    "stays": {"compute": {"limit": 200}},
}
AGAIN = "ALIQUOT_SEED={seed} pytest tests/simulation/test_queues_that_grow.py"
JOINS = 70.0


class QueuedWorkload(Workload):
    """Users of both queues."""

    def _shape(self, *, plain: bool) -> dict[str, Any]:
        spec = super()._shape(plain=plain)
        spec["meta"].setdefault("labels", {})[self._names.queue] = self._chance.choice((GROWS, GROWS, "stays"))
        return spec


class GrowingTown(Town):
    """Two nodes of two GPUs of which one joins later; whoever is shown is within its queue's limit."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, TownScale(seconds=150.0, again=AGAIN, habits=HONEST))
        self.workload = QueuedWorkload(
            names=self.names,
            api=self.api,
            placer=Seat(),
            chance=Chance(seed, "workload"),
            habits=self.scale.habits,
            deeds=self.deeds,
            trace=self.trace,
            gate=self.names.gate,
        )
        self.late = self.hold_back()
        self.shown: set[str] = set()
        self._pods: dict[str, Pod] = {}
        self._over_limit: BrokenError | None = None
        self.api.subscribe(self._stored)

    async def furnish(self) -> None:
        """And with queues."""
        await self.api.create(DEFINITIONS, definition_of_queues())
        for name, spec in SPECS.items():
            await self.api.create(
                queues_of(self.names), {"metadata": {"name": name}, "spec": {**spec, "namespaces": ["*"]}}
            )
        await super().furnish()

    def parts(self) -> Iterator[Coroutine[Any, Any, None]]:
        """And with a node that joins."""
        yield from super().parts()
        yield self._joins()

    async def _joins(self) -> None:
        await asyncio.sleep(JOINS)
        await self.join(self.late)
        late = self.late.faults
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(late.run(every=self.scale.faults_every))
            tasks.create_task(late.keep_agent())

    def _stored(self, table: str, change: Change) -> None:
        if table != PODS.plural:
            return
        pod = msgspec.json.decode(change.revision.raw, type=Pod)
        before = self._pods.pop(pod.metadata.uid, None)
        if change.type == "DELETED" or pod.ended:
            return
        self._pods[pod.metadata.uid] = pod
        if before and before.spec.scheduling_gates and not pod.spec.scheduling_gates:
            self._lifted(pod)

    def _lifted(self, pod: Pod) -> None:
        """By the API server's word: a leader knows of whom it has let in sooner than that, and of whose end later."""
        if self.names.shown not in pod.metadata.annotations:
            return
        self.shown.add(pod.metadata.uid)
        queue = pod.metadata.labels[self.names.queue]
        there = [one for one in self._pods.values() if one.spec.node_name and self._queue_of(one) == queue]
        used = sum(asked_in_all(one, self.names.compute) for one in (*there, pod))
        limit = SPECS[queue]["compute"]["limit"]
        if used > limit and not self.books.overcommitted:
            what = f"{pod.key} is shown by queue {queue}, which would use {used} of {limit}"
            self.trace(what)
            self._over_limit = self._over_limit or BrokenError(what)

    def _queue_of(self, pod: Pod) -> str:
        return pod.metadata.annotations.get(self.names.charged, "")

    def raise_broken(self) -> None:
        """And who was shown beyond a limit."""
        if self._over_limit:
            raise self._over_limit
        super().raise_broken()

    def shortcomings(self) -> list[str]:
        """Who waits though there is room may be over a limit."""
        return [one for one in super().shortcomings() if "waits though" not in one or not self._is_over_limit(one)]

    def _is_over_limit(self, said: str) -> bool:
        pod = next(one for one in self.api.pods() if said.startswith(f"{one.key} waits though"))
        queue = pod.metadata.labels[self.names.queue]
        there = [one for one in self._pods.values() if one.spec.node_name and self._queue_of(one) == queue]
        used = sum(asked_in_all(one, self.names.compute) for one in (*there, pod))
        return bool(used > SPECS[queue]["compute"]["limit"])


@pytest.mark.timeout(6 * 3600 if SOAK else 240)
def test_a_town_that_grows_survives_whatever_the_seed_brings() -> None:
    """Nobody is shown beyond a limit, and all who are within one are bound once a node has joined."""
    shown = 0
    for seed in chosen(0, each=4, soak=500):
        town = GrowingTown(seed)
        town.run()
        assert town.books.bound > 0, f"seed {seed} showed nothing: no pod was bound"
        shown += len(town.shown)
    assert shown, "no gate was lifted without a card"
