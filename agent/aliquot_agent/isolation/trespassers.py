"""Tells of pods that use a GPU without a grant, and ends their processes where that is said. The shell of `trespass`.

Root without a capability may signal root's processes only: for others the agent needs CAP_KILL, which the chart gives
it where it is to stop them.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from aliquot_agent.isolation.trespass import Case, Stage, Trespasser, judged
from aliquot_core.clock import Clock
from aliquot_core.grant import readable_grant
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_kube.events import EventRecorder

log = logging.getLogger(__name__)

REASON = "UsesGpuWithoutGrant"
_SIGNALS = {Stage.ASKED: signal.SIGTERM, Stage.ENDED: signal.SIGKILL}
_MEANS = {
    Stage.TOLD: "",
    Stage.ASKED: "; it is asked to end",
    Stage.ENDED: "; it did not end and was killed",
}


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
    ) -> None:
        """`spared` are namespaces whose pods are the node's own; `stop` whether others' processes are ended."""
        self._names, self._clock, self._events = names, clock, events
        self._pods = pods
        self._processes = processes
        self._stop = stop
        self._spared = frozenset(spared)
        self._cases: dict[Trespasser, Case] = {}

    def hear(self, found: Iterable[tuple[int, str, str]]) -> None:
        """Take in a sample: pid, pod and GPU of each process of a pod that has no slice of that GPU."""
        before = self._cases
        self._cases = judged(before, self._trespassers(found), stop=self._stop, now=self._clock.monotonic())
        for one, case in self._cases.items():
            if case.stage is not Stage.SEEN:
                self._meet(one, case, rises=case.stage > before.get(one, Case()).stage)

    def _trespassers(self, found: Iterable[tuple[int, str, str]]) -> list[Trespasser]:
        gpus: dict[tuple[int, str], set[str]] = {}
        for pid, uid, gpu in found:
            pod = self._pods().get(uid)
            if pod and pod.metadata.namespace not in self._spared and gpu not in self._granted(pod):
                gpus.setdefault((pid, uid), set()).add(gpu)
        whole = ((pid, self._processes.born(pid), uid, gpus[pid, uid]) for pid, uid in sorted(gpus))
        return [Trespasser(pid=pid, born=born, pod=uid, gpus=tuple(sorted(on))) for pid, born, uid, on in whole if born]

    def _granted(self, pod: Pod) -> set[str]:
        grant = readable_grant(pod.metadata.annotations.get(self._names.grant))
        return {part.gpu for _, part in grant.slices()} if grant else set()

    def _meet(self, one: Trespasser, case: Case, *, rises: bool) -> None:
        problem = ""
        if number := _SIGNALS.get(case.stage):
            try:
                self._processes.signal(one.pid, born=one.born, number=number)
            except PermissionError:
                problem = "; the agent lacks the right to end it (CAP_KILL)"
        pod = self._pods().get(one.pod)
        if not rises or pod is None:
            return
        note = f"process {one.pid} uses GPU {', '.join(one.gpus)} without a grant{problem or _MEANS[case.stage]}"
        log.warning("a GPU is used without a grant", extra={"pod": pod.key, "pid": one.pid, "what": note})
        self._events.tell(regarding=pod.reference, reason=REASON, action="Watching", note=note, warning=True)
