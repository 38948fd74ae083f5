"""kube-scheduler's loop on one machine: begins with pods in their order, and has several on their way at a time.

The shell round `queue`, `picture` and `attempt`; which pods there are and what they ask it has from two live copies.
One pod at a time would leave the centre idle while we act and us while it does: at 5,000 pods on a busy machine they
were let in faster than they could be bound, and lost their turns. What must always hold: between the look at a node's
room and its being counted for a pod nothing is waited for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.errors import AliquotError, ClusterError
from aliquot_core.node_rules import UnreadableAffinityError
from aliquot_core.objects import Node, Pod, Toleration
from aliquot_kube.changes import Added, Change, Deleted, Modified
from aliquot_kube.client import KubeClient
from aliquot_kube.mirror import Mirror
from aliquot_kube.pacing import sleep_unless
from aliquot_kube.questions import Transport
from aliquot_kube.resources import NODES
from aliquot_standalone.scheduling.attempt import Answer, Ask, Chosen, Unfit, attempt
from aliquot_standalone.scheduling.demands import Demand, demand_of
from aliquot_standalone.scheduling.fitting import obstacle
from aliquot_standalone.scheduling.objects import PLACED_PODS, PlacedPod
from aliquot_standalone.scheduling.picture import Picture
from aliquot_standalone.scheduling.queue import Queue
from aliquot_standalone.scheduling.telling import Teller

log = logging.getLogger(__name__)

# Whose pods are placed: those of nobody in particular, and those that Aliquot's webhook has taken on.
SCHEDULERS = ("default-scheduler", "aliquot")
# Pods on their way at once.
_AT_ONCE = 16
# So often others may be faster than a pod before it rests.
_TRIES = 3
_UNSCHEDULABLE, _ERROR = "Unschedulable", "SchedulerError"


class OvertakenError(ClusterError):
    """The room that was found for a pod was taken by others again and again."""


class Asked(Protocol):
    """The extender, as the loop needs it."""

    async def ask(self, pod: PlacedPod, ask: Ask) -> Answer:
        """Put a question of an attempt."""
        ...

    async def bind(self, pod: PlacedPod, *, node: str) -> None:
        """Have a pod bound."""
        ...


class SchedulingLoop:
    """Places pods until cancelled."""

    def __init__(
        self,
        *,
        transport: Transport,
        extender: Asked,
        managed: Collection[str],
        clock: Clock,
        random: Random,
        schedulers: Collection[str] = SCHEDULERS,
        tolerations: Callable[[Pod], Sequence[Toleration]] = lambda pod: pod.spec.tolerations,
    ) -> None:
        """`managed` are the resources of which the extender is asked; `tolerations` says what a pod tolerates."""
        self._extender = extender
        self._managed = managed
        self._schedulers = schedulers
        self._tolerations = tolerations
        self._clock = clock
        self._client = KubeClient(transport=transport)
        self._teller = Teller(client=self._client, clock=clock, random=random)
        self._pods = Mirror(transport=transport, clock=clock, random=random, resource=PLACED_PODS)
        self._places = Mirror(transport=transport, clock=clock, random=random, resource=NODES)
        self._waiting: dict[str, PlacedPod] = {}
        self._picture = Picture()
        self._queue = Queue()
        self._news = asyncio.Event()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def run(self) -> None:
        """Do everything at once; only a defect of ours ends it."""
        self._places.subscribe(self._place_changed)
        self._pods.subscribe(self._pod_changed)
        async with asyncio.TaskGroup() as tasks:
            for work in (self._places.run(), self._pods.run(), self._teller.run()):
                tasks.create_task(work)
            # A pod that was placed by half a picture would lie on the few nodes that were told of first.
            await self._places.synced()
            await self._pods.synced()
            await self._look(tasks)

    # --- what is told ------------------------------------------------------------------------------------------------
    def _place_changed(self, change: Change[Node]) -> None:
        if isinstance(change, Deleted):
            self._picture.node_gone(change.old.metadata.name)
        elif isinstance(change, Added | Modified):
            fresh = self._picture.node(change.new)
            # What a node's agent says in its annotations the extender decides by.
            if fresh or (
                isinstance(change, Modified) and change.old.metadata.annotations != change.new.metadata.annotations
            ):
                self._wake()

    def _pod_changed(self, change: Change[PlacedPod]) -> None:
        if isinstance(change, Deleted):
            self._forget(change.old.metadata.uid)
            if self._picture.pod_gone(change.old.metadata.uid):
                self._wake()
        elif isinstance(change, Added | Modified):
            self._seen(change.new, old=change.old if isinstance(change, Modified) else None)

    def _seen(self, pod: PlacedPod, *, old: PlacedPod | None) -> None:
        uid = pod.metadata.uid
        if self._picture.pod(pod):
            self._wake()
        if not (pod.waits and pod.spec.scheduler_name in self._schedulers):
            self._forget(uid)
        else:
            self._waiting[uid] = pod
            if old is None or _is_news(old, pod) or not old.waits:
                self._queue.put(uid, priority=pod.spec.priority, now=self._clock.monotonic())
                self._news.set()

    def _forget(self, uid: str) -> None:
        self._waiting.pop(uid, None)
        self._queue.drop(uid)

    def _wake(self) -> None:
        if self._queue.parked:
            self._queue.woken(now=self._clock.monotonic())
            self._news.set()

    # --- what is done ------------------------------------------------------------------------------------------------
    async def _look(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            uid = self._queue.next(now=self._clock.monotonic())
            if uid is None:
                at = self._queue.wake_at()
                wait = None if at is None else max(at - self._clock.monotonic(), 0.0)
                await sleep_unless(clock=self._clock, seconds=wait, woken=self._news)
            else:
                await self._slots.acquire()
                tasks.create_task(self._place(uid))

    async def _place(self, uid: str) -> None:
        try:
            # It may have gone while there was no slot.
            if (pod := self._waiting.get(uid)) is not None:
                await self._try(pod)
        finally:
            self._slots.release()

    async def _try(self, pod: PlacedPod) -> None:
        try:
            demand = demand_of(pod, managed=self._managed, tolerations=self._tolerations(pod))
            outcome = await self._decided(pod, demand)
            if isinstance(outcome, Unfit):
                await self._unfit(pod, outcome.why)
            elif pod.metadata.uid in self._waiting:
                await self._bind(pod, demand, node=outcome.node)
            else:
                self._picture.give_up(pod.metadata.uid)
        except AliquotError as error:
            await self._failed(pod, str(error))
        except UnreadableAffinityError as error:
            await self._unfit(pod, str(error))

    async def _decided(self, pod: PlacedPod, demand: Demand) -> Chosen | Unfit:
        for _ in range(_TRIES):
            outcome = await self._attempted(pod, demand)
            if isinstance(outcome, Unfit):
                return outcome
            # While the extender was asked, another pod may have taken the room.
            seat = self._picture.seats.get(outcome.node)
            if seat is not None and not obstacle(demand, seat):
                self._picture.assume(pod.metadata.uid, node=outcome.node, amounts=demand.amounts)
                return outcome
        raise OvertakenError("others were faster", where=pod.key)

    async def _attempted(self, pod: PlacedPod, demand: Demand) -> Chosen | Unfit:
        trying = attempt(demand, seats=self._picture.seats, nominated=pod.status.nominated_node_name)
        try:
            ask = next(trying)
            while True:
                ask = trying.send(await self._extender.ask(pod, ask))
        except StopIteration as end:
            outcome: Chosen | Unfit = end.value
            return outcome

    async def _bind(self, pod: PlacedPod, demand: Demand, *, node: str) -> None:
        meta = pod.metadata
        try:
            if demand.extended:
                await self._extender.bind(pod, node=node)
            else:
                await self._client.bind(namespace=meta.namespace, name=meta.name, node=node, uid=meta.uid)
        except AliquotError:
            self._picture.give_up(meta.uid)
            raise

    async def _failed(self, pod: PlacedPod, why: str) -> None:
        log.info("not placed", extra={"pod": pod.key, "error": why})
        self._queue.erred(pod.metadata.uid, now=self._clock.monotonic())
        self._news.set()
        await self._tell(pod, reason=_ERROR, why=why)

    async def _unfit(self, pod: PlacedPod, why: str) -> None:
        self._queue.unfit(pod.metadata.uid, now=self._clock.monotonic())
        await self._tell(pod, reason=_UNSCHEDULABLE, why=why)

    async def _tell(self, pod: PlacedPod, *, reason: str, why: str) -> None:
        if (newest := self._waiting.get(pod.metadata.uid)) is not None:
            await self._teller.unscheduled(newest, reason=reason, why=why)


def _is_news(old: PlacedPod, new: PlacedPod) -> bool:
    """Tell whether a pod changed in what may decide its place; what it is told of itself is none of that."""
    return (old.spec, old.metadata.labels, old.metadata.annotations, old.status.nominated_node_name) != (
        new.spec,
        new.metadata.labels,
        new.metadata.annotations,
        new.status.nominated_node_name,
    )
