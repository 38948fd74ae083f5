"""What the node's heart-beat says: `ready`, `away` or `draining`, told at once when it changes.

The scheduler binds only to nodes that are ready: the kubelet's own allocatable goes to 0 some seconds after a plugin
died, and pods that arrive in between fail.
"""

from __future__ import annotations

from collections.abc import Callable

from aliquot_agent.signal import Signal
from aliquot_core.clock import Clock
from aliquot_core.door import KubeletSeen
from aliquot_core.life import State
from aliquot_core.names import Names
from aliquot_kube.heartbeat import HeartBeat

# The signal tells of every change; this is for one that nobody told.
LOOK_AGAIN = 30.0


def state_of(kubelet: KubeletSeen | None, *, names: Names, leaving: bool) -> State:
    """What to say, given what the kubelet listens to."""
    if leaving:
        return State.DRAINING
    return State.READY if kubelet is not None and names.compute in kubelet.listening else State.AWAY


class LifeSign:
    """Keeps the heart-beat saying what holds."""

    def __init__(
        self, *, beat: HeartBeat, names: Names, clock: Clock, kubelet: Callable[[], KubeletSeen | None], changed: Signal
    ) -> None:
        self._beat = beat
        self._names = names
        self._clock = clock
        self._kubelet = kubelet
        self._changed = changed
        self._leaving = False

    @property
    def state(self) -> State:
        """What holds now."""
        return state_of(self._kubelet(), names=self._names, leaving=self._leaving)

    async def leave(self) -> None:
        """Say `draining`, and return once the API server has it."""
        self._leaving = True
        await self._beat.announce({self._names.state: self.state})

    async def run(self) -> None:
        """Announce each change until cancelled."""
        said: State | None = None
        while True:
            seen = self._changed.count
            if (state := self.state) is not said:
                await self._beat.announce({self._names.state: state})
                said = state
            await self._changed.wait(clock=self._clock, at_most=LOOK_AGAIN, since=seen)
