"""Tells of pods that use a GPU without a grant, and ends their processes where that is said. The shell of `trespass`.

Root without a capability may signal root's processes only: for others the agent needs CAP_KILL, which the chart gives
it where it is to stop them.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from aliquot_agent.isolation.trespass import Case, Process, Stage, Trespasser, judged, stage_of
from aliquot_core.clock import Clock
from aliquot_core.grant import readable_grant
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_kube.events import EventRecorder

log = logging.getLogger(__name__)

REASON = "UsesGpuWithoutGrant"
_SIGNALS = {Stage.ASKED: signal.SIGTERM, Stage.ENDED: signal.SIGKILL}
# Of one process, and of several.
_MEANS = {
    Stage.TOLD: ("", ""),
    Stage.ASKED: ("; it is asked to end", "; they are asked to end"),
    Stage.ENDED: ("; it did not end and was killed", "; they did not end and were killed"),
}
# So many processes an Event names.
_NAMED = 8


class Processes(Protocol):
    """The node's processes."""

    def born(self, pid: int) -> int:
        """When it started, in the kernel's ticks; 0 if there is none."""
        ...

    def signal(self, pid: int, *, born: int, number: signal.Signals) -> None:
        """Signal that very process, if it is still there; raises PermissionError."""
        ...


class Trespassers:
    """One node's."""

    def __init__(
        self,
        *,
        names: Names,
        clock: Clock,
        events: EventRecorder,
        pods: Callable[[], Mapping[str, Pod]],
        processes: Processes,
        stop: bool,
        spared: Collection[str],
        has_from_others: Callable[[Pod], bool],
    ) -> None:
        """`spared` are namespaces whose pods are the node's own; `stop` whether others' processes are ended.

        Who may have its GPU from another device plugin needs no grant of ours.
        """
        self._has_from_others = has_from_others
        self._names, self._clock, self._events = names, clock, events
        self._pods = pods
        self._processes = processes
        self._stop = stop
        self._spared = frozenset(spared)
        self._cases: dict[str, Case] = {}

    def hear(self, found: Iterable[tuple[int, str, str]]) -> None:
        """Take in a sample: pid, pod and GPU of each process of a pod that has no slice of that GPU."""
        before, seen, now = self._cases, self._trespassers(found), self._clock.monotonic()
        self._cases = judged(before, seen, stop=self._stop, now=now)
        for pod, case in self._cases.items():
            there = {one: stage_of(one.process, case=case, now=now) for one in seen if one.pod == pod}
            may = [self._signalled(one.process, stage) for one, stage in there.items()]
            if case.stage > before.get(pod, Case()).stage:
                furthest = [one for one, stage in there.items() if stage is case.stage]
                self._tell(pod, furthest, stage=case.stage, may=all(may))

    def _trespassers(self, found: Iterable[tuple[int, str, str]]) -> list[Trespasser]:
        gpus: dict[tuple[int, str], set[str]] = {}
        for pid, uid, gpu in found:
            pod = self._pods().get(uid)
            if pod and gpu not in self._granted(pod) and not self._is_let_be(pod):
                gpus.setdefault((pid, uid), set()).add(gpu)
        whole = ((Process(pid=pid, born=self._processes.born(pid)), uid, gpus[pid, uid]) for pid, uid in sorted(gpus))
        return [Trespasser(process=one, pod=uid, gpus=tuple(sorted(on))) for one, uid, on in whole if one.born]

    def _is_let_be(self, pod: Pod) -> bool:
        return pod.metadata.namespace in self._spared or self._has_from_others(pod)

    def _granted(self, pod: Pod) -> set[str]:
        grant = readable_grant(pod.metadata.annotations.get(self._names.grant))
        return {part.gpu for _, part in grant.slices()} if grant else set()

    def _signalled(self, process: Process, stage: Stage) -> bool:
        """False if the agent may not."""
        if number := _SIGNALS.get(stage):
            try:
                self._processes.signal(process.pid, born=process.born, number=number)
            except PermissionError:
                return False
        return True

    def _tell(self, uid: str, them: list[Trespasser], *, stage: Stage, may: bool) -> None:
        pod = self._pods().get(uid)
        if pod is None:
            return
        several = len(them) > 1
        means = (
            _MEANS[stage][several]
            if may
            else f"; the agent lacks the right to end {'them' if several else 'it'} (CAP_KILL)"
        )
        pids = ", ".join(str(one.process.pid) for one in them[:_NAMED])
        more = f" and {len(them) - _NAMED} more" if len(them) > _NAMED else ""
        gpus = ", ".join(sorted({gpu for one in them for gpu in one.gpus}))
        who = f"processes {pids}{more} use" if several else f"process {pids} uses"
        note = f"{who} GPU {gpus} without a grant{means}"
        log.warning("a GPU is used without a grant", extra={"pod": pod.key, "pids": pids, "what": note})
        self._events.tell(regarding=pod.reference, reason=REASON, action="Watching", note=note, warning=True)
