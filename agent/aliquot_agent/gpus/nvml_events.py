"""Waiting for XIDs and the like.

nvmlEventSetWait blocks, so it has a thread of its own, and not turns on the query thread: the moment a GPU fails is the
moment that queries about it hang, and then its XID must still come through. The wait is cut into slices, so that at a
shutdown or when the GPUs change the thread comes out of the library by itself within one. What must always hold: only
the waiting thread waits on a set or frees it, and `stop` returns True only when it is outside the library.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pynvml

from aliquot_agent.gpus.driver import GpuDriverError, OneGpuError
from aliquot_agent.gpus.model import EventKind, Fault, GpuProblem
from aliquot_agent.gpus.nvml_binding import Binding, Device
from aliquot_agent.gpus.nvml_calls import CallThread, look_at_error
from aliquot_agent.waiting import settled
from aliquot_core.clock import Clock

_KINDS = {
    pynvml.nvmlEventTypeXidCriticalError: EventKind.XID,
    pynvml.nvmlEventTypeGpuUnavailableError: EventKind.UNAVAILABLE,
    pynvml.nvmlEventTypeGpuRecoveryAction: EventKind.RECOVERY_ACTION,
}
_WANTED = sum(_KINDS)
# A storm of XIDs must not keep the thread from coming up for air.
_MOST_AT_ONCE = 100

Heard = tuple[EventKind, str | None, int]


class EventSet:
    """NVML's set of registrations; used and freed by the waiting thread only."""

    def __init__(self, *, binding: Binding, handle: Any, devices: Iterable[Device]) -> None:
        self._binding = binding
        self._handle = handle
        self._uuids = {_address(device.handle): device.uuid for device in devices}

    def wait(self, *, slice_ms: int) -> list[Heard]:
        """Wait for an event, then take those that are there too."""
        heard: list[Heard] = []
        data = self._next(slice_ms)
        while data is not None:
            if (kind := _KINDS.get(data.eventType)) is not None:
                heard.append((kind, self._uuid(data.device), int(data.eventData)))
            if len(heard) >= _MOST_AT_ONCE:
                break
            try:
                data = self._next(0)
            except (OneGpuError, GpuDriverError):
                # The next wait says it again; what was heard before it must not be lost.
                break
        return heard

    def free(self) -> None:
        """Give the set back to NVML."""
        self._binding.system("nvmlEventSetFree", self._handle)

    def _next(self, timeout_ms: int) -> Any:
        return self._binding.unless(
            (pynvml.NVML_ERROR_TIMEOUT,), "nvmlEventSetWait_v2", self._handle, timeout_ms, where="events"
        )

    def _uuid(self, device: Any) -> str | None:
        # The handle is one that we registered, so its address says whose it is; a question to the driver would hang on
        # the very GPU that is in trouble. It is asked only if it should hand out other handles.
        if (known := self._uuids.get(_address(device))) is not None:
            return known
        try:
            return str(self._binding.must("nvmlDeviceGetUUID", device, where="events")) if device else None
        except OneGpuError:
            return None


def make_event_set(
    binding: Binding, devices: Mapping[str, Device], *, indexes: Mapping[str, int]
) -> tuple[EventSet | None, tuple[GpuProblem, ...]]:
    """Register each GPU on its own in a new set; those that refuse are problems, the others are watched."""
    try:
        handle = binding.system("nvmlEventSetCreate")
    except GpuDriverError as error:
        return None, tuple(_unwatched(uuid, indexes[uuid], str(error)) for uuid in devices)
    problems = []
    for uuid, device in devices.items():
        try:
            types = binding.may("nvmlDeviceGetSupportedEventTypes", device=device)
            wanted = _WANTED & (pynvml.nvmlEventTypeXidCriticalError if types is None else types)
            if not wanted & pynvml.nvmlEventTypeXidCriticalError:
                problems.append(_unwatched(uuid, indexes[uuid], "the driver reports no XIDs for it"))
            else:
                binding.must("nvmlDeviceRegisterEvents", device.handle, wanted, handle, where=device.where)
        except OneGpuError as error:
            problems.append(_unwatched(uuid, indexes[uuid], error.what))
    return EventSet(binding=binding, handle=handle, devices=devices.values()), tuple(problems)


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _unwatched(uuid: str, index: int, why: str) -> GpuProblem:
    return GpuProblem(
        fault=Fault.UNWATCHED,
        uuid=uuid,
        index=index,
        what=f"its errors can't be heard: {why}",
        remedy="it is used all the same; watch the kernel log for its XIDs",
    )


class EventWatch:
    """Keeps one wait going while somebody wants events."""

    def __init__(
        self, *, clock: Clock, slice_s: float, heard: Callable[[list[Heard]], None], failed: Callable[[Exception], None]
    ) -> None:
        self._clock = clock
        self._slice_ms = max(1, int(slice_s * 1000))
        self._heard = heard
        self._failed = failed
        self._thread: CallThread | None = None
        self._set: EventSet | None = None
        self._old: list[EventSet] = []
        self._wait: asyncio.Future[list[Heard]] | None = None
        self._stopped = False

    def use(self, event_set: EventSet | None) -> None:
        """Wait on this set from the next slice on; what the one before has heard by then is not lost."""
        if self._set is not None:
            self._old.append(self._set)
        self._set = event_set

    def arm(self) -> None:
        """Begin the next slice unless one is running."""
        if self._stopped or self._wait is not None or (self._set is None and not self._old):
            return
        if self._thread is None:
            self._thread = CallThread(name="nvml-events")
        old, self._old, current = self._old, [], self._set
        self._wait = asyncio.wrap_future(self._thread.submit(lambda: _listen(old, current, slice_ms=self._slice_ms)))
        self._wait.add_done_callback(self._done)

    async def stop(self, *, within_s: float) -> bool:
        """Free all sets and keep out of the library until `resume`; False if the thread does not come out."""
        self._stopped = True
        if self._wait is not None and not await settled(self._wait, clock=self._clock, seconds=within_s):
            return False
        self.use(None)
        if not self._old:
            return True
        old, self._old = self._old, []
        freeing = asyncio.wrap_future(self._require_thread().submit(lambda: _listen(old, None, slice_ms=0)))
        freeing.add_done_callback(look_at_error)
        return await settled(freeing, clock=self._clock, seconds=within_s)

    def forget(self) -> None:
        """Drop sets that died with an NVML that somebody else shut down."""
        self._set = None
        self._old.clear()

    def resume(self) -> None:
        """Wait again, once there is a set to wait on."""
        self._stopped = False

    def end(self) -> None:
        """Let the thread go."""
        if self._thread is not None:
            self._thread.retire()

    def _require_thread(self) -> CallThread:
        self._thread = self._thread or CallThread(name="nvml-events")
        return self._thread

    def _done(self, wait: asyncio.Future[list[Heard]]) -> None:
        self._wait = None
        if wait.cancelled():
            return
        error = wait.exception()
        if isinstance(error, Exception):
            self._failed(error)
        else:
            self._heard(wait.result())


def _listen(old: list[EventSet], current: EventSet | None, *, slice_ms: int) -> list[Heard]:
    """Empty and free the sets that are no more in use, then wait on the one that is."""
    heard: list[Heard] = []
    for event_set in old:
        try:
            heard += event_set.wait(slice_ms=0)
        except (OneGpuError, GpuDriverError):
            # It was given up because a GPU in it is lost; there is nothing more to hear from it.
            continue
        finally:
            event_set.free()
    return heard if heard or current is None else current.wait(slice_ms=slice_ms)
