"""Who can't be told is passed and tried again ever more seldom: nobody else is to go without for that.

Those who write for thousands look at all of them again and again. One whose words can't be made, or whom the API server
refuses, would else keep what is theirs from all who come after it, in each look anew. It is put in the log once, with
what to do, and counted at each try.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import TypeVar

import msgspec

from aliquot_core.backoff import Backoff
from aliquot_kube.errors import ConflictError, NotFoundError
from aliquot_scheduler.centre.means import NOT_WRITTEN, Means

log = logging.getLogger(__name__)

_AGAIN = Backoff(first=4.0, longest=300.0)
# Who was not tried again for so long is gone.
_GONE = 600.0
# Deleted, or another by its name: nothing is wrong with it.
_OF_OTHERS = (NotFoundError, ConflictError)
# A defect of what is said of all fails for thousands at once, and writing that down takes the one thread's time.
_MOST_LINES = 5
_REMEDY = "it is a defect of ours, so report it with the lines below; others are told, and this is tried again"

Made = TypeVar("Made")


class _Failing(msgspec.Struct, frozen=True):
    times: int
    again: float


class PutOff:
    """Those of one writer, by what it knows them by."""

    def __init__(self, *, what: str, means: Means) -> None:
        """`what` is for the log: what could not be done."""
        self._what = what
        self._clock, self._random = means.clock, means.random
        self._failing: dict[Hashable, _Failing] = {}
        # How often something has failed.
        self.count = 0
        self._lines = self._unsaid = 0

    def look_begins(self) -> None:
        """All are looked at once more."""
        if self._unsaid:
            log.error("%s, and so with more of them", self._what, extra={"more": self._unsaid})
        self._lines = self._unsaid = 0
        gone = self._clock.monotonic() - _GONE
        self._failing = {whose: one for whose, one in self._failing.items() if one.again > gone}

    def __contains__(self, whose: Hashable) -> bool:
        """Whether it has failed when it was tried last."""
        return whose in self._failing

    def is_put_off(self, whose: Hashable) -> bool:
        """Whether its next try is still to come."""
        return whose in self._failing and self._clock.monotonic() < self._failing[whose].again

    def attempt(self, whose: Hashable, make: Callable[[], Made], *, of: str) -> Made | None:
        """What is made, or None; `of` names it for the log."""
        if self.is_put_off(whose):
            return None
        try:
            made = make()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told of, and others go on
            self.failed(whose, error, of=of)
            return None
        self.is_done(whose)
        return made

    def failed(self, whose: Hashable, error: Exception, *, of: str) -> None:
        """It has failed once more, or for the first time."""
        before = self._failing.get(whose)
        times = before.times + 1 if before else 1
        again_after = _AGAIN.delay(failures=times, random=self._random)
        self._failing[whose] = _Failing(times, self._clock.monotonic() + again_after)
        if isinstance(error, _OF_OTHERS):
            log.info(self._what, extra={"of": of, "error": str(error)})
            return
        self.count += 1
        if before is None:
            self._log(error, of=of, again_after=again_after)

    def is_done(self, whose: Hashable) -> None:
        """It is as it should be."""
        self._failing.pop(whose, None)

    def _log(self, error: Exception, *, of: str, again_after: float) -> None:
        if self._lines == _MOST_LINES:
            self._unsaid += 1
            return
        self._lines += 1
        extra = {"of": of, "error": str(error), "again_after_s": again_after}
        if isinstance(error, NOT_WRITTEN):
            # It says itself what to do.
            log.warning(self._what, extra=extra)
        else:
            log.error(self._what, extra={**extra, "error": repr(error), "remedy": _REMEDY}, exc_info=error)
