"""Tells of slices that are used beyond what was granted, and of pods that are to go for it. The shell round `ladder`.

An agent may evict nobody. On the top rung the pod's condition `granted` becomes false, with a reason that the centre
looks for: it evicts the pod once that has stood for its grace. A pod that keeps inside before is let be.

How far it goes is the queue's to say, which the centre writes on the pod; of others it is the node's.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from aliquot_agent.isolation.beyond import Owner, Whose
from aliquot_agent.isolation.ladder import Climber, Rung, Rungs, Use, already_up, climbed
from aliquot_agent.signal import Signal
from aliquot_agent.starting.ungranted import condition
from aliquot_agent.web.accounts import SliceUse
from aliquot_core.clock import Clock
from aliquot_core.instants import second_time
from aliquot_core.isolation import INSIDE, LET_BE, OVER_USE, is_over_use
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ApiError, ConflictError, NotFoundError
from aliquot_kube.events import EventRecorder
from aliquot_kube.patches import strategic_patch
from aliquot_kube.resources import PODS

log = logging.getLogger(__name__)

# The signal tells of each sample; this is for a write that failed.
_TRY_AGAIN = 10.0
# As queues and settings write them.
_TOPS = {rung.name.lower(): rung for rung in Rung if rung}
_MEANS = {
    Rung.WARN: "",
    Rung.THROTTLE: "; it gets no idle compute until it keeps inside",
    Rung.EVICT: "; it is evicted unless it keeps inside soon",
}


class OverUse:
    """One node's ladder."""

    def __init__(
        self,
        *,
        names: Names,
        clock: Clock,
        client: KubeClient,
        events: EventRecorder,
        pods: Callable[[], Mapping[str, Pod]],
        rungs: Rungs,
    ) -> None:
        """`pods` are those of the node, by UID; `rungs` are for those whose queue says nothing."""
        self._names = names
        self._clock = clock
        self._client = client
        self._events = events
        self._pods = pods
        self._rungs = rungs
        self._climbers: dict[Whose, Climber] = {}
        self._changed = Signal()
        # What was written on whom and may not have come back to us.
        self._written: dict[str, bool] = {}

    @property
    def rungs(self) -> dict[Whose, Rung]:
        """Who is on the ladder, and how high."""
        return {whose: one.rung for whose, one in self._climbers.items() if one.rung}

    def throttled(self) -> Collection[Whose]:
        """Slices that get no more than their guarantee."""
        return {whose for whose, rung in self.rungs.items() if rung >= Rung.THROTTLE}

    def hear(self, slices: Sequence[SliceUse], *, filling: Collection[Owner] = ()) -> None:
        """Take in a sample; slices of which it says nothing are over. `filling` are those who made accounts larger."""
        now, before = self._clock.monotonic(), self._climbers
        holders = Counter(one.gpu for one in slices)
        self._climbers = {}
        for one in slices:
            whose = one.uid, one.container, one.gpu
            rungs = self._rungs_of(one.uid)
            then = before.get(whose) or self._begun(one.uid, now=now)
            fills = Owner(pod=one.uid, container=one.container) in filling
            use = _use(one, shared=holders[one.gpu] > 1, fills=fills)
            self._climbers[whose] = climber = climbed(then, use, now=now, rungs=rungs)
            self._tell(whose, then.rung, climber)
        self._changed.notify()

    async def run(self) -> None:
        """Write conditions until cancelled."""
        while True:
            count, pods = self._changed.count, dict(self._pods())
            self._written = {uid: stands for uid, stands in self._written.items() if uid in pods}
            for uid, pod in pods.items():
                await self._settle(uid, pod)
            await self._changed.wait(clock=self._clock, at_most=_TRY_AGAIN, since=count)

    def _rungs_of(self, uid: str) -> Rungs:
        pod = self._pods().get(uid)
        top = _TOPS.get(pod.metadata.annotations.get(self._names.over_use, "")) if pod else None
        return msgspec.structs.replace(self._rungs, top=top) if top else self._rungs

    def _begun(self, uid: str, *, now: float) -> Climber:
        pod = self._pods().get(uid)
        given_up = pod is not None and is_over_use(pod, names=self._names) is not None
        return already_up(now=now, rungs=self._rungs) if given_up else Climber()

    def _tell(self, whose: Whose, before: Rung, climber: Climber) -> None:
        uid, container, gpu = whose
        pod, rung = self._pods().get(uid), climber.rung
        if pod is None or rung == before:
            return
        facts = {"pod": pod.key, "container": container, "gpu": gpu, "rung": rung.name.lower(), "what": climber.what}
        log.log(logging.WARNING if rung else logging.INFO, "over-use", extra=facts)
        if rung > max(before, Rung.NOTE):
            note = f"{container} {climber.what}, on GPU {gpu}{_MEANS[rung]}"
            self._events.tell(regarding=pod.reference, reason=OVER_USE, action="Watching", note=note, warning=True)
        elif rung is Rung.INSIDE and before > Rung.NOTE:
            note = f"{container} keeps inside its slice of GPU {gpu} again"
            self._events.tell(regarding=pod.reference, reason=INSIDE, action="Watching", note=note)

    async def _settle(self, uid: str, pod: Pod) -> None:
        """Let the pod's condition say what is so."""
        given_up = [
            f"{container} {one.what}, on GPU {gpu}"
            for (owner, container, gpu), one in self._climbers.items()
            if owner == uid and one.rung is Rung.EVICT
        ]
        stands = self._written.get(uid, is_over_use(pod, names=self._names) is not None)
        if pod.ended or bool(given_up) == stands:
            return
        if not given_up and not any(owner == uid for owner, _, _ in self._climbers):
            return  # nothing is known of it yet
        reason, message = self._said(uid, given_up)
        change = condition(
            pod,
            names=self._names,
            now=second_time(self._clock.wall()),
            status="False" if given_up else "True",
            reason=reason,
            message=message,
        )
        meta = pod.metadata
        try:
            await self._client.patch(
                PODS, name=meta.name, namespace=meta.namespace, patch=strategic_patch(change), subresource="status"
            )
        except (NotFoundError, ConflictError):
            return  # it is gone
        except ApiError as error:
            log.warning("a pod's condition could not be written", extra={"pod": pod.key, "error": str(error)})
        else:
            self._written[uid] = bool(given_up)

    def _said(self, uid: str, given_up: Sequence[str]) -> tuple[str, str]:
        """Reason and words of the condition."""
        if given_up:
            return OVER_USE, "; ".join(given_up)
        if any(owner == uid for owner, _, _ in self.rungs):
            return LET_BE, "it uses more than its slices, and nobody goes for that any more where it is"
        return INSIDE, "it keeps inside its slices again"


def _use(one: SliceUse, *, shared: bool, fills: bool) -> Use:
    return Use(
        memory_mib=one.memory_mib,
        limit=one.limit,
        used_mib=one.used_mib,
        used_percent=one.used_percent,
        shared=shared,
        fills=fills,
    )
