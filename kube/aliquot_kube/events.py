"""Kubernetes Events: what people read under `kubectl describe`.

events.k8s.io/v1 and not the core group's older form: its series is made for counting, `reportingController` and
`action` have fields of their own, and kube-scheduler writes it too; `kubectl` shows both, since they are stored as one.
The API refuses the older form's `lastTimestamp` with it: people sort by `.metadata.creationTimestamp`.
Events are a courtesy: `tell` never waits and never fails, and what can't be written is dropped and counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from aliquot_core.backoff import Backoff, Random
from aliquot_core.clock import Clock
from aliquot_core.instants import micro_time
from aliquot_core.objects import Event, ObjectMeta, ObjectReference
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ApiError, NotFoundError, ServerTroubleError, ThrottledError, UnreachableError
from aliquot_kube.event_ledger import Create, EventLedger, Happening, Repeat, Write
from aliquot_kube.pacing import sleep_unless
from aliquot_kube.patches import merge_patch
from aliquot_kube.resources import EVENTS

log = logging.getLogger(__name__)

# The API's own limits: beyond them the whole Event would be refused.
_LONGEST_NOTE = 1024
_LONGEST_NAME = 253
_PASSING = (UnreachableError, ServerTroubleError, ThrottledError)
_BACKOFF = Backoff(first=1.0, longest=60.0)
# With nothing to write the recorder sleeps until told; this is only what its sleep has as an end.
_NOTHING_TO_DO = 3600.0


# Of whom it was to tell, and what went wrong.
Failed = Callable[[ObjectReference, Exception], object]


class EventRecorder:
    """Tells of what happens; `run` writes it."""

    def __init__(
        self, *, client: KubeClient, clock: Clock, random: Random, controller: str, instance: str, ledger: EventLedger
    ) -> None:
        self._client = client
        self._clock = clock
        self._random = random
        self._controller = controller
        self._instance = instance
        self._ledger = ledger
        self._wake = asyncio.Event()
        self._named = 0
        self._failures = 0

    def tell(self, *, regarding: ObjectReference, reason: str, action: str, note: str, warning: bool = False) -> None:
        """Let people know; costs no request now, and perhaps never one."""
        happening = Happening(
            regarding=regarding,
            type="Warning" if warning else "Normal",
            reason=reason,
            action=action,
            note=_shortened(note),
        )
        self._ledger.record(happening, now=self._clock.monotonic(), wall=self._clock.wall())
        self._wake.set()

    async def run(self, *, failed: Failed | None = None) -> None:
        """Write what is due until cancelled.

        `failed` is told of what no API server has answered, a defect: that is dropped, and others are written. Without
        it that is raised.
        """
        while True:
            write = self._ledger.next_write(now=self._clock.monotonic())
            if write is not None:
                await self._write(write, failed=failed)
                continue
            wait = self._ledger.wait(now=self._clock.monotonic())
            await sleep_unless(clock=self._clock, seconds=_NOTHING_TO_DO if wait is None else wait, woken=self._wake)

    async def _write(self, write: Write, *, failed: Failed | None) -> None:
        try:
            name = await (self._create(write) if isinstance(write, Create) else self._repeat(write))
        except ApiError as error:
            self._not_written(write, error)
        except Exception as error:
            if failed is None:
                raise
            self._ledger.failed(write, now=self._clock.monotonic(), again_after=None)
            failed(write.happening.regarding, error)
        else:
            self._failures = 0
            self._ledger.written(write, name=name, now=self._clock.monotonic())

    def _not_written(self, write: Write, error: ApiError) -> None:
        now = self._clock.monotonic()
        if isinstance(error, NotFoundError) and isinstance(write, Repeat):
            self._ledger.vanished(write, now=now)
            return
        again_after = None
        if isinstance(error, _PASSING):
            self._failures += 1
            again_after = _BACKOFF.delay(failures=self._failures, random=self._random, asked=error.retry_after)
        self._ledger.failed(write, now=now, again_after=again_after)
        log.info("an Event could not be written", extra={"error": str(error), "again_after_s": again_after})

    async def _create(self, write: Create) -> str:
        happening = write.happening
        event = Event(
            metadata=ObjectMeta(name=self._name(happening), namespace=_namespace(happening)),
            event_time=micro_time(write.wall),
            reporting_controller=self._controller,
            reporting_instance=self._instance,
            action=happening.action,
            reason=happening.reason,
            note=happening.note,
            type=happening.type,
            regarding=happening.regarding,
        )
        return (await self._client.create(EVENTS, event)).metadata.name

    async def _repeat(self, write: Repeat) -> str:
        series = {"series": {"count": write.count, "lastObservedTime": micro_time(write.wall)}}
        namespace = _namespace(write.happening)
        await self._client.patch(EVENTS, name=write.name, namespace=namespace, patch=merge_patch(series))
        return write.name

    def _name(self, happening: Happening) -> str:
        # The instant alone is not enough: a virtual clock stands still, and a fast loop may be within its resolution.
        self._named += 1
        unique = f"{int(self._clock.wall() * 1e6):x}{self._named:x}"
        return f"{happening.regarding.name[: _LONGEST_NAME - len(unique) - 1]}.{unique}"


def _namespace(happening: Happening) -> str:
    # The API wants the Events of objects without a namespace there.
    return happening.regarding.namespace or "default"


def _shortened(note: str) -> str:
    if len(note.encode()) <= _LONGEST_NOTE:
        return note
    return note.encode()[: _LONGEST_NOTE - 3].decode(errors="ignore") + "..."
