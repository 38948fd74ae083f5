"""kube-scheduler's questions, brought to the desk; and the one write that binds and grants.

A write whose answer is lost may have been done or not. It is looked up once; if the pod is not bound then, the write
may still be on its way, and the desk keeps the room until it can't be any more. Then it is looked up again: what has
landed last may be what our watch has not told yet. The same goes for a write that was cancelled in the middle.

kube-scheduler's watch may be faster than ours, and a binding that is refused costs a pod a second or more. So a pod of
which we have not been told yet is waited for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from aliquot_core.errors import ClusterError
from aliquot_core.grant import encode_grant
from aliquot_core.objects import Pod
from aliquot_core.request import asks
from aliquot_kube.errors import (
    ApiError,
    ConflictError,
    GarbledError,
    NotFoundError,
    ServerTroubleError,
    UnreachableError,
)
from aliquot_kube.resources import PODS
from aliquot_scheduler.centre.means import NOT_WRITTEN, Means
from aliquot_scheduler.centre.tidings import Tidings
from aliquot_scheduler.deciding.desk import Desk
from aliquot_scheduler.deciding.promises import Ended, Promise
from aliquot_scheduler.extender.decisions import Filtered
from aliquot_scheduler.extender.preempting import runs_the_cluster, spared
from aliquot_scheduler.queues.telling.notices import Notice

log = logging.getLogger(__name__)

# What does not say whether the write was done. A conflict may be with a write of the leader before us.
_UNTOLD = (UnreachableError, ServerTroubleError, GarbledError, ConflictError)
_LOOK = 1.0
# kube-scheduler gives a call up after 5 s. A write may take longer than is left: its promise stays until its end is
# known.
_UNTIL_TOLD = 2.0


NOBODY_GOES: Final = Notice(
    reason="NobodyEvicted",
    message="wherever kube-scheduler would evict for it there are pods with slices among those, and these go by their "
    "queues only; it waits until CPU or memory is free",
)


class NotReadyError(ClusterError):
    """Nothing may be decided now."""


class WhyNobody(StrEnum):
    """Why kube-scheduler is offered nobody to evict."""

    ASKS_FOR_SLICES = "asks for slices"
    THEY_HAVE_SLICES = "they have slices"
    # The leader does not know enough to decide.
    BLIND = "blind"


class Binder:
    """Fulfils `Decisions`."""

    def __init__(
        self,
        *,
        desk: Desk,
        charged_in: Callable[[str], str],
        labels_of: Callable[[str], Mapping[str, str]],
        means: Means,
    ) -> None:
        """`charged_in` says which queue is charged with a pod (by its UID), if queues count.

        `labels_of` tells the labels of a namespace by its name.
        """
        self._desk = desk
        self._charged_in = charged_in
        self._labels_of = labels_of
        self._client = means.client
        self._clock = means.clock
        self._events = means.events
        self._names = means.names
        self._why_not = means.why_not
        self._watched = means.long_turns.watched
        self._tidings = Tidings(clock=means.clock)
        # How often; each from the start.
        self.preemptions_refused = dict.fromkeys(WhyNobody, 0)

    def told(self, pod: Pod) -> None:
        """The watch has told the desk of a pod."""
        self._tidings.told(pod)

    def filter(self, pod: Pod, nodes: Sequence[str]) -> Filtered:
        """Which of these nodes have room."""
        self._check()
        with self._watched("filter", lambda: f"pod {pod.key}"):
            return self._desk.filter(pod, nodes, now=self._clock.monotonic())

    def prioritize(self, pod: Pod, nodes: Sequence[str]) -> Sequence[int]:
        """How good each of these nodes is."""
        self._check()
        with self._watched("prioritize", lambda: f"pod {pod.key}"):
            return self._desk.prioritize(pod, nodes)

    def prioritize_plain(self, pod: Pod, nodes: Sequence[str]) -> Sequence[int]:
        """How good each of these nodes is to a pod without slices."""
        self._check()
        with self._watched("prioritize", lambda: f"pod {pod.key}"):
            return self._desk.prioritize_plain(pod, nodes)

    def preempt(self, pod: Pod, offered: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Nobody for slices, and nobody who has one: kube-scheduler would evict across tenants, by priority alone.

        For what runs the cluster whom it has found.
        """
        if self._why_not():
            self.preemptions_refused[WhyNobody.BLIND] += 1
        self._check()
        if runs_the_cluster(pod, labels=self._labels_of(pod.metadata.namespace), names=self._names):
            return {node: list(victims) for node, victims in offered.items()}
        left = spared(pod, offered, pods=self._desk.pods, names=self._names)
        if not left:
            self._offered_nobody(pod, nodes=len(offered))
        return left

    async def bind(self, *, namespace: str, name: str, uid: str, node: str) -> str:
        """Bind and grant in one write; empty, or why not."""
        self._check()
        if uid not in self._desk.pods and self._desk.promises.of(uid):
            await self._tidings.of(uid, seconds=_UNTIL_TOLD)
            self._check()
        with self._watched("bind", lambda: f"pod {namespace}/{name}"):
            begun = self._desk.begin_bind(uid=uid, node=node, now=self._clock.monotonic())
        if isinstance(begun, str):
            log.info("not bound", extra={"pod": f"{namespace}/{name}", "node": node, "reason": begun})
            return begun
        # Whatever ends the next line, it may have been done.
        ended, why = Ended.UNKNOWN, ""
        try:
            ended, why = await self._write(begun, namespace=namespace, name=name)
        finally:
            self._desk.bind_ended(uid, ended, now=self._clock.monotonic())
        where = {"pod": begun.pod.key, "node": node, "gpus": ", ".join(sorted(begun.plan.claims))}
        if why:
            log.warning("not bound", extra=where | {"reason": why})
        else:
            log.info("bound", extra=where)
        return why

    async def settle_doubts(self) -> None:
        """Look up what has become of writes in doubt, until cancelled."""
        while True:
            await self._clock.sleep(_LOOK)
            for promise in self._desk.doubts(self._clock.monotonic()):
                await self._settle(promise)

    async def _settle(self, promise: Promise) -> None:
        try:
            pod = await self._found(promise)
        except ApiError as error:
            log.warning("a binding stays in doubt", extra={"pod": promise.pod.key, "error": str(error)})
        else:
            self._desk.looked_up(promise, pod, now=self._clock.monotonic())

    async def _found(self, promise: Promise) -> Pod | None:
        """The very pod as the API server has it; None if it is not there any more."""
        meta = promise.pod.metadata
        try:
            pod = await self._client.get(PODS, name=meta.name, namespace=meta.namespace)
        except NotFoundError:
            return None
        return pod if pod.metadata.uid == meta.uid else None

    async def _write(self, promise: Promise, *, namespace: str, name: str) -> tuple[Ended, str]:
        uid = promise.pod.metadata.uid
        try:
            await self._client.bind(
                namespace=namespace,
                name=name,
                node=promise.node,
                uid=uid,
                annotations=self._notes(promise),
            )
        except _UNTOLD as error:
            log.warning("no sure word on a binding", extra={"pod": promise.pod.key, "error": str(error)})
            return await self._looked_up(promise, error=error)
        except NOT_WRITTEN as error:
            return Ended.REFUSED, str(error)
        return Ended.TAKEN, ""

    def _notes(self, promise: Promise) -> dict[str, str]:
        grant = {self._names.grant: encode_grant(promise.plan.grant)}
        queue = self._charged_in(promise.pod.metadata.uid)
        return grant | {self._names.charged: queue} if queue else grant

    async def _looked_up(self, promise: Promise, *, error: ApiError) -> tuple[Ended, str]:
        try:
            pod = await self._found(promise)
        except ApiError as lost:
            return Ended.UNKNOWN, str(lost)
        if pod is not None:
            self._desk.heard(promise, pod)
        if pod is not None and not pod.spec.node_name:
            return (Ended.REFUSED if isinstance(error, ConflictError) else Ended.UNKNOWN), str(error)
        if pod is None or pod.metadata.annotations.get(self._names.grant) != encode_grant(promise.plan.grant):
            return Ended.REFUSED, str(error)
        return Ended.TAKEN, ""

    def _offered_nobody(self, pod: Pod, *, nodes: int) -> None:
        """Of one that asks for slices its queue says why it waits."""
        log.info("no pod is evicted for another", extra={"pod": pod.key, "nodes": nodes})
        if asks(pod, names=self._names):
            self.preemptions_refused[WhyNobody.ASKS_FOR_SLICES] += 1
            return
        self.preemptions_refused[WhyNobody.THEY_HAVE_SLICES] += 1
        self._events.tell(pod, NOBODY_GOES, action="Preempting", warning=True)

    def _check(self) -> None:
        if why := self._why_not():
            raise NotReadyError(why, where="centre", remedy="kube-scheduler tries again by itself")
