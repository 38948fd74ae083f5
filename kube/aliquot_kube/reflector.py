"""A true copy of a part of the API server's objects, as a state machine without clock, network or luck of its own.

Theory of operation. The machine always wants exactly one thing (`intent`), and whoever drives it does that and reports:

    FetchPage   a page of the list            -> page()  or failed()
    OpenWatch   a watch from a version        -> line() for each line, then ended() or failed()
    Rest        so many seconds of quiet      -> rested()

    FetchPage --more pages--> FetchPage --last page--> OpenWatch --cut, 5xx, garbage--> Rest -> OpenWatch
        ^                        |failed                   |  ^ '--ended in good order--> OpenWatch
        '--------- Rest <--------'                         |  '- from the last version seen: events and bookmarks
        '--------- Rest <--- 404, 410, or no line in `watch_tries` watches

What must always hold:
 1. A consumer that applies the changes in order has, after each step, exactly `objects`: Added only of what was
    absent, Modified and Deleted only of what was there, with the very object it was told of before.
 2. An object deleted and made again under its name is told of as Deleted and Added, never as Modified.
 3. Until a list is whole nothing of it shows: the copy goes from one true state to a later true state.
 4. The watch goes on from the last version seen, so nothing is missed; what comes twice is told once.
 5. After every failure there is a rest, so a server in trouble is not asked in a busy loop, even if it answers lists
    and refuses each watch; only a watch that was served forgives the failures before. But a server that was away starts
    with an empty history, and its first Gone is an answer: its absence counts no more, or all who follow it would stay
    blind for half a minute after it is back (run: 18 and 20 s after 20 s without an API server).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Generic

import msgspec

from aliquot_core.backoff import Backoff, Random
from aliquot_kube.changes import Change, Deleted, Synced
from aliquot_kube.errors import (
    ApiError,
    GarbledError,
    GoneError,
    NotFoundError,
    ServerTroubleError,
    Status,
    ThrottledError,
    UnreachableError,
    error_from_status,
)
from aliquot_kube.listing import Listing, complain, difference, differences, key_of
from aliquot_kube.resources import T
from aliquot_kube.wire import Bookmark, Decoder, Event, UnreadableEvent

log = logging.getLogger(__name__)

# A watch that lasted so long was served, even if there was nothing to tell; load balancers cut silent ones at 60 s.
_SERVED_SECONDS = 5.0
# After these the token of a half-read list is still good.
_PASSING = (UnreachableError, ServerTroubleError, ThrottledError)


class FetchPage(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for a page; `limit` 0 asks for everything at once."""

    limit: int
    token: str = ""


