"""The device ids that the kubelet is told of, and the message that tells it.

An id that the agent takes out stays in the list for a while, unhealthy. While the kubelet calls Allocate it keeps only
the ids that it chose, and looks each up in its newest list afterwards, without asking whether it is still there: one
that is not ends the kubelet (nil dereference in 1.36.3, seen when ids of ended pods were replaced under load). An
unhealthy id is chosen by nobody any more, and what was chosen before is long settled when it goes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence

from aliquot_core.clock import Clock
from aliquot_core.door import Device
from aliquot_proto import deviceplugin_v1beta1_pb2 as pb

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
# An allocation takes the kubelet milliseconds; a stalled machine must not make it a crash.
LINGER = 60.0


def list_message(devices: Sequence[Device]) -> pb.ListAndWatchResponse:
    """Build what ListAndWatch streams: always the whole list."""
    return pb.ListAndWatchResponse(devices=[_told(device) for device in devices])


def _told(device: Device) -> pb.Device:
    # Never on which NUMA node: the kubelet would choose ids by it, whatever was granted (agent/device_ids).
    return pb.Device(ID=device.id, health=HEALTHY if device.healthy else UNHEALTHY)


class Table:
    """One resource's devices; each listener gets the newest list, and only when it is a new one."""

    def __init__(self, devices: Sequence[Device], *, clock: Clock) -> None:
        self._clock = clock
        self._devices = tuple(devices)
        # Ids that are taken out, and when they may go.
        self._leaving: dict[str, float] = {}
        # Two thirds of a first answer's time is building it (2 µs a device), so it is built once a change.
        self._message = list_message(self._devices)
        self._listeners: set[Listener] = set()

    @property
    def devices(self) -> tuple[Device, ...]:
        """What the agent has told; the kubelet is also told of what is about to go."""
        return self._devices

    def replace(self, devices: Sequence[Device]) -> None:
        """Take another list, and tell it where it differs."""
        if tuple(devices) == self._devices:
            return
        gone = {device.id for device in self._devices}.difference(device.id for device in devices)
        self._leaving |= dict.fromkeys(gone, self._clock.monotonic() + LINGER)
        self._devices = tuple(devices)
        for device in devices:
            self._leaving.pop(device.id, None)
        self._tell()

    def let_go(self) -> None:
        """Leave out what has been unhealthy for long enough."""
        now = self._clock.monotonic()
        over = [one for one, until in self._leaving.items() if until <= now]
        for one in over:
            del self._leaving[one]
        if over:
            self._tell()

    def _tell(self) -> None:
        leaving = [Device(id=one, healthy=False) for one in self._leaving]
        self._message = list_message([*self._devices, *leaving])
        for listener in self._listeners:
            listener.offer(self._message)

    @contextlib.contextmanager
    def listen(self) -> Iterator[Listener]:
        """Give a listener, which has the present list to begin with."""
        listener = Listener(self._message)
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)


class Listener:
    """One ListAndWatch stream's view of the table: lists that nobody took in time are skipped for the newest."""

    def __init__(self, first: pb.ListAndWatchResponse) -> None:
        self._newest = first
        self._ended = False
        self._woken = asyncio.Event()
        self._woken.set()

    def offer(self, message: pb.ListAndWatchResponse) -> None:
        """Have the newest list ready."""
        self._newest = message
        self._woken.set()

    def end(self) -> None:
        """Let `next` say that there will be no more."""
        self._ended = True
        self._woken.set()

    async def next(self) -> pb.ListAndWatchResponse | None:
        """Wait for a list that was not taken yet; None when the stream is to end."""
        await self._woken.wait()
        self._woken.clear()
        return None if self._ended else self._newest
