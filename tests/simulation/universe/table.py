"""A scenario of queues, as tables say it, lived through by the whole system: real centre and agents, simulated users.

Nobody listens when told to go. So it is the table that says who goes at once, and who is there until its time is over.
"""

from __future__ import annotations

import asyncio
import math
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from aliquot_core.instants import second_time
from aliquot_core.objects import Pod
from aliquot_kube.patches import merge_patch
from aliquot_kube.resources import CONFIG_MAPS, NODES, PODS, queues_of
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_standalone.apiserver.store import Change
from simulation.universe.doomed import PRIORITIES, Doomed
from simulation.universe.holders import asked_in_all
from simulation.universe.judge import WHOLE
from simulation.universe.replica import SimReplica
from simulation.universe.runtime import Plan
from simulation.universe.town import TownScale
from support.queue_scenarios import A_QUARTER_OF_AN_HOUR, Pods, Scenario, Step

# Cards of a simulated node have half the memory of those that the tables are written for.
SMALLER = 2
# Of each; a CUDA context needs that, rounded up.
LEAST = 600
SPARE = "node-2"
# As the tables have it: nobody is moved but where one of them says so, and then soon.
MOVES = QueueSettings(moves_per_hour=3_600)
# So long that those who ignore it are there through some steps, whatever happens in each.
GRACE = 250
# Whom a budget kept is left alone for a minute, and whether a move pays is looked at once in one; and a leader follows.
SOON = 240.0
# Who else would have to go is asked by then: those for whom nobody went are looked at every ten seconds.
QUIET = 12.0


