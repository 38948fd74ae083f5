"""Queues as a terminal shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from msgspec.structs import replace

from aliquot_cli.tables import ago, table, tame
from aliquot_core.counting import agreed, counted
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.tree import DEFAULT_QUEUE
from aliquot_scheduler.queues.telling.forms import ChargedPod, GoneQueue, Part, QueueAnswer, QueueRow, WaitingPod

_UNKNOWN = "-"
# In parentheses, which no queue's name has.
_OF_MEMORY = "(memory)"


def rows_text(rows: Sequence[QueueRow], *, wide: bool) -> str:
    """The tree of queues, with a mark at whom something is wrong with; or those that a namespace is shown."""
    marked = [replace(row, name=f"{row.name} {_MARK}") if row.problems else row for row in rows]
    note = f"\n\n{_WRONG}" if any(row.problems for row in rows) else ""
    return _table(marked, wide=wide) + note


def _table(rows: Sequence[QueueRow], *, wide: bool) -> str:
    if rows and rows[0].own:
        return _shown_text(rows, rows[0].own.namespace)
    heading = ["QUEUE", *_headings(wide=wide), "RUNNING", "WAITING", "STOP"]
    lines = [heading, *chain.from_iterable(_lines(row, wide=wide) for row in rows)]
    told = "" if not rows or rows[0].told_by == "computed" else f"\n\n{_LEADER}"
    return table(lines) + told


_MARK = "!"
_WRONG = f"{_MARK} Something is wrong with this queue: `aliquot queue NAME` says what, and what to do."
_LEADER = "As the leader wrote it last: you may not read all pods and nodes, by which it could be worked out now."


def _shown_text(rows: Sequence[QueueRow], namespace: str) -> str:
    heading = ["QUEUE", "GUARANTEE", "LIMIT", "USED", "FAIR SHARE", "ASKED", "WAITING"]
    own = ["OWN", "OWN MEM", "OWN RUNNING", "OWN WAITING"]
    lines = [[*heading, *own, "STOP"]]
    for row in rows:
        mine, cells = row.own, _told_parts(row.compute)
        its = [_percent(mine.compute), _mebibytes(mine.memory), str(mine.running), str(mine.waiting)] if mine else []
        lines.append([row.name, *map(_percent, cells), _count(row.waiting), *its, row.stop or _UNKNOWN])
        if _is_said(row.memory):
            lines.append([_OF_MEMORY, *map(_mebibytes, _told_parts(row.memory)), *[""] * 6])
    said = f"As namespace {namespace} is shown it: OWN is its part. Queues themselves you may not read."
    return "\n\n".join([table(lines), *_what_for(rows), said])


def _what_for(rows: Sequence[QueueRow]) -> Iterator[str]:
    """Why the namespace's own pods wait; each pod's condition has its sentence."""
    found = [(row.name, reason, str(count)) for row in rows if row.own for reason, count in row.own.reasons.items()]
    if found:
        yield table([("QUEUE", "ITS PODS WAIT FOR", "PODS"), *found])


def _told_parts(part: Part) -> Sequence[int | None]:
    return part.guarantee, part.limit, part.used, part.fair_share, part.asked


def _headings(*, wide: bool) -> list[str]:
    more = ["WEIGHT", "LENDS", "BORROWS", "PRIORITY"] if wide else []
    return ["GUARANTEE", "LIMIT", "USED", "BORROWED", "FAIR SHARE", "ASKED", *more]


def _lines(row: QueueRow, *, wide: bool) -> Iterator[list[str]]:
    """Of a queue; a line of its own for memory where the queue says anything of that, or all is to be told."""
    yield _row(row, wide=wide)
    if wide or _is_said(row.memory):
        rest = [""] * (4 if wide else 3)
        yield ["  " * row.depth + _OF_MEMORY, *_cells(row.memory, _mebibytes, wide=wide), *rest]


def _is_said(part: Part) -> bool:
    # What may be borrowed at most is a limit too.
    return bool(part.guarantee) or part.limit is not None or part.lending_limit is not None


def _row(row: QueueRow, *, wide: bool) -> list[str]:
    name = "  " * row.depth + row.name
    middle = [*_cells(row.compute, _percent, wide=wide), *([_count(row.priority)] if wide else [])]
    return [name, *middle, _count(row.running), _count(row.waiting), row.stop or _UNKNOWN]


def _cells(part: Part, unit: Callable[[int | None], str], *, wide: bool) -> Iterator[str]:
    yield from (unit(part.guarantee), unit(part.limit))
    yield from (unit(part.used), unit(part.borrowed), unit(part.fair_share), unit(part.asked))
    if wide and part.weight is None:
        yield from (_UNKNOWN, _UNKNOWN, _UNKNOWN)
    elif wide:
        yield _count(part.weight)
        yield "all" if part.lending_limit is None else unit(part.lending_limit)
        yield "any" if part.borrowing_limit is None else unit(part.borrowing_limit)


def _percent(amount: int | None) -> str:
    return _UNKNOWN if amount is None else f"{amount} %"


def _mebibytes(amount: int | None) -> str:
    return _UNKNOWN if amount is None else f"{amount} MiB"


def _count(number: int | None) -> str:
    return _UNKNOWN if number is None else str(number)


def answer_text(told: QueueAnswer, *, wide: bool, now: float) -> str:
    """All of one queue."""
    parts = [" / ".join(told.path), _table([replace(told.row, depth=0)], wide=wide)]
    if told.row.problems:
        parts.append("\n".join(f"{_MARK} {tame(problem)}" for problem in told.row.problems))
    if told.row.models:
        parts.append(_of_models(told.row))
    if not told.row.own:
        parts.append(_whose(told))
    if len(told.siblings) > 1:
        lines = [(one.name, str(one.priority), _part_of(one.beyond), _part_of(one.of_all)) for one in told.siblings]
        heading = ("BESIDE IT, BY TURN", "PRIORITY", "BEYOND GUARANTEES", "OF ALL")
        parts.append(table([heading, *lines]))
    if told.users:
        users = [(one.user, _part_of(one.share), str(one.waiting)) for one in told.users]
        parts.append(table([("USER, BY TURN", "OF ALL", "WAITING"), *users]))
    if told.charged:
        parts.append(_charged(told.charged))
    if told.pods:
        parts.append(waiting_text(told.pods, now=now))
    if told.settings:
        parts.append(_by(told.settings, of=told.settings_of))
    return "\n\n".join(parts)


def _of_models(row: QueueRow) -> str:
    """What it says of single models; shares are worked out of all GPUs alike."""
    heading = ("OF GPUS OF", "", "GUARANTEE", "LIMIT", "USED", "ASKED", "LENDS", "BORROWS")
    lines = [
        (tame(model), thing, *_of_a_model(part, unit))
        for model, both in row.models.items()
        for thing, part, unit in (("compute", both.compute, _percent), ("memory", both.memory, _mebibytes))
    ]
    return table([heading, *lines])


def _of_a_model(part: Part, unit: Callable[[int | None], str]) -> Iterator[str]:
    yield from map(unit, (part.guarantee, part.limit, part.used, part.asked))
    yield "all" if part.lending_limit is None else unit(part.lending_limit)
    yield "any" if part.borrowing_limit is None else unit(part.borrowing_limit)


def _by(settings: QueueSettings, *, of: str) -> str:
    """The leader goes by its own, so that by others the order may come out differently."""
    their, more = "the leader's", ""
    if of != "leader":
        their, more = "your", " The leader's are not known here; it goes by its own, which may be others."
    whose = f"label {settings.user_label}" if settings.user_label else "namespace"
    return (
        f"Shares are worked out by {their} settings [queues]: half-life {settings.half_life:g} s, penalty "
        f"{settings.penalty:g} s, users by {whose}.{more}"
    )


def _whose(told: QueueAnswer) -> str:
    if told.gone:
        return "\n".join(_of_gone(one) for one in told.gone)
    if not told.row.leaf:
        return _of_inner(told)
    homes = f"namespace {', '.join(told.home_of)}" if told.home_of else "no namespace"
    others = f"; pods of {', '.join(told.namespaces)} may name it" if told.namespaces else ""
    unnamed = (
        " Who names no queue waits here, if the namespace names none either." if told.row.name == DEFAULT_QUEUE else ""
    )
    return f"At home here by label: {homes}{others}.{unnamed}"


def _of_inner(told: QueueAnswer) -> str:
    """Pods that waited in it when it got its first child go on naming it."""
    below = "Pods wait in the queues below it."
    stuck = sum(one.queue == told.row.name for one in told.pods)
    if not stuck:
        return below
    here = f"{counted(stuck, 'pod')} {agreed(stuck, 'is', 'are')} here in no line"
    return (
        f"{below} {here}: let {agreed(stuck, 'it, or its namespace,', 'them, or their namespaces,')} name one of those."
    )


def _of_gone(gone: GoneQueue) -> str:
    """What became of it, and what to do."""
    what = "hangs on nothing" if gone.hangs else "was deleted" if gone.running else "is not there"
    runs = f"{counted(gone.running, 'pod')} {agreed(gone.running, 'runs', 'run')} on"
    waits = f"{gone.waiting} {agreed(gone.waiting, 'waits', 'wait')} and {agreed(gone.waiting, 'is', 'are')} in no line"
    remedy = "mend its spec.parent" if gone.hangs else "create it again"
    return f"Queue {gone.name} {what}: {runs}, {waits}. Let those that wait name another, or {remedy}."


def _charged(pods: Sequence[ChargedPod]) -> str:
    heading = ("RUNS ON", "QUEUE", "NODE", "HOLDS")
    lines = [(one.pod, one.queue, one.node or _UNKNOWN, f"{one.compute} %, {one.memory} MiB") for one in pods]
    return table([heading, *lines])


def waiting_text(pods: Sequence[WaitingPod], *, now: float) -> str:
    """Who waits, in the order of their places, and why."""
    heading = ("PLACE", "POD", "QUEUE", "USER", "PRIORITY", "ASKS", "WAITED", "REASON", "WHY")
    lines = [
        (
            "never" if one.never else str(one.place) if one.place else _UNKNOWN,
            one.pod,
            one.queue,
            one.user,
            str(one.priority),
            f"{one.compute} %, {one.memory} MiB",
            ago(one.since, now=now),
            one.reason or _UNKNOWN,
            one.why,
        )
        for one in pods
    ]
    return table([heading, *lines])


def _part_of(share: float) -> str:
    # What was used lately and what is held now together may come to more than all.
    return f"{100 * min(1.0, share):.1f} %"
