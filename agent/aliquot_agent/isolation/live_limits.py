"""Lets slices have less than granted while that is so, and tells their pods. The shell round `allowance`.

Grants are written once and stay as they are: queues charge them, and what was taken away comes back.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from aliquot_agent.gpus.model import GpuFacts, GpuUsage
from aliquot_agent.isolation.allowance import Allowed, bounded, given_way, lacking, restrained, whose
from aliquot_agent.isolation.beyond import Excess, Whose
from aliquot_agent.web.accounts import SliceUse
from aliquot_core.modes import INTERPOSER
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.quantities import QuantityError
from aliquot_core.restraint import Restraint, restraint_of
from aliquot_kube.events import EventRecorder

log = logging.getLogger(__name__)

LESS, LACKS, AGAIN, UNREAD = "HoldsBack", "MemoryLacks", "SliceWhole", "HoldsBackUnread"


class LiveLimits:
    """One node's."""

    def __init__(
        self, *, names: Names, events: EventRecorder, pods: Callable[[], Mapping[str, Pod]], floor: Callable[[str], int]
    ) -> None:
        """`pods` are those of the node, by UID; `floor` is what a CUDA context takes of a GPU, in MiB."""
        self._names, self._events, self._pods, self._floor = names, events, pods, floor
        self._lacks: dict[str, Excess] = {}
        # What each slice may have, and why that is less than granted: for what was told of it.
        self.allowed: dict[Whose, Allowed] = {}
        self._told: dict[Whose, tuple[str, str]] = {}
        # By UID, of whom what is written can't be read, and what was told of it.
        self._unread: dict[str, str] = {}

    @property
    def lacks(self) -> dict[str, int]:
        """By GPU, how many MiB that are granted are not there."""
        return {gpu: lack.lasting for gpu, lack in self._lacks.items()}

    def hear(
        self, slices: Sequence[SliceUse], *, usages: Mapping[str, GpuUsage], facts: Mapping[str, GpuFacts]
    ) -> None:
        """Take in a sample."""
        by_gpu: defaultdict[str, list[SliceUse]] = defaultdict(list)
        for one in slices:
            by_gpu[one.gpu].append(one)
        restraints = self._restraints({one.uid for one in slices if one.isolation == INTERPOSER})
        own = restrained(slices, restraints=restraints, floor=self._floor)
        before, self._lacks, less = self._lacks, {}, dict[Whose, Allowed]()
        for gpu, here in by_gpu.items():
            if (card := facts.get(gpu)) is None:
                continue
            usage = usages.get(gpu)
            self._lacks[gpu] = lack = lacking(
                before.get(gpu, Excess()),
                here,
                allowed=own,
                used=usage.memory_used_mib if usage else None,
                usable=card.memory_usable_mib,
            )
            less |= given_way(here, allowed=own, lack=lack.lasting, floor=self._floor)
        self.allowed = own | less
        self._tell([one for one in slices if one.isolation == INTERPOSER], own=own, less=less, restraints=restraints)

    def _restraints(self, uids: Collection[str]) -> dict[str, Restraint]:
        """What pods say of themselves; what can't be read, which came where no webhook looked, is told once."""
        found, before, self._unread = {}, self._unread, dict[str, str]()
        for uid, pod in ((uid, self._pods().get(uid)) for uid in sorted(uids)):
            try:
                found[uid] = restraint_of(pod, names=self._names) if pod else Restraint()
            except QuantityError as error:
                self._unread[uid] = note = f"it has all that it was granted: {error}"
                if pod and note != before.get(uid):
                    log.warning("limits can't be read", extra={"pod": pod.key, "error": str(error)})
                    self._event(pod, reason=UNREAD, note=note, warning=True)
        return found

    def _tell(
        self,
        slices: Sequence[SliceUse],
        *,
        own: Mapping[Whose, Allowed],
        less: Mapping[Whose, Allowed],
        restraints: Mapping[str, Restraint],
    ) -> None:
        """Once for each change of why; how much less memory it is for want of it, metrics say."""
        before, self._told = self._told, {}
        containers: defaultdict[tuple[str, str], list[SliceUse]] = defaultdict(list)
        for one in slices:
            containers[one.uid, one.container].append(one)
        for one in slices:
            name = whose(one)
            why = bounded(containers[one.uid, one.container], restraints.get(one.uid, Restraint()), floor=self._floor)
            said = _said(one, own[name], lacks=name in less, bounds=why)
            if said[0]:
                self._told[name] = said
            if said != before.get(name, ("", "")):
                self._write(one, *said)

    def _write(self, one: SliceUse, reason: str, what: str) -> None:
        pod = self._pods().get(one.uid)
        if pod is None:
            return
        note = f"{one.container} {what or 'may have all again that it was granted'} of GPU {one.gpu}"
        log.info("limits", extra={"pod": pod.key, "container": one.container, "gpu": one.gpu, "what": what})
        self._event(pod, reason=reason or AGAIN, note=note, warning=reason == LACKS)

    def _event(self, pod: Pod, *, reason: str, note: str, warning: bool) -> None:
        self._events.tell(regarding=pod.reference, reason=reason, action="Limiting", note=note, warning=warning)


def _said(one: SliceUse, own: Allowed, *, lacks: bool, bounds: str) -> tuple[str, str]:
    if lacks:
        return (
            LACKS,
            f"is best effort, and may take less than its {one.memory_mib} MiB while others hold what is granted",
        )
    if own == Allowed(memory=one.memory_mib, limit=one.limit):
        return (LESS, f"may have all ({bounds})") if bounds else ("", "")
    what = f"may take {own.memory} of {one.memory_mib} MiB and burst to {own.limit} of {one.limit} %, as its pod says"
    return LESS, f"{what} ({bounds})," if bounds else f"{what},"
