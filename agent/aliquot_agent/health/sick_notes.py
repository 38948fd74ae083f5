"""Tells the pods on a GPU how it is: an Event when it falls ill, one when it is well again.

What to tell is decided by comparing what was told last; after a restart a sick GPU's pods are told again, a well one's
are not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

import msgspec

from aliquot_agent.signal import Signal
from aliquot_agent.starting.decision import Known
from aliquot_agent.starting.room import in_force
from aliquot_core.clock import Clock
from aliquot_core.inventory import Health, Inventory
from aliquot_core.objects import Pod
from aliquot_kube.events import EventRecorder

# The signal tells of every change; this is for one that came while we told of another.
LOOK_AGAIN = 30.0

_REASONS = {Health.SICK: "GpuSick", Health.DEGRADED: "GpuDegraded", Health.HEALTHY: "GpuHealthy"}
_MEANS = {
    Health.SICK: "; containers are not started on it until it is well again",
    Health.DEGRADED: "; it may be slow",
    Health.HEALTHY: "",
}


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to tell one pod."""

    pod: Pod
    health: Health
    text: str

    @property
    def reason(self) -> str:
        """The Event's reason."""
        return _REASONS[self.health]


def turned(told: Mapping[str, Health], inventory: Inventory) -> dict[str, Health]:
    """The GPUs that are not as was told last; of one that nothing was told of, health is no news."""
    return {gpu.uuid: gpu.health for gpu in inventory.gpus if gpu.health is not told.get(gpu.uuid, Health.HEALTHY)}


def notes(changed: Iterable[str], *, known: Known) -> list[Note]:
    """What to tell whom: every pod that holds slices of these GPUs."""
    gpus = [gpu for uuid in changed if (gpu := known.inventory.gpu(uuid)) is not None]
    found = []
    for uid, claims in in_force(known):
        pod = known.pods.get(uid)
        for gpu in gpus:
            if pod is not None and gpu.uuid in claims:
                why = f": {gpu.reason}" if gpu.reason else ""
                text = f"GPU {gpu.uuid} is {gpu.health}{why}{_MEANS[gpu.health]}"
                found.append(Note(pod=pod, health=gpu.health, text=text))
    return found


class SickNotes:
    """One node's notes."""

    def __init__(
        self,
        *,
        clock: Clock,
        events: EventRecorder,
        inventory: Callable[[], Inventory],
        known: Callable[[], Awaitable[Known]],
        changed: Signal,
    ) -> None:
        self._clock = clock
        self._events = events
        self._inventory = inventory
        self._known = known
        self._changed = changed
        self._told: dict[str, Health] = {}

    async def run(self) -> None:
        """Tell of each change until cancelled."""
        while True:
            await self._look()
            await self._changed.wait(clock=self._clock, at_most=LOOK_AGAIN)

    async def _look(self) -> None:
        if not turned(self._told, self._inventory()):
            return
        known = await self._known()
        if not known.complete:
            return  # who is on the GPU is not known yet
        changed = turned(self._told, known.inventory)
        for note in notes(changed, known=known):
            self._events.tell(
                regarding=note.pod.reference,
                reason=note.reason,
                action="Watching",
                note=note.text,
                warning=note.health is not Health.HEALTHY,
            )
        self._told |= changed
