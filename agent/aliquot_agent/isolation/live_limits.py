"""Lets slices have less than granted while that is so, and tells their pods. The shell round `allowance`.

Grants are written once and stay as they are: queues charge them, and what was taken away comes back.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from aliquot_agent.gpus.model import GpuFacts, GpuUsage
from aliquot_agent.isolation.allowance import Allowed, given_way, lacking, restrained, whose
from aliquot_agent.isolation.beyond import Excess, Whose
from aliquot_agent.web.accounts import SliceUse
from aliquot_core.isolation import INTERPOSER
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.quantities import QuantityError
from aliquot_core.restraint import Restraint, restraint_of
from aliquot_kube.events import EventRecorder

log = logging.getLogger(__name__)

LESS, LACKS, AGAIN = "HoldsBack", "MemoryLacks", "SliceWhole"


class LiveLimits:
    """One node's."""

    def __init__(
        self, *, names: Names, events: EventRecorder, pods: Callable[[], Mapping[str, Pod]], floor: int
    ) -> None:
        """`pods` are those of the node, by UID; `floor` is what a CUDA context takes, in MiB."""
        self._names, self._events, self._pods, self._floor = names, events, pods, floor
        self._lacks: dict[str, Excess] = {}
        # What each slice may have, and why that is less than granted: for what was told of it.
        self.allowed: dict[Whose, Allowed] = {}
        self._told: dict[Whose, tuple[str, str]] = {}

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
        restraints = {uid: self._restraint(uid) for uid in {one.uid for one in slices}}
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
        self._tell(slices, own=own, less=less)

    def _restraint(self, uid: str) -> Restraint:
        pod = self._pods().get(uid)
        try:
            return restraint_of(pod, names=self._names) if pod else Restraint()
        except QuantityError:
            return Restraint()  # written where no webhook looked

    def _tell(self, slices: Sequence[SliceUse], *, own: Mapping[Whose, Allowed], less: Mapping[Whose, Allowed]) -> None:
        """Once for each change of why; how much less memory it is for want of it, metrics say."""
        before, self._told = self._told, {}
        for one in slices:
            name = whose(one)
            if one.isolation != INTERPOSER:
                continue
            said = _said(one, own[name], lacks=name in less)
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
        self._events.tell(
            regarding=pod.reference, reason=reason or AGAIN, action="Limiting", note=note, warning=reason == LACKS
        )


def _said(one: SliceUse, own: Allowed, *, lacks: bool) -> tuple[str, str]:
    if lacks:
        return (
            LACKS,
            f"is best effort, and may take less than its {one.memory_mib} MiB while others hold what is granted",
        )
    if own == Allowed(memory=one.memory_mib, limit=one.limit):
        return "", ""
    what = f"may take {own.memory} of {one.memory_mib} MiB and burst to {own.limit} of {one.limit} %, as its pod says,"
    return LESS, what
