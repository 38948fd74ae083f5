"""Tells of GPUs of which a CUDA context would take all memory: as the node is set, nothing of them can be used.

An Event of the node, once for each GPU: what is wrong is a number that an operator wrote.
"""

from __future__ import annotations

from collections.abc import Callable

from aliquot_agent.signal import Signal
from aliquot_core.clock import Clock
from aliquot_core.inventory import Gpu, Inventory
from aliquot_core.objects import ObjectReference
from aliquot_kube.events import EventRecorder

REASON = "ContextTooLarge"
# The signal tells of every change; this is for one that came while we told of another.
LOOK_AGAIN = 30.0


def why_unusable(gpu: Gpu) -> str:
    """What is wrong, and what to do; empty where a context leaves some memory, or nobody says what it takes."""
    if not gpu.takes_all:
        return ""
    return (
        f"a CUDA context is set to take {gpu.context} MiB of GPU {gpu.uuid}, which has {gpu.memory}: no pod is placed"
        " on it; measure it (nvidia-smi beside an idle program) and set [agent] context_mib or context_mib_of"
    )


class ContextNotes:
    """One node's."""

    def __init__(
        self, *, node: str, clock: Clock, events: EventRecorder, inventory: Callable[[], Inventory], changed: Signal
    ) -> None:
        # As the kubelet writes it, and as `kubectl describe node` looks for it: the name is the uid.
        self._node = ObjectReference(api_version="v1", kind="Node", name=node, uid=node)
        self._clock, self._events, self._inventory, self._changed = clock, events, inventory, changed
        self._told: set[str] = set()

    async def run(self) -> None:
        """Tell of each until cancelled."""
        while True:
            for gpu in self._inventory().gpus:
                if (why := why_unusable(gpu)) and gpu.uuid not in self._told:
                    self._told.add(gpu.uuid)
                    self._events.tell(regarding=self._node, reason=REASON, action="Publishing", note=why, warning=True)
            await self._changed.wait(clock=self._clock, at_most=LOOK_AGAIN)
