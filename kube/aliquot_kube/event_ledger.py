"""Which Kubernetes Events are worth a write, and when: a state machine without clock or network.

Theory of operation. What happens to one object again and again in the same words is one Event with a count (a series),
not many. The first of a series is written soon; repeats are counted here and written as one patch, ever more seldom
(after 30 s, then a minute, at last every 10). Two allowances bound the rest: so many new Events for one object, so that
a pod in a crash loop that words each failure differently can't flood, and so many writes a second in all, so that a
node in trouble does not harm the API server. What is beyond is dropped and counted, never queued without end.

What must always hold:
 1. `next_write` names a write once until `written` or `failed` is reported of it.
 2. Never more than `most_series` are remembered, and none that is over.
 3. What was recorded is written in the end, in a count, or is counted in `dropped`.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict

import msgspec

from aliquot_core.objects import ObjectReference


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """Something to tell people about an object, and how: `reason` and `action` are single words, `note` a sentence."""

    regarding: ObjectReference
    type: str
    reason: str
    action: str
    note: str


class Allowance(msgspec.Struct, kw_only=True):
    """A bucket of tokens that fills with time."""

    most: float
    per_second: float
    left: float
    at: float

    def wait(self, *, now: float) -> float:
        """Seconds until there is a token."""
        self.left = min(self.most, self.left + (now - self.at) * self.per_second)
        self.at = now
        # A hair's breadth for what rounding takes away: a wait that never quite ends would spin.
        return 0.0 if self.left > 1 - 1e-6 else (1 - self.left) / self.per_second

    def is_whole(self, *, now: float) -> bool:
        """Whether it is as full as it can be."""
        return self.left + (now - self.at) * self.per_second >= self.most

    def take(self) -> None:
        """Use a token up."""
        self.left -= 1


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a ledger; those for one object are what kube's own reporters use."""

    object_burst: float = 25.0
    object_per_second: float = 1 / 300
    all_burst: float = 50.0
    all_per_second: float = 5.0
    # A series that was silent for so long is over: the next is a new Event.
    series_seconds: float = 900.0
    first_repeat_after: float = 30.0
    repeat_at_most_every: float = 600.0
    most_series: int = 1024


class Create(msgspec.Struct, frozen=True, kw_only=True):
    """Write a new Event."""

    happening: Happening
    wall: float


class Repeat(msgspec.Struct, frozen=True, kw_only=True):
    """Write the count of an Event that there is already."""

    happening: Happening
    name: str
    count: int
    wall: float


Write = Create | Repeat


class _Series(msgspec.Struct, kw_only=True):
    wall: float
    last_seen: float
    due: float
    pause: float
    name: str = ""
    count: int = 1
    written: int = 0
    under_way: bool = False


class EventLedger:
    """What was told and what is to be told."""

    def __init__(self, *, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        # Oldest first: what happened last stands at the end.
        self._series: OrderedDict[Happening, _Series] = OrderedDict()
        self._objects: OrderedDict[ObjectReference, Allowance] = OrderedDict()
        self._all = Allowance(
            most=self._limits.all_burst, per_second=self._limits.all_per_second, left=self._limits.all_burst, at=0.0
        )
        self.dropped = 0

    def record(self, happening: Happening, *, now: float, wall: float) -> None:
        """Take in that something happened."""
        series = self._series.get(happening)
        if series is None or (series.written and now - series.last_seen > self._limits.series_seconds):
            self._begin(happening, now=now, wall=wall)
            return
        series.count += 1
        series.last_seen, series.wall = now, wall
        self._series.move_to_end(happening)

    def next_write(self, *, now: float) -> Write | None:
        """The write that is due, if one is; report it with `written` or `failed`."""
        if self._all.wait(now=now) > 0:
            return None
        for happening, series in self._series.items():
            if self._unwritten(series) and series.due <= now:
                self._all.take()
                series.under_way = True
                if not series.name:
                    return Create(happening=happening, wall=series.wall)
                return Repeat(happening=happening, name=series.name, count=series.count, wall=series.wall)
        return None

    def wait(self, *, now: float) -> float | None:
        """Seconds until a write may be due; `None` when nothing waits."""
        due = [series.due for series in self._series.values() if self._unwritten(series)]
        return max(0.0, self._all.wait(now=now), min(due) - now) if due else None

    def written(self, write: Write, *, name: str, now: float) -> None:
        """The API server has it, under this name."""
        series = self._series.get(write.happening)
        if series is not None:
            series.name = name
            series.written = write.count if isinstance(write, Repeat) else 1
            series.under_way = False
            series.due = now + series.pause
            series.pause = min(series.pause * 2, self._limits.repeat_at_most_every)

    def failed(self, write: Write, *, now: float, again_after: float | None) -> None:
        """It could not be written: once more later, or (`None`) never."""
        series = self._series.get(write.happening)
        if series is None:
            return
        if again_after is None:
            del self._series[write.happening]
            self.dropped += 1
            return
        series.under_way = False
        series.due = now + again_after

    def vanished(self, write: Repeat, *, now: float) -> None:
        """The Event is gone, as all are after an hour: begin anew."""
        series = self._series.get(write.happening)
        if series is not None:
            series.name, series.count, series.written = "", 1, 0
            series.under_way, series.due = False, now

    @staticmethod
    def _unwritten(series: _Series) -> bool:
        return series.count > series.written and not series.under_way

    def _begin(self, happening: Happening, *, now: float, wall: float) -> None:
        self._forget_past(now=now)
        allowance = self._allowance(happening.regarding, now=now)
        if allowance.wait(now=now) > 0:
            self.dropped += 1
            return
        allowance.take()
        self._series[happening] = _Series(wall=wall, last_seen=now, due=now, pause=self._limits.first_repeat_after)
        self._series.move_to_end(happening)
        if len(self._series) > self._limits.most_series:
            _, oldest = self._series.popitem(last=False)
            self.dropped += oldest.count - oldest.written

    def _forget_past(self, *, now: float) -> None:
        """Drop what makes no difference any more: series that are over and written, allowances that are whole again."""
        pause = self._limits.series_seconds
        silent = itertools.takewhile(lambda item: now - item[1].last_seen > pause, self._series.items())
        for happening in [happening for happening, series in silent if series.written == series.count]:
            del self._series[happening]
        whole = itertools.takewhile(lambda item: item[1].is_whole(now=now), self._objects.items())
        for regarding in [regarding for regarding, _ in whole]:
            del self._objects[regarding]

    def _allowance(self, regarding: ObjectReference, *, now: float) -> Allowance:
        found = self._objects.get(regarding)
        if found is None:
            limits = self._limits
            found = Allowance(
                most=limits.object_burst, per_second=limits.object_per_second, left=limits.object_burst, at=now
            )
            self._objects[regarding] = found
        self._objects.move_to_end(regarding)
        if len(self._objects) > self._limits.most_series:
            self._objects.popitem(last=False)
        return found
