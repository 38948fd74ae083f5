"""What goes wrong while an owner gets back what it lent, beside the leader's death: at each step, or with it.

Borrowers hold all GPUs, and another one waits who would take whatever stands free. A victim does not listen, or
outlives even its killing; a budget keeps it; the owner's pod is deleted meanwhile; a node is lost. `ALIQUOT_STEP=17`
plays that step alone, `ALIQUOT_STRIDE=1` each of them.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections import Counter
from typing import Any

import msgspec
import pytest

from aliquot_core.objects import Pod
from aliquot_kube.resources import PODS
from simulation.universe.doomed import Doomed, quiet
from simulation.universe.evictions import Evictions
from simulation.universe.node import SimNode
from simulation.universe.replica import SimReplica
from simulation.universe.runtime import Plan

# A story takes a tenth of a second of CPU or two, and has some hundred steps to some thousand.
STRIDE = int(os.environ.get("ALIQUOT_STRIDE", "0"))
QUIET = quiet("test_faults_of_a_reclaim.py")
OWNER, BORROWER = "owner", "borrower"
GRACE = 5
# A victim is given up a minute after its time is over.
GIVEN_UP = 60.0


class Reclaimed(Doomed):
    """Two GPUs on a node, both borrowed; the owner of one of them comes, and so does one more who borrows."""

    scale = msgspec.structs.replace(QUIET, gpus=2)
    guarantee = 100
    # Every so manieth step is tried.
    stride = 19
    grace = GRACE

    def __init__(self, *, death: int, evictions: Evictions) -> None:
        super().__init__(scale=self.scale, death=death)
        self.evictions = evictions
        # Whether somebody was asked to go when it was struck.
        self.was_asked = False
        # A node that is cut off.
        self.lost = ""
        self._plans: dict[str, Plan] = {}
        self.town.workload.plan_of = self._plan_of  # type: ignore[method-assign]

    def _plan_of(self, uid: str, container: str) -> Plan:
        del container
        return self._plans.get(uid, Plan())

    async def furnish(self) -> None:
        """Two queues, each with a namespace of its own."""
        await super().furnish()
        await self.open_queues({OWNER: {"compute": {"guarantee": self.guarantee}}, BORROWER: {}})

    async def before(self) -> None:
        """One seconds after the other, so that it is plain who has run for less and goes first."""
        for number in range(2):
            await asyncio.sleep(2.0)
            await self._submit(f"b{number}", BORROWER)
            await self.until(lambda many=number + 1: self.town.starts == many)  # type: ignore[misc]

    async def begin(self) -> None:
        """The owner, and one who would be next."""
        await self._submit("o", OWNER)
        await self._submit("late", BORROWER)

    async def after_death(self) -> None:
        """Look how far it came."""
        self.was_asked = bool(self.gone())

    def is_over(self) -> bool:
        """It runs where it was let in."""
        return self.is_bound("o")

    async def _submit(self, name: str, namespace: str, **meta: Any) -> None:
        asked = self.asking(name, 100, 9000, **meta)
        asked["spec"]["terminationGracePeriodSeconds"] = self.grace
        made = await self.town.api.create(PODS, asked, namespace=namespace)
        self._plans[made.metadata.uid] = self.plan(name)

    def plan(self, name: str) -> Plan:
        """How a pod takes it that it has to go."""
        del name
        return Plan()

    def pod(self, name: str) -> Pod | None:
        """As it is now."""
        return next((pod for pod in self.town.api.pods() if pod.metadata.name == name), None)

    def is_bound(self, name: str) -> bool:
        """Whether it is there and has a node."""
        return bool((pod := self.pod(name)) and pod.spec.node_name)

    def goes(self, name: str) -> bool:
        """Whether it was asked to go, by the API server's word."""
        return (pod := self.pod(name)) is None or bool(pod.metadata.deletion_timestamp)

    def gone(self) -> set[str]:
        """Those of the borrowers who were asked to go."""
        return {name for name in ("b0", "b1") if self.goes(name)}

    async def holds(self, *names: str) -> None:
        """Wait until they are bound and all is well."""
        await self.until(lambda: all(map(self.is_bound, names)))
        await self.well()


