"""Writes pod statuses, the latest of each pod only, and tries again while the API server is away."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from aliquot_core.clock import Clock
from aliquot_core.errors import AliquotError
from aliquot_core.objects import Pod
from aliquot_standalone.kubelet.doors import StatusSink

log = logging.getLogger(__name__)

_RETRY_AFTER = 1.0


class _Pending(msgspec.Struct, frozen=True, kw_only=True):
    pod: Pod
    status: dict[str, Any] | None
    remove: bool = False


class Reporter:
    """A queue with one place per pod, emptied by one task."""

    def __init__(self, *, sink: StatusSink, clock: Clock) -> None:
        self._sink = sink
        self._clock = clock
        self._pending: dict[str, _Pending] = {}
        # As bytes: of five thousand pods a third of the memory.
        self._written: dict[str, bytes] = {}
        self._filled = asyncio.Event()

    def report(self, pod: Pod, status: dict[str, Any] | None, *, remove: bool = False) -> None:
        """Have this status written soon, and the pod removed after it if it has ended for good.

        Without a status the last one that waits to be written stays in its place; a removal once asked for stays too.
        """
        uid = pod.metadata.uid
        waiting = self._pending.get(uid)
        if waiting is None and not remove and self._written.get(uid) == msgspec.json.encode(status):
            return
        if waiting is not None:
            status = waiting.status if status is None else status
            remove = remove or waiting.remove
        self._pending[uid] = _Pending(pod=pod, status=status, remove=remove)
        self._filled.set()

    def forget(self, uid: str) -> None:
        """Nobody will ask about this pod again."""
        self._written.pop(uid, None)
        self._pending.pop(uid, None)

    async def run(self) -> None:
        """Write for ever."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._pending:
                uid = next(iter(self._pending))
                if not await self._write(uid, self._pending.pop(uid)):
                    await self._clock.sleep(_RETRY_AFTER)

    async def _write(self, uid: str, pending: _Pending) -> bool:
        try:
            if pending.status is not None:
                # Before it is there: a status that goes back to the one before it is news as soon as this one is sent.
                self._written[uid] = msgspec.json.encode(pending.status)
                await self._sink.write_pod_status(pending.pod, pending.status)
            if pending.remove:
                await self._sink.remove_pod(pending.pod)
        except AliquotError as error:
            log.warning("status not written yet", extra={"pod": pending.pod.key, "why": str(error)})
            self._written.pop(uid, None)
            self._pending.setdefault(uid, pending)
            return False
        return True
