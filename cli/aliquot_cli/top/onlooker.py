"""The cluster as its leader sees it, made anew of what the API has: for whoever can't ask the centre's page.

The same picture, books and looks that the leader has, fed by the same watches; but nothing is decided, so why somebody
waits is what the leader has written on the pod, and what is used is not known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Self

import msgspec

from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.names import LEADER_LEASE, Names
from aliquot_core.objects import Lease, Namespace, Node, Pod, Queue
from aliquot_core.request import asks
from aliquot_kube.changes import Added, Change, Deleted, Modified, Synced
from aliquot_kube.election import longest_renew
from aliquot_kube.questions import Transport
from aliquot_scheduler.centre.watches import Watches
from aliquot_scheduler.page.looking import Looking, Seen
from aliquot_scheduler.page.model import State, WaitingShown
from aliquot_scheduler.page.usage import Usage
from aliquot_scheduler.picture.hearing import Hearing, deaf_after
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.said.entry import home_of, specs_of
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.turns import Queues


def renewed_every(leases: Iterable[Lease]) -> float:
    """At least so often the leader renews its Lease, as that itself says; as by default where nobody has led yet."""
    lease = next((one for one in leases if one.metadata.name == LEADER_LEASE), None)
    return longest_renew(float((lease and lease.spec.lease_duration_seconds) or 0))


class Onlooker:
    """Follows the cluster while it is entered."""

    title = "from the API"

    def __init__(
        self,
        *,
        transport: Transport,
        clock: Clock,
        random: Random,
        names: Names,
        settings: QueueSettings,
        renew: float,
    ) -> None:
        """The leader renews its Lease every `renew` seconds."""
        self._clock = clock
        self._names = names
        deaf = deaf_after(renew)
        self._watches = Watches(transport=transport, clock=clock, random=random, names=names, deaf=deaf)
        self._picture = Picture(names=names, hearing=Hearing(silence=self._watches.silence, after=deaf))
        self._turns = Queues(names=names, random=random, picture=self._picture, settings=settings)
        self._looking = Looking(names=names)
        self._stack = AsyncExitStack()
        self._watches.queues.subscribe(self._queue_changed)
        self._watches.namespaces.subscribe(self._namespace_changed)
        self._watches.nodes.subscribe(self._node_changed)
        self._watches.leases.subscribe(self._lease_changed)
        self._watches.pods.subscribe(self._pod_changed)

    async def __aenter__(self) -> Self:
        """Read everything."""
        watches = self._watches
        self._picture.tell_time(self._clock.monotonic())
        following = await self._stack.enter_async_context(_Following())
        for run in (watches.queues.run, watches.namespaces.run, watches.nodes.run, watches.leases.run):
            following.start(run())
        # As for the leader: what a pod holds is charged in its queue from the first word on it.
        await asyncio.gather(watches.queues.synced(), watches.namespaces.synced())
        following.start(watches.pods.run())
        await asyncio.gather(watches.nodes.synced(), watches.leases.synced(), watches.pods.synced())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Follow no more."""
        await self._stack.aclose()

    async def look(self) -> State | None:
        """How it is now."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        self._picture.tell_time(now)
        pods = self._watches.pods.objects
        seen = Seen(
            picture=self._picture,
            turns=self._turns,
            pods=pods,
            paused="",
            deaf=self._watches.why_deaf(after=self._watches.surely_deaf),
            evicted=None,
            now=now,
            wall=wall,
        )
        looking = self._looking.look(seen, Usage())
        while True:
            try:
                next(looking)
            except StopIteration as over:
                return self._in_the_leader_s_words(over.value, pods)
            await asyncio.sleep(0)

    def _in_the_leader_s_words(self, state: State, pods: Mapping[str, Pod]) -> State:
        return msgspec.structs.replace(
            state, waiting=tuple(self._said(one, pods.get(one.pod)) for one in state.waiting)
        )

    def _said(self, one: WaitingShown, pod: Pod | None) -> WaitingShown:
        for condition in pod.status.conditions if pod else ():
            if condition.type == self._names.admitted and condition.status == "False":
                return msgspec.structs.replace(one, reason=condition.reason, why=condition.message or condition.reason)
        return one

    # --- what the watches tell ---------------------------------------------------------------------------------------
    def _queue_changed(self, change: Change[Queue]) -> None:
        if isinstance(change, Synced) or self._watches.queues.freshness().synced:
            self._turns.queues_seen(specs_of(self._watches.queues.objects.values()))

    def _namespace_changed(self, change: Change[Namespace]) -> None:
        match change:
            case Added(new=namespace) | Modified(new=namespace):
                self._turns.namespace_seen(namespace.metadata.name, queue=home_of(namespace, names=self._names))
            case Deleted(old=namespace):
                self._turns.namespace_seen(namespace.metadata.name, queue="")

    def _node_changed(self, change: Change[Node]) -> None:
        match change:
            case Added(new=node) | Modified(new=node):
                self._picture.node_seen(node)
            case Deleted(old=node):
                self._picture.node_gone(node.metadata.name)

    def _lease_changed(self, change: Change[Lease]) -> None:
        self._picture.tell_time(self._clock.monotonic())
        match change:
            case Added(new=lease) | Modified(new=lease):
                self._picture.lease_seen(lease, wall=self._clock.wall())
            case Deleted(old=lease):
                self._picture.lease_gone(lease.metadata.name)

    def _pod_changed(self, change: Change[Pod]) -> None:
        match change:
            case Added(new=pod) | Modified(new=pod) if asks(pod, names=self._names):
                self._picture.pod_seen(pod)
                self._turns.pod_seen(pod)
            case Deleted(old=pod):
                self._picture.pod_gone(pod)
                self._turns.pod_gone(pod.metadata.uid)


class _Following:
    """Tasks that end with the block."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