class Deaf(Reclaimed):
    """Who has to go does not listen, and is killed when its grace is over."""

    stride = 61

    def plan(self, name: str) -> Plan:
        """Nobody listens."""
        del name
        return Plan(on_term=None)

    async def end(self, leader: SimReplica) -> None:
        """It is waited for; nobody else goes."""
        del leader
        await self.holds("o")
        assert self.gone() == {"b1"}


class Undying(Reclaimed):
    """Who has to go outlives even that: it hangs in its driver, and its node can't help."""

    stride = 463

    def plan(self, name: str) -> Plan:
        """The one who goes first."""
        return Plan(on_term=None, after_kill=3 * GIVEN_UP) if name == "b1" else Plan()

    async def end(self, leader: SimReplica) -> None:
        """Another goes a minute later, once; the room of the first is nobody's until it is dead."""
        del leader
        await self.holds("o")
        assert self.gone() == {"b0", "b1"}
        assert self.pod("b1"), "it hangs still"
        assert not self.is_bound("late"), "nobody is bound where it hangs"
        self.town.nodes[0].runtime.kill_all()
        await self.holds("late")


class Kept(Reclaimed):
    """A budget keeps whoever would be the lesser harm; what the budget says of itself is older than that."""

    async def begin(self) -> None:
        """From now on."""
        self.evictions.kept = {"b1"}
        await super().begin()

    async def end(self, leader: SimReplica) -> None:
        """The other one goes."""
        del leader
        await self.holds("o")
        assert self.gone() == {"b0"}


class Deleted(Reclaimed):
    """Nobody dies, but the owner's pod is deleted at the step."""

    def strike(self, leader: SimReplica) -> None:
        """By its user."""
        del leader
        pod = self.pod("o")
        assert pod
        self.town.loop.spawn(self.town.workload.delete(pod, force=False))

    async def end(self, leader: SimReplica) -> None:
        """Who was asked by then goes, and what it leaves is for whoever is next; nobody else is asked."""
        del leader
        if not self.died:
            return
        await self.until(lambda: self.pod("o") is None)
        await self.well()
        left = self.gone()
        if left:
            await self.holds("late")
        # Long enough for anybody to be asked who still is to be.
        await self.until(self._later(10.0))
        assert self.gone() == left
        assert left <= {"b1"}

    def _later(self, seconds: float) -> Any:
        end = self.town.clock.monotonic() + seconds
        return lambda: self.town.clock.monotonic() >= end


class NodeLost(Deleted):
    """Two nodes of one GPU, both wanted back by a pair that starts together; at the step one of them is cut off.

    Who lies there takes its time to go, so that most steps are in the middle.
    """

    scale = msgspec.structs.replace(QUIET, nodes=2, gpus=1)
    guarantee = 200
    grace = 60
    stride = 401

    def plan(self, name: str) -> Plan:
        """It goes long after its node is taken for lost."""
        return Plan(on_term=40.0) if name == "b1" else Plan()

    async def begin(self) -> None:
        """The pair, and one who would be next."""
        there = self.pod("b1")
        assert there
        self.lost = there.spec.node_name
        names = self.town.names
        for name in ("o", "o2"):
            meta = {"labels": {names.group: "pair"}, "annotations": {names.of("group-size"): "2"}}
            await self._submit(name, OWNER, **meta)
        await self._submit("late", BORROWER)

    def is_over(self) -> bool:
        """Both run."""
        return self.is_bound("o") and self.is_bound("o2")

    def strike(self, leader: SimReplica) -> None:
        """Its heart-beats end."""
        del leader
        self._where(self.lost).kill_agent()

    def _where(self, name: str) -> SimNode:
        return next(node for node in self.town.nodes if node.name == name)

    async def end(self, leader: SimReplica) -> None:
        """Nobody more is asked while it is out; when it is back, the pair gets both nodes."""
        if not self.died:
            return
        reign = leader.reign
        assert reign
        await self.until(lambda: bool(reign.picture.nodes[self.lost].out) or self.is_over())
        left = self.gone()
        await self.until(self._later(15.0))
        assert self.gone() == left
        self._where(self.lost).start_agent()
        await self.holds("o", "o2")


