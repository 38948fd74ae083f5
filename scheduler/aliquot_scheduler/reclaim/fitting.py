"""Who needs nobody to go, and waits for a turn: what it takes is to be known before others are sent away.

Whoever fits gets a turn within seconds; else it never may. Who stands back for another one gets none now, and that is
known at once: nobody need wait to see it, and hundreds who stand back need not be waited for one after the other.
"""

from __future__ import annotations

from collections.abc import Collection

from aliquot_scheduler.queues.judging.rules import Cause
from aliquot_scheduler.queues.letting_in.register import Register
from aliquot_scheduler.queues.waiting.waiter import Candidate

_ITS_TURN = 5.0


class Fitting:
    """From look to look."""

    def __init__(self, *, register: Register) -> None:
        self._register = register
        # As far as this look goes.
        self._uids: set[str] = set()
        self._since: dict[str, float] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._uids

    def __bool__(self) -> bool:
        return bool(self._uids)

    def look_begins(self) -> None:
        """Each is looked at anew: since when those fit who fitted at the look before, and no others."""
        self._forget(but=self._uids)

    def nobody_is_looked_at(self) -> None:
        """There is nobody to look at."""
        self._forget()

    def is_awaited(self, candidate: Candidate, *, now: float) -> bool:
        """It fits: whether its turn is still to be waited for."""
        self._uids.add(candidate.uid)
        since = self._since.setdefault(candidate.uid, now)
        return now - since < _ITS_TURN and not self._stands_back(candidate)

    def _stands_back(self, candidate: Candidate) -> bool:
        """By the last round."""
        first = candidate.first
        refusal = self._register.memory.sayings.why(first.queue, first.mark)
        return refusal is not None and refusal.cause is Cause.BEHIND

    def _forget(self, *, but: Collection[str] = ()) -> None:
        self._since = {uid: since for uid, since in self._since.items() if uid in but}
        self._uids = set()
