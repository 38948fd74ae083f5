"""Reads cron schedules, and says when they are due. Pure.

Five fields (minute, hour, day of month, month, day of week) or a word such as `@daily`. Where both days are restricted
either will do, as cron has it; a field that begins with `*` or `?` restricts nothing. Times are of a zone: those that a
change of the clocks leaves out are left out, those that come twice count once, the first time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec

_WORDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_FIELDS = len(_RANGES)
# 29 February comes again after eight years at the latest.
_FARTHEST = 8 * 366
_DAY = timedelta(days=1)


class ScheduleError(ValueError):
    """A schedule that can't be read."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """When something is due."""

    minutes: Sequence[int]
    hours: Sequence[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    # Whether either day will do.
    either: bool

    def falls_on(self, day: date) -> bool:
        """Tell whether it is due on a day at all."""
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return of_month or of_week if self.either else of_month and of_week


def read_schedule(text: str) -> Schedule:
    """Read a schedule."""
    fields = _WORDS.get(text, text).split()
    if len(fields) != _FIELDS:
        raise ScheduleError("expected five fields, or a word such as @daily")
    minutes, hours, days, months, weekdays = (
        _field(field, least=least, most=most, names=names)
        for field, (least, most), names in zip(fields, _RANGES, ((), (), (), _MONTHS, _DAYS), strict=True)
    )
    free = [fields[index][0] in "*?" for index in (2, 4)]
    return Schedule(
        minutes=sorted(minutes),
        hours=sorted(hours),
        days=frozenset(days),
        months=frozenset(months),
        weekdays=frozenset(weekdays),
        either=not any(free),
    )


def _field(text: str, *, least: int, most: int, names: Sequence[str]) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step_text = part.partition("/")
        step = _number(step_text, ()) if slash else 1
        first, last = _span(span, least=least, most=most, names=names, stepped=bool(slash))
        if not (least <= first <= last <= most and step >= 1):
            raise ScheduleError(f"{part!r} is none of {least} to {most}")
        found.update(range(first, last + 1, step))
    return found


def _span(text: str, *, least: int, most: int, names: Sequence[str], stepped: bool) -> tuple[int, int]:
    if text in {"*", "?"}:
        return least, most
    begin, dash, end = text.partition("-")
    first = _number(begin, names, offset=least)
    if dash:
        return first, _number(end, names, offset=least)
    return first, most if stepped else first


def _number(text: str, names: Sequence[str], *, offset: int = 0) -> int:
    if text.lower() in names:
        return names.index(text.lower()) + offset
    if not (text.isascii() and text.isdecimal()):
        raise ScheduleError(f"{text!r} is no number")
    return int(text)


def next_after(schedule: Schedule, moment: float, *, zone: ZoneInfo) -> float | None:
    """Give the first time after a moment; None where it never comes."""
    # A day early: the clocks of a zone may be set back over midnight.
    day = datetime.fromtimestamp(moment, zone).date() - _DAY
    for _ in range(_FARTHEST):
        found = next((at for at in _on(schedule, day, zone=zone, after=moment)), None)
        if found is not None:
            return found
        day += _DAY
    return None


def latest_within(schedule: Schedule, *, after: float, until: float, zone: ZoneInfo) -> float | None:
    """Give the last time after one moment and not after another."""
    begin = datetime.fromtimestamp(after, zone).date() - _DAY
    day = datetime.fromtimestamp(until, zone).date() + _DAY
    while day >= begin:
        found = [at for at in _on(schedule, day, zone=zone, after=after) if at <= until]
        if found:
            return found[-1]
        day -= _DAY
    return None


def _on(schedule: Schedule, day: date, *, zone: ZoneInfo, after: float) -> Iterator[float]:
    """Give the times of a day after a moment, in order."""
    if not schedule.falls_on(day):
        return
    for hour in schedule.hours:
        if datetime(day.year, day.month, day.day, hour, 59, tzinfo=zone).timestamp() <= after:
            continue
        for minute in schedule.minutes:
            local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
            instant = local.astimezone(UTC)
            # A time that the clocks leap over comes back as another.
            if instant.timestamp() > after and instant.astimezone(zone).replace(tzinfo=None) == local.replace(
                tzinfo=None
            ):
                yield instant.timestamp()
