"""Since when disruption budgets are in an owner's way: as this leader found, or as the one before has told its pods.

Who begins to lead knows nothing. If the time ran from then on, leaders that change would lengthen it for ever. So it
counts when a pod's condition was written that says that nobody goes for it, and that a budget is why. Only for a minute
from the first look on: after that a leader knows by itself, and a condition may be of long ago.

What must always hold: the time runs for all who are let in or refused alike, and begins anew where budgets were in
nobody's way for a minute.
"""

from __future__ import annotations

from typing import Any

from aliquot_core.instants import seconds_of
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_scheduler.queues.telling.why import NOBODY_GOES
from aliquot_scheduler.queues.waiting.waiter import Candidate, GangKey, Shape
from aliquot_scheduler.reclaim.standoff import SETTING

# Whoever was kept out by budgets is found again within a cooldown; else nobody waits for that any more.
_STILL_IN_THE_WAY = 60.0

Asked = tuple[str, str, Any]
# The same by the shapes themselves: what time runs for goes on when other hardware gives them other numbers.
_Alike = tuple[str, str, GangKey | None, tuple[Shape, ...]]


class InTheWay:
    """Of all owners."""

    def __init__(self, *, names: Names) -> None:
        self._names = names
        self._began: float | None = None
        # Since when, and when that was found last.
        self._known: dict[_Alike, tuple[float, float]] = {}

    def look_around(self, now: float) -> None:
        """It is so late."""
        if self._began is None:
            self._began = now
        self._known = {one: at for one, at in self._known.items() if now - at[1] < _STILL_IN_THE_WAY}

    def found(self, candidate: Candidate, *, now: float, wall: float) -> float:
        """They are in its way at this moment; for how many seconds by now."""
        asked = _alike(candidate)
        since = self._known[asked][0] if asked in self._known else now - self._told(candidate, now=now, wall=wall)
        self._known[asked] = since, now
        return now - since

    def _told(self, candidate: Candidate, *, now: float, wall: float) -> float:
        """How long ago one of these was told of it by the leader before."""
        if self._began is None or now - self._began >= _STILL_IN_THE_WAY:
            return 0.0
        return max(self._said(member.pod, wall=wall) for member in candidate.members)

    def _said(self, pod: Pod, *, wall: float) -> float:
        for one in pod.status.conditions:
            if (one.type, one.reason) == (self._names.admitted, NOBODY_GOES) and SETTING in one.message:
                at = seconds_of(one.last_transition_time)
                return 0.0 if at is None else max(0.0, wall - at)
        return 0.0


def asked_of(candidate: Candidate) -> Asked:
    """What all have in common who are let in or refused with it, as long as shapes have the numbers of now."""
    return candidate.first.queue, candidate.first.user, candidate.shape


def _alike(candidate: Candidate) -> _Alike:
    first = candidate.first
    shapes = tuple(member.shape for member in candidate.members)
    return first.queue, first.user, first.gang if candidate.topology else None, shapes
