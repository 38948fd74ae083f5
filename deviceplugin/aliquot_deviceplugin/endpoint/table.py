"""The device ids that the kubelet is told of, and the message that tells it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence

from aliquot_core.door import Device
from aliquot_proto import deviceplugin_v1beta1_pb2 as pb

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"


def list_message(devices: Sequence[Device]) -> pb.ListAndWatchResponse:
    """Build what ListAndWatch streams: always the whole list."""
    return pb.ListAndWatchResponse(devices=[_told(device) for device in devices])


def _told(device: Device) -> pb.Device:
    # Never on which NUMA node: the kubelet would choose ids by it, whatever was granted (agent/device_ids).
    return pb.Device(ID=device.id, health=HEALTHY if device.healthy else UNHEALTHY)


class Table:
    """One resource's devices; each listener gets the newest list, and only when it is a new one."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = tuple(devices)
        # Two thirds of a first answer's time is building it (2 µs a device), so it is built once a change.
        self._message = list_message(self._devices)
        self._listeners: set[Listener] = set()

    @property
    def devices(self) -> tuple[Device, ...]:
        """What the kubelet is told of at this moment."""
        return self._devices

    def replace(self, devices: Sequence[Device]) -> None:
        """Take another list, and tell it where it differs."""
        if tuple(devices) == self._devices:
            return
        self._devices = tuple(devices)
        self._message = list_message(self._devices)
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
