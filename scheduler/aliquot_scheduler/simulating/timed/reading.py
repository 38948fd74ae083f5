"""The times of a pod list: when each came, and for how long it ran; whose it was, if the list says so.

Columns beside those of `simulating/reading.py`: `creation_time`, `scheduled_time`, `deletion_time` in seconds, and, as
people have them, `queue` and `user`: where some pods name a queue, the others are in `default`. A pod without an end,
or that no machine could take, is left out, and counted. Of pods with a `name` none may be there twice: one that was
made again under its name was created later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from aliquot_scheduler.queues.said.tree import DEFAULT_QUEUE
from aliquot_scheduler.simulating.fleet import ALL, Fleet
from aliquot_scheduler.simulating.reading import (
    CARD_COLUMN,
    POD_COLUMNS,
    Hardware,
    TraceError,
    need_of,
    number_of,
    rows_of,
)
from aliquot_scheduler.simulating.timed.job import Job, Timetable
from aliquot_scheduler.simulating.workload import Machine, Need

TIME_COLUMNS = ("creation_time", "scheduled_time", "deletion_time")
OWNER_COLUMNS = ("queue", "user")
_NAME_COLUMN = "name"
# Of a list that says nothing of owners.
NOBODY = ""

# Where a row has its creation.
_CREATED = len(POD_COLUMNS)
# 300 years.
_LATEST = 10**10
# A name that Kubernetes would take is none longer.
_LONGEST = 63


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    need: Need
    created: int
    runs: int
    queue: str
    user: str


def read_timetable(
    lines: Iterable[str], *, name: str, machines: Sequence[Machine], after: int = 0, gpus_only: bool = False
) -> Timetable:
    """Pods that were created at or after a second, the first of them at 0."""
    hardware = Hardware.of(machines)
    fits = _Fits(machines)
    rows: list[_Row] = []
    left_out = passed_over = 0
    seen = set[tuple[str, str]]()
    columns, optional = (*POD_COLUMNS, *TIME_COLUMNS), (CARD_COLUMN, *OWNER_COLUMNS, _NAME_COLUMN)
    for where, (*cells, pod) in rows_of(lines, name=name, columns=columns, optional=optional):
        _check_once(pod, created=cells[_CREATED], seen=seen, where=where)
        row = _row(cells, where=where, hardware=hardware)
        if row is None or not fits.any(row.need):
            left_out += 1
        elif row.created >= after and (row.need.gpus or not gpus_only):
            rows.append(row)
        else:
            passed_over += 1
    if not rows and passed_over:
        told = f"of {passed_over} pods that could run none was created at {after} or later"
        told += " and asks for GPUs" if gpus_only else ""
        raise TraceError(told, where=name, remedy=f"choose an earlier second{' or all pods' if gpus_only else ''}")
    if not rows:
        told = "it has no pod with an end that a node could take"
        raise TraceError(told, where=name, remedy="fill creation_time, scheduled_time and deletion_time")
    return _timetable(rows, machines=machines, left_out=left_out)


def _check_once(pod: str, *, created: str, seen: set[tuple[str, str]], where: str) -> None:
    """A list that was written behind itself would be twice the work that there was."""
    if (pod, created) in seen:
        told = f"pod {pod[:_LONGEST]!r} is there twice, created at {created or 'no time'}"
        raise TraceError(told, where=where, remedy="leave one of both out, or give it a name of its own")
    if pod:
        seen.add((pod, created))


class _Fits:
    """Whether some empty machine could take a need."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self._fleet = Fleet(machines)
        self._known: dict[Need, bool] = {}

    def any(self, need: Need) -> bool:
        if need not in self._known:
            able = self._fleet.able(need, ALL, self._fleet.takes(need, ALL))
            self._known[need] = bool(able.any())
        return self._known[need]


def _row(cells: Sequence[str], *, where: str, hardware: Hardware) -> _Row | None:
    asked, times, (card, queue, user) = cells[:5], cells[5:8], cells[8:]
    need = need_of((*asked, card), where=where, hardware=hardware)
    created, scheduled, ended = (
        number_of(text, column=column, most=_LATEST, where=where) if text else None
        for text, column in zip(times, TIME_COLUMNS, strict=True)
    )
    if created is None:
        raise TraceError("creation_time is empty", where=where, remedy="write the second in which the pod came")
    for owner in (queue, user):
        if len(owner) > _LONGEST:
            told = f"{owner[:20]!r}… is longer than {_LONGEST} characters"
            raise TraceError(told, where=where, remedy="write a name as Kubernetes takes it")
    if scheduled is None or ended is None:
        return None
    if not created <= scheduled <= ended:
        told = f"the pod was created at {created}, scheduled at {scheduled} and deleted at {ended}"
        raise TraceError(told, where=where, remedy="these times can't come in another order")
    return _Row(need=need, created=created, runs=ended - scheduled, queue=queue, user=user)


def _timetable(rows: list[_Row], *, machines: Sequence[Machine], left_out: int) -> Timetable:
    rows.sort(key=lambda row: row.created)
    needs: dict[Need, int] = {}
    other = DEFAULT_QUEUE if any(row.queue for row in rows) else NOBODY
    jobs = tuple(
        Job(
            number=number,
            at=float(row.created - rows[0].created),
            runs=float(row.runs),
            need=needs.setdefault(row.need, len(needs)),
            team=row.queue or other,
            user=row.user or row.queue or other,
        )
        for number, row in enumerate(rows)
    )
    return Timetable(machines=tuple(machines), needs=tuple(needs), jobs=jobs, left_out=left_out)
