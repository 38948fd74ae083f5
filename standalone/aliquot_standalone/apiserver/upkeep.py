"""What the server does by itself from time to time: old events go, and the journal is synced and kept short.

It also tells, once each, that the journal can't be written and that it can again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from .catalogue import EVENTS
from .failures import ApiError
from .terms import DeleteOptions, Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from aliquot_core.clock import Clock

    from .journal import Journal
    from .store import Change
    from .verbs import Api

_log = logging.getLogger(__name__)
# As on a cluster: an hour after it was written last.
EVENTS_LIVE = 3600.0
SYNC_EVERY = 1.0
# On a disk that is nearly full small writes go well between large ones that don't: looks without any refusal.
_QUIET_LOOKS = 3
_REFUSED = "changes can't be written to disk and are refused; what runs goes on"


class _Seen(msgspec.Struct, frozen=True, gc=False):
    at: float
    key: str
    version: int


class EventExpiry:
    """Lets events go that nobody has written for an hour."""

    def __init__(self, *, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        now = clock.monotonic()
        found = api.store.snapshot(EVENTS.table)
        self._written = deque(_Seen(now, one.key, one.version) for one in found)
        api.store.subscribe(self._note)

    def _note(self, table: str, change: Change) -> None:
        if table == EVENTS.table and change.type != "DELETED":
            self._written.append(_Seen(self._clock.monotonic(), change.revision.key, change.version))

    def sweep(self) -> None:
        """Delete those whose time is over."""
        due = self._clock.monotonic() - EVENTS_LIVE
        while self._written and self._written[0].at <= due:
            seen = self._written.popleft()
            found = self._api.store.get(EVENTS.table, seen.key)
            if found is None or found.version != seen.version:
                continue
            namespace, _, name = seen.key.partition("/")
            target = Target(resource=EVENTS, namespace=namespace, name=name)
            self._api.remove(target, DeleteOptions(), now=self._clock.wall())


class Outage:
    """Whether changes are refused for want of a disk that takes them, as far as people were told."""

    def __init__(self) -> None:
        self._refused = 0
        self._told = False
        self._quiet = 0

    def look(self, *, refused: int, trouble: str) -> str:
        """Give what is to be told now, if anything, by the journal's count of refusals and its latest trouble."""
        news, self._refused = refused > self._refused, refused
        self._quiet = 0 if news or trouble else self._quiet + 1
        if news and not self._told:
            self._told = True
            return _REFUSED
        if self._told and self._quiet >= _QUIET_LOOKS:
            self._told = False
            return "changes are written to disk again"
        return ""


def refusing(journal: Journal | None) -> str:
    """What whoever reads should know while the latest change could not be written; empty where all is well."""
    return f"{_REFUSED} ({journal.trouble})" if journal is not None and journal.trouble else ""


async def upkeep(*, api: Api, clock: Clock, journal: Journal | None, say: Callable[[str], None]) -> None:
    """Look after it until cancelled; `say` tells people what they should know of the journal."""
    expiry, outage = EventExpiry(api=api, clock=clock), Outage()
    while True:
        await clock.sleep(SYNC_EVERY)
        try:
            # First of all: on a full disk the rest fails.
            if journal is not None and (news := outage.look(refused=journal.refused, trouble=journal.trouble)):
                _log.warning(news, extra={"why": journal.trouble})
                say(f"{news} ({journal.trouble})" if journal.trouble else news)
            expiry.sweep()
            if journal is not None:
                if journal.wants_compaction:
                    journal.compact(api.store)
                # The disk may take its time; requests go on meanwhile.
                await asyncio.to_thread(journal.sync)
        except (OSError, ApiError) as error:
            _log.warning("upkeep is put off", extra={"error": str(error)})
