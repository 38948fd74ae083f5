"""The book of what is the matter with which GPU. Every entry is of one GPU, and writing in it touches no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from aliquot_agent.gpus.model import EventKind
from aliquot_core.inventory import Health

_WORST_LAST = (Health.HEALTHY, Health.DEGRADED, Health.SICK)


class Ailment(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is the matter with one GPU; `event` is what told of it, where an event did."""

    health: Health
    reason: str
    since: float
    last: float
    event: EventKind | None = None
    number: int | None = None
    # It is the card that fails, or an operator says so: who computes there has not brought it about.
    of_card: bool = False


class Throttling(msgspec.Struct, frozen=True, kw_only=True):
    """Since when a GPU is slowed down, or since when it no longer is; by the steady clock."""

    slow: bool
    since: float


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """How one GPU is, why, and since when (seconds since 1970; None: it was never seen)."""

    health: Health = Health.HEALTHY
    reason: str = ""
    since: float | None = None
    # Degraded, and by something that is the matter with the card: whoever lies there is better off elsewhere.
    failing: bool = False


def worse(one: Verdict, other: Verdict) -> Verdict:
    """Of two that count for the same GPU the worse, of equals the first."""
    worst = max(one, other, key=lambda each: _WORST_LAST.index(each.health))
    fails = worst.health is Health.DEGRADED and (one.failing or other.failing)
    return msgspec.structs.replace(worst, failing=fails)


class Book(msgspec.Struct, frozen=True, kw_only=True):
    """All GPUs by uuid, and the ailments of each by their cause."""

    ailments: Mapping[str, Mapping[str, Ailment]] = {}
    throttling: Mapping[str, Throttling] = {}
    # Since when a GPU that has no ailment has had none.
    well: Mapping[str, float] = {}

    def on(self, uuid: str) -> Mapping[str, Ailment]:
        """What is the matter with this GPU."""
        return self.ailments.get(uuid, {})

    def of(self, uuid: str) -> Verdict:
        """How this GPU is: as its worst ailment says, of equals the one that it has had longest."""
        if not (found := self.on(uuid)):
            return Verdict(since=self.well.get(uuid))
        worst = max(found.values(), key=lambda one: (_WORST_LAST.index(one.health), -one.since))
        fails = worst.health is Health.DEGRADED and any(one.of_card for one in found.values())
        return Verdict(health=worst.health, reason=worst.reason, since=worst.since, failing=fails)


def fallen_ill(book: Book, uuid: str, cause: str, ailment: Ailment) -> Book:
    """Write down an ailment; one that was there keeps the time since when it is."""
    before = book.on(uuid).get(cause)
    if before is not None:
        ailment = msgspec.structs.replace(ailment, since=before.since)
    found = {**book.on(uuid), cause: ailment}
    return msgspec.structs.replace(book, ailments={**book.ailments, uuid: found})


def cured(book: Book, uuid: str, over: Callable[[str, Ailment], bool], *, now: float) -> Book:
    """Strike out those of a GPU's ailments that are over; a GPU that is written of for the first time is well."""
    left = {cause: one for cause, one in book.on(uuid).items() if not over(cause, one)}
    if len(left) == len(book.on(uuid)) and (left or uuid in book.well):
        return book
    return msgspec.structs.replace(book, ailments={**book.ailments, uuid: left}, well={**book.well, uuid: now})
