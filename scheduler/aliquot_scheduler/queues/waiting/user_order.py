"""The users of one queue by their shares: put right as shares change, instead of sorted anew each time.

Theory of operation. A part of a share is what a user holds, and the average of what it held lately; half of the
difference between both is forgotten each half-life. So over x, which is 1 now and 1/2 after a half-life, each part is a
straight line: `ends + x * fades`. By time alone two users who hold nothing never change places; but who holds much, and
has for a short time, passes one who holds little and had much. When that may happen is known of any two from their
lines. It is kept for each user and the next one, so an event moves those whom it charged, and time those whose moment
has come; all others stay where they are.

What must always hold: nobody stands for longer than a millisecond before one whose share is smaller by more than
`EQUAL`: what is closer counts as equal, and equal ones stand by name when they are put there.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from math import inf, log2
from typing import NamedTuple

from aliquot_scheduler.queues.charged.usage import Forgetting

# Equal shares must be equal whatever was added up in which order.
DIGITS = 9
EQUAL = 10.0**-DIGITS
# Seconds; what is worked out of logarithms may fall short of the moment by the last digit.
_SOONEST = 1e-3
# If more than this part of all users are to be moved, sorting is quicker.
_MANY = 0.25
_SPARE = 64


class Course(NamedTuple):
    """How a share goes on from an instant while nothing happens: of each dimension where it ends, and what fades."""

    ends: tuple[float, ...]
    fades: tuple[float, ...]
    at: float

    def share(self, *, kept: float) -> float:
        """What it is when so much is left of what fades."""
        return round(max([end + kept * fades for end, fades in zip(self.ends, self.fades, strict=True)]), DIGITS)


class UserOrder:
    """One queue's users, the smallest share first."""

    def __init__(self, *, forgetting: Forgetting) -> None:
        self._forgetting = forgetting
        self._now = -inf
        self._order: list[str] = []
        self._courses: dict[str, Course] = {}
        # Until when each is surely before the next one; and the same, the first moment first, with what is out of date.
        self._until: dict[str, float] = {}
        self._alarms: list[tuple[float, str]] = []

    def of(
        self, users: AbstractSet[str], *, touched: AbstractSet[str], course: Callable[[str], Course], now: float
    ) -> Sequence[str]:
        """These in their order; `touched` are those who were charged since this was asked last.

        `course` says how a user's share goes on from now.
        """
        if now < self._now:
            # The clock was put back: nothing that was worked out from then on holds.
            self._sort((), course)
        self._now = now
        moving = self._due() | (touched & self._courses.keys())
        if self._courses.keys() != users:
            moving |= self._courses.keys() ^ users
        if len(moving) > _MANY * len(users):
            self._sort(users, course)
        else:
            for user in sorted(moving):
                moving |= self._take_out(user)
            for user in sorted(moving & users):
                self._put_in(user, course(user))
        if len(self._alarms) > _SPARE + 2 * len(self._order):
            self._alarms = sorted((until, user) for user, until in self._until.items() if until < inf)
        return self._order

    def _due(self) -> set[str]:
        """Whose moment has come."""
        found: set[str] = set()
        while self._alarms and self._alarms[0][0] <= self._now:
            until, user = heapq.heappop(self._alarms)
            if self._until.get(user) == until:
                found.add(user)
        return found

    def _sort(self, users: Iterable[str], course: Callable[[str], Course]) -> None:
        self._courses = {user: course(user) for user in users}
        self._order = sorted(self._courses, key=self._place)
        self._until.clear()
        self._alarms.clear()
        for user, following in pairwise(self._order):
            self._watch(user, following)

    def _place(self, user: str) -> tuple[float, str]:
        course = self._courses[user]
        return course.share(kept=self._forgetting.kept(self._now - course.at)), user

    def _take_out(self, user: str) -> set[str]:
        """It has no place for the moment; nor have those before it who stood right only as long as it was there."""
        if self._courses.pop(user, None) is None:
            return set()
        at, out = self._order.index(user), set[str]()
        while True:
            self._until.pop(self._order.pop(at), None)
            if not 0 < at < len(self._order) or self._place(self._order[at - 1]) <= self._place(self._order[at]):
                self._watch_at(at - 1)
                return out
            at -= 1
            out.add(self._order[at])
            del self._courses[self._order[at]]

    def _put_in(self, user: str, course: Course) -> None:
        self._courses[user] = course
        at = bisect_left(self._order, self._place(user), key=self._place)
        self._order.insert(at, user)
        self._watch_at(at - 1)
        self._watch_at(at)

    def _watch_at(self, at: int) -> None:
        if 0 <= at < len(self._order) - 1:
            self._watch(self._order[at], self._order[at + 1])
        elif self._order and at == len(self._order) - 1:
            # Nobody follows the last one.
            self._until.pop(self._order[at], None)

    def _watch(self, user: str, following: str) -> None:
        courses = self._courses[user], self._courses[following]
        until = stays_before(*courses, forgetting=self._forgetting, now=self._now)
        self._until[user] = until
        if until < inf:
            heapq.heappush(self._alarms, (until, user))


def stays_before(one: Course, other: Course, *, forgetting: Forgetting, now: float) -> float:
    """Until when one that is no larger than the other now surely stays so, as far as that makes a difference."""
    if max(one.at, other.at) > now:
        # The clock was put back, and till then nothing fades.
        return now + _SOONEST
    mine, others = forgetting.kept(now - one.at), forgetting.kept(now - other.at)
    end, fades = max(zip(other.ends, other.fades, strict=True), key=lambda part: part[0] + others * part[1])
    found = inf
    for my_end, my_fades in zip(one.ends, one.fades, strict=True):
        beyond = my_end - end - EQUAL
        if beyond > 0.0:
            # It ends beyond; both are equal once so much is left of what fades now.
            left = beyond / max(others * fades - mine * my_fades, beyond)
            found = min(found, now + max(_SOONEST, -forgetting.half_life * log2(left)))
    return found