class Torn(Reclaimed):
    """A pair that runs whole or not at all goes; the owner's pod is deleted as the leader dies."""

    # All that matters are some five steps in a row.
    stride = 4

    async def before(self) -> None:
        """The pair holds both GPUs."""
        names = self.town.names
        for name in ("b0", "b1"):
            meta = {"labels": {names.group: "pair"}, "annotations": {names.of("group-size"): "2"}}
            await self._submit(name, BORROWER, **meta)
        await self.until(lambda: self.town.starts == 2)

    def strike(self, leader: SimReplica) -> None:
        """Nobody who waits says any more why who is gone went."""
        leader.kill()
        if pod := self.pod("o"):
            self.town.loop.spawn(self.town.workload.delete(pod, force=True))

    async def end(self, leader: SimReplica) -> None:
        """All of the pair go, or nobody does; what they leave is for who waits."""
        del leader
        if not self.died:
            return
        await self.until(lambda: self.pod("o") is None)
        await self.until(lambda: self.gone() in (set(), {"b0", "b1"}) and (not self.gone() or self.is_bound("late")))
        await self.well()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("story", [Deaf, Undying, Kept, Deleted, NodeLost, Torn])
def test_nobody_goes_twice_and_nothing_is_lost(story: type[Reclaimed], evictions: Evictions) -> None:
    """Whoever leads in the end, and whatever happens at whichever step."""
    first = int(os.environ.get("ALIQUOT_STEP", "1"))
    asked = set()
    for death in itertools.count(first, STRIDE or story.stride):
        evictions.clear()
        told = story(death=death, evictions=evictions)
        died = told.dies()
        assert set(Counter(evictions.taken).values()) <= {1}, (death, evictions.taken)
        if not died or "ALIQUOT_STEP" in os.environ:
            break
        asked.add(told.was_asked)
    assert first > 1 or asked == {False, True}, (death, asked)


# As often as the leader looks who has to go; and so that an owner comes at any instant between two looks.
A_LOOK = 1.0
MOMENTS = (0.0, 0.3, 0.6, 0.95)


class Undisturbed(Deaf):
    """Nothing goes wrong: two GPUs are borrowed, and their owner wants them in quarters and halves."""

    guarantee = 200
    asks = (50, 25, 25, 50, 50)

    def __init__(self, *, wait: float, evictions: Evictions) -> None:
        super().__init__(death=sys.maxsize, evictions=evictions)
        self._wait = wait
        self._came = 0.0

    async def begin(self) -> None:
        """All at once, at some moment."""
        await asyncio.sleep(self._wait)
        self._came = asyncio.get_running_loop().time()
        for number, compute in enumerate(self.asks):
            asked = self.asking(f"o{number}", compute, 9000)
            await self.town.api.create(PODS, asked, namespace=OWNER)

    def is_over(self) -> bool:
        """All of them are placed."""
        return all(self.is_bound(f"o{number}") for number in range(len(self.asks)))

    async def end(self, leader: SimReplica) -> None:
        """Those who do not listen had all of their grace."""
        del leader
        took = asyncio.get_running_loop().time() - self._came
        assert self.grace <= took <= self.grace + A_LOOK, took
        assert self.gone() == {"b0", "b1"}


@pytest.mark.parametrize("wait", MOMENTS)
def test_where_nothing_goes_wrong_an_owner_waits_for_the_grace_and_a_look(wait: float, evictions: Evictions) -> None:
    """From its coming to its binding, with all that writes and watches take; each borrower goes once."""
    assert not Undisturbed(wait=wait, evictions=evictions).dies()
    assert Counter(name for name, _ in evictions.taken) == {"b0": 1, "b1": 1}
