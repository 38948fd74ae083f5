"""Why a gang does not stand in line as a whole: some of it are missing, or they don't belong together as written.

A gang starts from the pods that wait in one queue, as one user's, and that agree about its size and its minimum. Who of
its group says something else is not of it, whether it waits or is in: it counts for nobody, and comes in with nobody.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

import msgspec

from aliquot_core.counting import agreed, counted
from aliquot_core.membership import Group
from aliquot_core.names import Names
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.line import Line
from aliquot_scheduler.queues.waiting.musters import Musters, Spot
from aliquot_scheduler.queues.waiting.waiter import Waiter, still_needed


class Lack(StrEnum):
    """What keeps a gang from being one, as conditions call it."""

    INCOMPLETE = "GangIncomplete"
    SPLIT = "GangSplit"
    DISAGREES = "GangDisagrees"
    RESTS = "GangWaits"


class Gathering(msgspec.Struct, frozen=True, kw_only=True):
    """What a gang lacks; and a sentence with numbers and what to do."""

    lack: Lack
    message: str


def gathering(waiter: Waiter, *, line: Line | None, musters: Musters, books: Books, names: Names) -> Gathering | None:
    """What the gang of a pod lacks to be let in as a whole; None if nothing, or if it is in none."""
    group, gang = waiter.group, waiter.gang
    if group is None or gang is None:
        return None
    standing = line.gathered(waiter) if line else 0
    if standing >= still_needed(waiter, let_in=books.let_in):
        return None
    spots, said = musters.of(gang), books.said_by_those_in(gang)
    inside, some_are_in = len(books.let_in.get(gang, ())), bool(said)
    earlier = said[group.size, group.minimum] - inside
    for spot, count in spots.items():
        said[spot.size, spot.minimum] += count
    if len(said) > 1:
        return Gathering(lack=Lack.DISAGREES, message=_disagrees(group, said, some_are_in=some_are_in, names=names))
    if len({(spot.queue, spot.user) for spot in spots}) > 1:
        return Gathering(lack=Lack.SPLIT, message=_split(group, spots, names=names))
    there = spots.total() + inside
    if there < group.minimum:
        message = _incomplete(group, there, earlier=earlier, names=names)
        return Gathering(lack=Lack.INCOMPLETE, message=message)
    apart = there - inside - standing
    why = f"{agreed(apart, 'has', 'have')} no turn for now, as {agreed(apart, 'its own condition says', 'theirs say')}"
    return Gathering(lack=Lack.RESTS, message=f"{_starts(group)}, and {apart} of those there {why}")


def _starts(group: Group) -> str:
    return f"group {group.name} starts with {counted(group.minimum, 'pod')}"


def _incomplete(group: Group, there: int, *, earlier: int, names: Names) -> str:
    missing = group.minimum - there
    beside = f" ({earlier} more {agreed(earlier, 'is', 'are')} of an earlier run)" if earlier else ""
    return (
        f"{_starts(group)}, and {there} {agreed(there, 'is', 'are')} there{beside}: create {missing} more, or lower "
        f"{names.group_min}"
    )


def _split(group: Group, spots: Counter[Spot], *, names: Names) -> str:
    queues: Counter[str] = Counter()
    users: Counter[str] = Counter()
    for spot, count in spots.items():
        queues[spot.queue] += count
        users[spot.user] += count
    by_queue = len(queues) > 1
    parts = [f"{count} in {name}" for name, count in sorted(queues.items())]
    if by_queue:
        return f"{_starts(group)} of one queue, and they wait {', '.join(parts)}: give all of them one {names.queue}"
    parts = [f"{count} {agreed(count, 'is', 'are')} of {name}" for name, count in sorted(users.items())]
    return f"{_starts(group)} of one user, and {', '.join(parts)}: create all of them as one user"


def _disagrees(group: Group, said: Counter[tuple[int, int]], *, some_are_in: bool, names: Names) -> str:
    parts = [
        f"{count} {agreed(count, 'says', 'say')} {minimum} of {size}" for (size, minimum), count in sorted(said.items())
    ]
    # Whoever has a place can't be written on any more.
    where = "those that wait as on those that run, or start the group anew" if some_are_in else "all of them"
    return (
        f"pods of group {group.name} disagree about how many start: {', '.join(parts)}; write the same "
        f"{names.group_size} and {names.group_min} on {where}"
    )
