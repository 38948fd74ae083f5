"""The leader is killed at steps all over a move: from the coming of a pod that wants a card whole to where all lie.

Two small pods lie on a card each; one of them goes, once, and is made anew. Whoever leads in the end, the one that
waited has its card and both small ones lie beside each other. `ALIQUOT_STEP=17` plays that death alone.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import Counter
from typing import Any

import msgspec
import pytest

from aliquot_core.grant import decode_grant
from aliquot_kube.patches import merge_patch
from aliquot_kube.resources import CONFIG_MAPS, NODES, PODS
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.reclaim import consolidation, draining, helping, residents
from simulation.universe.doomed import Doomed, quiet
from simulation.universe.evictions import Evictions

# A story takes a tenth of a second of CPU and has some hundred steps: those between are for hunts (`ALIQUOT_STRIDE=1`).
STRIDE = int(os.environ.get("ALIQUOT_STRIDE", "0"))
FEWEST_STORIES = 5
MINE = "mine"
# Another leader leads by then, and knows all.
LATE = 30.0
JOBS = ("left", "right")
SCALE = msgspec.structs.replace(quiet("test_every_step_of_a_move.py"), gpus=2)
# One every five seconds, and it grows from nothing.
MOVES = QueueSettings(moves_per_hour=720)


class Moved(Doomed):
    """Somebody wants a card whole, of which two are lightly used."""

    # Every so manieth step is tried.
    stride = 11

    def __init__(self, *, death: int) -> None:
        super().__init__(scale=SCALE, death=death)
        for replica in self.town.replicas:
            replica.queues = MOVES
        self._made = Counter[str]()
        # What is there of each job; what names an owner that is not there would be taken away.
        self._owners: dict[str, str] = {}
        # A GPU that is degraded.
        self.bad = ""
        self._controller: asyncio.Task[None] | None = None
        # How far it had come when the leader died: who was asked to go, and who lies where it is to lie in the end.
        self.came = (False, False)

    async def furnish(self) -> None:
        """One queue for all."""
        await super().furnish()
        await self.open_queues({MINE: {}})
        for job in JOBS:
            made = await self.town.api.create(CONFIG_MAPS, {"metadata": {"name": job}}, namespace=MINE)
            self._owners[job] = made.metadata.uid

    async def before(self) -> None:
        """Two jobs run, each on a card of its own."""
        await self._make_missing()
        await self.until(lambda: self.town.starts == len(JOBS))
        self._controller = self.town.loop.spawn(self._control())

    async def begin(self) -> None:
        """Who wants a card for itself."""
        await self.town.api.create(PODS, self.asking("whole", 100, 9000), namespace=MINE)

    def is_over(self) -> bool:
        """All lie somewhere."""
        bound = [pod.metadata.name for pod in self._pods() if pod.spec.node_name]
        return "whole" in bound and len(bound) == 1 + len(JOBS)

    async def after_death(self) -> None:
        """Look how far it came."""
        whole = next(pod for pod in self._pods() if pod.metadata.name == "whole")
        gone = self._made.total() > len(JOBS) or any(pod.metadata.deletion_timestamp for pod in self.town.api.pods())
        self.came = (gone, bool(whole.spec.node_name))

    async def end(self, leader: Any) -> None:
        """Nobody is left out; the controller had to make one pod anew, and no more."""
        del leader
        await self.until(lambda: self.is_over() and self.town.starts == len(JOBS) + 2)
        await self.well()
        assert self._made.total() == len(JOBS) + 1
        if self._controller is not None:
            self._controller.cancel()

    # --- whoever makes the jobs' pods --------------------------------------------------------------------------------
    async def _control(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            await self._make_missing()

    async def _make_missing(self) -> None:
        there = {pod.metadata.owner_references[0].name for pod in self._pods() if pod.metadata.owner_references}
        for job in sorted(set(JOBS) - there):
            uid = self._owners[job]
            owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": job, "uid": uid, "controller": True}
            notes = {self.town.names.of("placement"): "spread"}
            pod = self.asking(f"{job}-{self._made[job]}", 20, 2000, annotations=notes, ownerReferences=[owner])
            self._made[job] += 1
            await self.town.api.create(PODS, pod, namespace=MINE)

    def _pods(self) -> list[Any]:
        return [pod for pod in self.town.api.pods() if not pod.metadata.deletion_timestamp]


class Contested(Moved):
    """Somebody else comes who would have room where the one is to lie that is moved, before that is made anew.

    Whoever leads keeps that room. The leader dies before the one has its card for whom it is.
    """

    def is_over(self) -> bool:
        """The one that waited has its card."""
        return self._pod("whole") is not None

    async def _make_missing(self) -> None:
        if self._made.total() == len(JOBS) and len(self._jobs()) < len(JOBS):
            if not any(pod.metadata.name == "rival" for pod in self._pods()):
                await self.town.api.create(PODS, self.asking("rival", 70, 2000), namespace=MINE)
            if not self.is_over():
                return
        await super()._make_missing()

    async def after_death(self) -> None:
        """Look how far it came."""
        self.came = (len(self._jobs()) < len(JOBS), self.is_over())

    async def end(self, leader: Any) -> None:
        """Both jobs lie on one card, and the other one waits; unless the one had its card when the leader died."""
        del leader
        await self.until(lambda: self.is_over() and self._made.total() == len(JOBS) + 1)
        if not self.came[1]:
            await self.until(lambda: len(self._jobs()) == len(JOBS))
            assert self._pod("rival") is None
        if self._controller is not None:
            self._controller.cancel()

    def _jobs(self) -> list[Any]:
        return [pod for pod in self._pods() if pod.spec.node_name and pod.metadata.owner_references]

    def _pod(self, name: str) -> Any:
        """It, once it is bound."""
        return next((pod for pod in self._pods() if pod.metadata.name == name and pod.spec.node_name), None)


class Drained(Moved):
    """An operator says of the GPU on which one of them lies that it is degraded; nobody wants a card whole."""

    # The moment between is short.
    stride = 11

    async def begin(self) -> None:
        """The mark, and which GPU that is."""
        (pod,) = (one for one in self._pods() if one.metadata.name == "right-0")
        ((_, part),) = decode_grant(pod.metadata.annotations[self.town.names.grant]).slices()
        self.bad = part.gpu
        await self._mark(self.bad)

    async def _mark(self, gpus: str | None) -> None:
        patch = merge_patch({"metadata": {"annotations": {self.town.names.degraded_gpus: gpus}}})
        await self.town.api.client.patch(NODES, name=self.town.nodes[0].name, patch=patch)

    def is_over(self) -> bool:
        """Both lie on the other GPU."""
        grants = [pod.metadata.annotations.get(self.town.names.grant, "") for pod in self._pods()]
        return len(grants) == len(JOBS) and all(grant and self.bad not in grant for grant in grants)

    async def after_death(self) -> None:
        """Look how far it came."""
        gone = self._made.total() > len(JOBS) or any(pod.metadata.deletion_timestamp for pod in self.town.api.pods())
        self.came = (gone, self.is_over())

    async def end(self, leader: Any) -> None:
        """Once that is so the GPU is repaired, and nobody moves back."""
        del leader
        await self.until(lambda: self.is_over() and self.town.starts == len(JOBS) + 1)
        await self._mark(None)
        await self.well()
        assert self._made.total() == len(JOBS) + 1
        assert self.is_over()
        if self._controller is not None:
            self._controller.cancel()


class DrainedLate(Drained):
    """Its maker makes another only some time after it is gone; somebody comes meanwhile who would have room there."""

    # It takes a whole term of leading more than the others.
    stride = 89

    async def begin(self) -> None:
        """One that is made later than any leader needs to begin."""
        self._gone_at: float | None = None
        await super().begin()

    async def _make_missing(self) -> None:
        if self._made.total() < len(JOBS) or self._all_there():
            await super()._make_missing()
            return
        now = self.town.clock.monotonic()
        if self._gone_at is None:
            self._gone_at = now
            # What is left of the good GPU, and more.
            await self.town.api.create(PODS, self.asking("rival", 70, 2000), namespace=MINE)
        if now >= self._gone_at + LATE:
            await super()._make_missing()

    def _all_there(self) -> bool:
        return len([pod for pod in self.town.api.pods() if pod.metadata.owner_references]) == len(JOBS)

    def is_over(self) -> bool:
        """Both jobs lie on the other GPU; whoever else came may lie anywhere."""
        grants = [pod.metadata.annotations.get(self.town.names.grant, "") for pod in self._jobs()]
        return len(grants) == len(JOBS) and all(grant and self.bad not in grant for grant in grants)

    def _jobs(self) -> list[Any]:
        return [pod for pod in self._pods() if pod.metadata.owner_references]

    async def after_death(self) -> None:
        """Look how far it came."""
        self.came = (self._made.total() >= len(JOBS) and not self._all_there(), self.is_over())

    async def end(self, leader: Any) -> None:
        """Its successor has the room that was kept for it, and not whoever came before."""
        del leader
        await self.until(self.is_over)
        assert self._made.total() == len(JOBS) + 1
        if self._controller is not None:
            self._controller.cancel()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("story", [Moved, Contested, Drained, DrainedLate])
def test_a_leader_s_death_loses_nobody_who_is_moved(
    story: type[Moved], evictions: Evictions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pod is asked to go, once, whenever the leader dies; and a new leader moves no more than its budget has."""
    # Else a story would take ten minutes until somebody may be moved, and until it pays.
    monkeypatch.setattr(consolidation, "_LEAST_RUN", 2.0)
    for looks in (draining, helping):
        monkeypatch.setattr(looks, "_COOLDOWN", 1.0)
    monkeypatch.setattr(residents, "_RESTART", 2)
    first = int(os.environ.get("ALIQUOT_STEP", "1"))
    came = set()
    for death in itertools.count(first, stride := STRIDE or story.stride):
        evictions.clear()
        told = story(death=death)
        died = told.dies()
        assert len(evictions.tried) == 1, (death, evictions.tried)
        if not died or "ALIQUOT_STEP" in os.environ:
            break
        came.add(told.came)
    assert first > 1 or (death > FEWEST_STORIES * stride and {(False, False), (True, False)} <= came), (death, came)