class OpenWatch(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for what happens after a version, for so many seconds."""

    resource_version: str
    timeout_seconds: int


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for nothing for a while."""

    seconds: float


Intent = FetchPage | OpenWatch | Rest


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a reflector."""

    # 500 pods are about 2.2 MB on the wire.
    page_limit: int = 500
    # Servers close watches by themselves after 30 to 60 minutes; shorter spreads watchers over several API servers, and
    # chance keeps them from coming back all at once.
    watch_seconds_least: int = 240
    watch_seconds_most: int = 300
    # So many watches in a row without one good line, and the version itself is no longer trusted: etcd may have been
    # restored from a backup, or a line that can't be read may stand in the way.
    watch_tries: int = 5
    # A resource that may be installed later is looked for so often.
    absent_seconds: float = 5.0
    backoff: Backoff = Backoff()


class Freshness(msgspec.Struct, frozen=True, kw_only=True):
    """How old our knowledge is, for readers to judge; `None` is never."""

    contact_age: float | None
    list_age: float | None
    failures: int
    synced: bool


class Reflector(Generic[T]):
    """The machine; `now` is monotonic seconds and only ever compared with itself."""

    def __init__(self, *, kind: type[T], random: Random, tuning: Tuning | None = None) -> None:
        self._decoder = Decoder(kind)
        self._random = random
        self._tuning = tuning or Tuning()
        self._objects: dict[str, T] = {}
        self._listing = Listing[T]()
        self._version = ""
        self._paged = True
        self._failures = 0
        self._idle_watches = 0
        self._was_away = False
        self._heard_in_watch = False
        self._watch_opened_at: float | None = None
        self._contact_at: float | None = None
        self._list_started_at: float | None = None
        self._listed_at: float | None = None
        self._after_rest: Intent = self._first_page()
        self.intent: Intent = self._after_rest

    @property
    def objects(self) -> Mapping[str, T]:
        """All objects by `namespace/name` (or name), live and read-only."""
        return MappingProxyType(self._objects)

    @property
    def resource_version(self) -> str:
        """The version up to which everything is known."""
        return self._version

    def freshness(self, *, now: float) -> Freshness:
        """How old our knowledge is.

        The API server sends a bookmark about once a minute, so a healthy contact is younger than two minutes.
        """
        return Freshness(
            contact_age=None if self._contact_at is None else now - self._contact_at,
            list_age=None if self._listed_at is None else now - self._listed_at,
            failures=self._failures,
            synced=self._listed_at is not None,
        )

    def page(self, body: bytes, *, asked_at: float, now: float) -> list[Change[T]]:
        """Take in a page; the last one brings the differences to what was known."""
        try:
            page = self._decoder.page(body)
        except GarbledError as error:
            self.failed(error, now=now)
            return []
        self._contact_at = now
        if not self._listing.pages:
            # What a page shows may be as old as the question, not as young as the answer.
            self._list_started_at = asked_at
        self._listing.add(page, known=self._objects)
        if page.metadata.continue_:
            self.intent = FetchPage(limit=self._tuning.page_limit, token=page.metadata.continue_)
            return []
        return self._finish_list(page.metadata.resource_version)

    def opened(self, *, now: float) -> None:
        """The server took the watch: it is there, though it has told nothing yet."""
        self._contact_at = now
        self._watch_opened_at = now

    def line(self, line: bytes, *, now: float) -> list[Change[T]]:
        """Take in a line of the watch; if `intent` is no longer the same afterwards, the watch is to be closed."""
        try:
            told = self._decoder.line(line)
        except GarbledError as error:
            self.failed(error, now=now)
            return []
        if isinstance(told, Status):
            self.failed(error_from_status(told, where="watch"), now=now)
            return []
        version = told.resource_version if isinstance(told, Bookmark) else told.object.metadata.resource_version
        self._contact_at = now
        if _not_after(version, self._version):
            return []
        self._heard_in_watch = True
        self._failures = self._idle_watches = 0
        self._version = version or self._version
        return [] if isinstance(told, Bookmark) else list(self._changes(told))

    def ended(self, *, now: float) -> None:
        """The watch ended as agreed; one that ended at once without a word counts as a failure."""
        if self._served(now):
            self._failures = self._idle_watches = 0
            self.intent = self._next_watch()
        else:
            self.failed(ApiError("the watch ended at once"), now=now)

    def failed(self, error: ApiError, *, now: float) -> None:
        """What was wanted did not work: rest, then the same again or a new list."""
        self._after_rest = (
            self._retry_watch(error, now) if isinstance(self.intent, OpenWatch) else self._retry_list(error)
        )
        self._failures += 1
        self._was_away = isinstance(error, UnreachableError)
        seconds = self._tuning.backoff.delay(failures=self._failures, random=self._random, asked=error.retry_after)
        self.intent = Rest(seconds=seconds)
        about = {"error": str(error), "rest_s": round(seconds, 2)}
        log.warning("the API server could not be followed; trying again", extra=about)

    def absent(self, *, asked_at: float, now: float) -> list[Change[T]]:
        """There is no such resource, and that is all right: nothing is of it until it is installed."""
        self._contact_at, self._list_started_at = now, asked_at
        self._listing = Listing()
        changes = self._finish_list("")
        self._failures = 0
        self._after_rest = self._first_page()
        self.intent = Rest(seconds=self._tuning.absent_seconds)
        return changes

    def rested(self) -> None:
        """Go on after a rest."""
        self.intent = self._after_rest

    def _served(self, now: float) -> bool:
        opened_at = self._watch_opened_at
        return self._heard_in_watch or (opened_at is not None and now - opened_at >= _SERVED_SECONDS)

    def _retry_list(self, error: ApiError) -> Intent:
        if isinstance(error, _PASSING):
            return self.intent
        if isinstance(error, GoneError):
            # The list took longer than its version lives (5 minutes by default): ask for all of it in one answer.
            self._paged = False
        return self._first_page()

    def _retry_watch(self, error: ApiError, now: float) -> Intent:
        if self._served(now) or (self._was_away and isinstance(error, GoneError)):
            self._failures = 0
        # A server that is away says nothing about the version; one that answers and tells nothing does.
        answered = bool(error.status) or self._watch_opened_at is not None
        if answered and (isinstance(error, GarbledError) or not self._served(now)):
            self._idle_watches += 1
        lost = isinstance(error, (GoneError, NotFoundError))
        if lost or self._idle_watches >= self._tuning.watch_tries:
            return self._first_page()
        return self._next_watch()

    def _first_page(self) -> FetchPage:
        self._listing = Listing()
        return FetchPage(limit=self._tuning.page_limit if self._paged else 0)

    def _next_watch(self) -> OpenWatch:
        least, most = self._tuning.watch_seconds_least, self._tuning.watch_seconds_most
        self._watch_opened_at = None
        self._heard_in_watch = False
        return OpenWatch(
            resource_version=self._version, timeout_seconds=least + int((most - least + 1) * self._random())
        )

    def _finish_list(self, version: str) -> list[Change[T]]:
        changes = list(differences(self._objects, self._listing.objects))
        changes.append(Synced(resource_version=version))
        self._objects.clear()
        self._objects.update(self._listing.objects)
        self._listing = Listing()
        self._version = version
        self._paged = True
        self._idle_watches = 0
        self._listed_at = self._list_started_at
        self.intent = self._next_watch()
        return changes

    def _changes(self, told: Event[T] | UnreadableEvent) -> Iterator[Change[T]]:
        key = key_of(told.object.metadata)
        old = self._objects.get(key)
        reborn = old is not None and old.metadata.uid != told.object.metadata.uid
        if told.type == "DELETED":
            # The deletion of an object that bore this name before is old news.
            if old is not None and not reborn:
                del self._objects[key]
                yield Deleted(old=old)
        elif isinstance(told, UnreadableEvent):
            complain(told.object)
            if old is not None and reborn:
                del self._objects[key]
                yield Deleted(old=old)
        else:
            self._objects[key] = told.object
            yield from difference(old, told.object)


def _not_after(version: str, seen: str) -> bool:
    """Whether a version was seen already.

    Versions of one resource are ordered numbers by the API's own conventions; one that is no number is taken as new.
    """
    return version.isdecimal() and seen.isdecimal() and int(version) <= int(seen)