class Table(Doomed):
    """One of them; what breaks meanwhile is for those to say who inherit it."""

    def __init__(self, scenario: Scenario, *, scale: TownScale) -> None:
        spare = {SPARE: scenario.spare} if scenario.spare else {}
        scale = msgspec.structs.replace(scale, gpus=4, nodes=1 + len(spare), gpus_of=spare)
        super().__init__(scale=scale, death=sys.maxsize)
        self.town.workload.plan_of = lambda *_: Plan(on_term=None)  # type: ignore[method-assign]
        for replica in self.town.replicas:
            replica.queues = MOVES
        self._scenario = scenario
        self._made = Counter[str]()
        # Who was asked to go (UIDs) since the step began, by queue; and who ever was, by the centre or by its user.
        self._asked: dict[str, str] = {}
        self._leaving: set[str] = set()
        # Whose processes end, whatever they are told; and of which queues all do that are asked to go.
        self._ending: set[str] = set()
        self._listening: set[str] = set()
        self.town.api.subscribe(self._stored)

    # --- how it goes -------------------------------------------------------------------------------------------------
    async def furnish(self) -> None:
        """Queues with a namespace each, and what gives priorities."""
        await super().furnish()
        await self.open_queues(self._scenario.queues)
        for value in sorted({pods.priority for step in self._scenario.steps for pods in step.submit} - {0}):
            await self.town.api.create(PRIORITIES, {"metadata": {"name": f"priority-{value}"}, "value": value})

    async def begin(self) -> None:
        """All of it is in the end of the story."""

    def is_over(self) -> bool:
        """No step of the leader's is chosen: what breaks does so when something is written."""
        return True

    async def end(self, leader: SimReplica) -> None:
        """Step by step."""
        del leader
        for number, step in enumerate(self._scenario.steps):
            self._asked.clear()
            self.step_begins()
            await self._play_step(step, f"step {number}")
        await self.well()

    def step_begins(self) -> None:
        """For whoever breaks something in each."""

    def written(self, before: Pod | None, now: Pod) -> None:
        """For whoever waits for some write; told of each of a pod."""

    async def _play_step(self, step: Step, said: str) -> None:
        for name, spec in step.says.items():
            await self._say(name, spec)
        await self._begin(step)
        for pods in step.submit:
            await self._submit(pods)
        for queue, count in step.end.items():
            for pod in self._holding(queue)[:count]:
                await self._delete(pod, grace=GRACE)
                self._ending.add(pod.metadata.uid)
        asked, self._listening = Counter(step.goes) + Counter(step.ignores), set(step.goes)
        await self._soon(lambda: self._were_asked() >= asked, f"{said}: {dict(asked)} to be asked")
        await self._soon(lambda: self._is_as(step), f"{said}: {step.held} held and {step.waiting} waiting")
        await asyncio.sleep(QUIET)
        assert self._were_asked() == asked, f"{said}: {self._were_asked()} were asked to go"
        assert self._is_as(step), f"{said}: {self._told()}"

    async def _begin(self, step: Step) -> None:
        if step.kills:
            await self._soon(lambda: not any(map(_goes, self.town.api.pods())), "all who ignored it to be killed")
        for queue in step.ran:
            for pod in self._holding(queue):
                await self._say_it_ran(pod)
        for queue, count in step.deletes.items():
            for pod in self._waiting(queue)[:count]:
                await self._delete(pod, grace=0)
        spare = self.town.nodes[-1]
        if step.loses:
            spare.kill_agent()
            await self.town.api.client.delete(NODES, name=SPARE)
            for pod in self.town.api.pods(SPARE):
                await self._delete(pod, grace=0)
        if step.returns:
            # Its kubelet has brought it back by itself.
            spare.start_agent()

    def _were_asked(self) -> Counter[str]:
        """How many of each queue, in this step."""
        return Counter(self._asked.values())

    async def _soon(self, holds: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(SOON):
                while not holds():
                    self.town.raise_broken()
                    self._end_processes()
                    await asyncio.sleep(0.25)
        except TimeoutError:
            raise AssertionError(f"waited {SOON:g} s for {what}; {self._told()}") from None

    # --- what is so --------------------------------------------------------------------------------------------------
    def _is_as(self, step: Step) -> bool:
        held = {queue: sum(map(self._compute, self._holding(queue))) for queue in step.held}
        waiting = {queue: len(self._waiting(queue)) for queue in step.waiting}
        return held == dict(step.held) and waiting == dict(step.waiting)

    def _told(self) -> str:
        pods = (
            f"{pod.key} {self._compute(pod)} % on {pod.spec.node_name or '-'}{', goes' if _goes(pod) else ''}"
            for pod in self.town.api.pods()
        )
        return f"there are {'; '.join(pods)}"

    def _compute(self, pod: Pod) -> int:
        return asked_in_all(pod, self.town.names.compute)

    def _of(self, queue: str) -> list[Pod]:
        return [pod for pod in self.town.api.pods() if pod.metadata.namespace == queue and not pod.ended]

    def _holding(self, queue: str) -> list[Pod]:
        return [pod for pod in self._of(queue) if pod.spec.node_name]

    def _waiting(self, queue: str) -> list[Pod]:
        return [pod for pod in self._of(queue) if not pod.spec.node_name]

    def _stored(self, table: str, change: Change) -> None:
        if table != "pods":
            return
        now = msgspec.json.decode(change.revision.raw, type=Pod)
        before = msgspec.json.decode(change.previous.raw, type=Pod) if change.previous else None
        uid = now.metadata.uid
        if _goes(now) and uid not in self._leaving:
            self._leaving.add(uid)
            self._asked[uid] = now.metadata.namespace
        self.written(before, now)

    # --- what users do -----------------------------------------------------------------------------------------------
    async def _submit(self, pods: Pods) -> None:
        names, queue = self.town.names, pods.queue
        for _ in range(pods.count):
            meta: dict[str, Any] = {
                "labels": {names.group: pods.gang} if pods.gang else {},
                "annotations": {names.of(short): text for short, text in pods.notes.items()},
            }
            if pods.by:
                meta["ownerReferences"] = [await self._controller(pods.by, queue)]
            # Of those that were made within one second the name decides who comes first.
            memory = max(pods.memory // SMALLER, LEAST * math.ceil(pods.compute / WHOLE))
            asked = self.asking(f"p{100 + self._made[queue]}", pods.compute, memory, **meta)
            self._made[queue] += 1
            asked["spec"]["terminationGracePeriodSeconds"] = GRACE
            if pods.priority:
                asked["spec"]["priorityClassName"] = f"priority-{pods.priority}"
            await self.town.api.create(PODS, asked, namespace=queue)

    async def _controller(self, name: str, namespace: str) -> dict[str, Any]:
        """Whoever makes pods: something that is there, else they would be taken away."""
        made = [one for one in await self.town.api.client.list(CONFIG_MAPS) if one.metadata.name == name]
        if not made:
            made = [await self.town.api.create(CONFIG_MAPS, {"metadata": {"name": name}}, namespace=namespace)]
        uid = made[0].metadata.uid
        return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "controller": True}

    async def _say(self, name: str, spec: Mapping[str, Any] | None) -> None:
        queues, client = queues_of(self.town.names), self.town.api.client
        if spec is None:
            await client.delete(queues, name=name)
        else:
            await client.patch(queues, name=name, patch=merge_patch({"spec": spec}))

    async def _say_it_ran(self, pod: Pod) -> None:
        since = second_time(self.town.clock.wall() - A_QUARTER_OF_AN_HOUR)
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": since}
        others = [msgspec.to_builtins(one) for one in pod.status.conditions if one.type != "PodScheduled"]
        patch = merge_patch({"status": {"conditions": [*others, scheduled]}})
        meta = pod.metadata
        await self.town.api.client.patch(
            PODS, name=meta.name, namespace=meta.namespace, patch=patch, subresource="status"
        )

    async def _delete(self, pod: Pod, *, grace: int) -> None:
        """By its user: nobody asked it to go."""
        meta = pod.metadata
        self._leaving.add(meta.uid)
        await self.town.api.client.delete(
            PODS, name=meta.name, namespace=meta.namespace, uid=meta.uid, grace_seconds=grace
        )

    def _end_processes(self) -> None:
        """Of those who go at once, until they are gone: a kubelet that knows late starts one of them again."""
        self._ending |= {uid for uid, queue in self._asked.items() if queue in self._listening}
        for node in self.town.nodes:
            for process in [name for name, one in node.runtime.running.items() if one.uid in self._ending]:
                node.runtime.signal(process, signal.SIGKILL)


def _goes(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None
