"""Why a gang does not stand in line as a whole: some of it are missing, or they don't belong together as written.

A gang starts from the pods that wait in one queue, as one user's, and that agree about its size and its minimum. Who of
its group says something else is not of it, whether it waits or is in: it counts for nobody, and comes in with nobody.
Nor is another user's pod of that name, who could keep somebody's gang from starting by it, or start it half.
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
from aliquot_scheduler.queues.waiting.waiter import Waiter


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


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """Of the same name, and not counted with those who start."""

    # They hold their cards still.
    going: int
    earlier: int
    # They wait.
    with_another: int
    of_others: int

    def parts(self) -> list[str]:
        """Those that there are, in words."""
        said = (
            (self.going, "on the way out"),
            (self.earlier, "of an earlier run"),
            (self.with_another, "waiting with another run"),
            (self.of_others, "of another user"),
        )
        return [f"{count} {what}" for count, what in said if count]


def gathering(waiter: Waiter, *, line: Line | None, musters: Musters, books: Books, names: Names) -> Gathering | None:
    """What the gang of a pod lacks to be let in as a whole; None if nothing, or if it is in none."""
    group, gang = waiter.group, waiter.gang
    if group is None or gang is None:
        return None
    standing = line.gathered(waiter) if line else 0
    if standing >= books.runs.still_needed(waiter):
        return None
    spots, said = musters.of(gang), books.said_by_those_in(gang)
    own = Counter({spot: count for spot, count in spots.items() if spot.user == waiter.user})
    if odd := _odd(group, own, said, names=names):
        return odd
    apart = sum(count for spot, count in own.items() if not spot.stands)
    there = len(books.runs.staying(gang)) + books.runs.finished.made_alike(waiter) + standing + apart
    others = spots.total() - own.total()
    if there >= group.minimum:
        return Gathering(lack=Lack.RESTS, message=_rests(group, apart))
    beside = Beside(
        going=books.going(gang),
        earlier=books.runs.staying_in_others(gang),
        with_another=own.total() - apart - standing,
        of_others=others + books.of_other_users(gang),
    )
    if there + others >= group.minimum:
        return Gathering(lack=Lack.SPLIT, message=_split_by_user(group, spots))
    return Gathering(lack=Lack.INCOMPLETE, message=_incomplete(group, there, beside=beside, names=names))


def _odd(group: Group, own: Counter[Spot], inside: Counter[tuple[int, int]], *, names: Names) -> Gathering | None:
    """Whether one user's pods don't belong together as they are written."""
    said = Counter(inside)
    for spot, count in own.items():
        said[spot.size, spot.minimum] += count
    if len(said) > 1:
        return Gathering(lack=Lack.DISAGREES, message=_disagrees(group, said, some_are_in=bool(inside), names=names))
    if len({spot.queue for spot in own}) > 1:
        return Gathering(lack=Lack.SPLIT, message=_split_by_queue(group, own, names=names))
    return None


def _rests(group: Group, apart: int) -> str:
    whose = agreed(apart, "its own condition says", "theirs say")
    return f"{_starts(group)}, and {apart} of those there {agreed(apart, 'has', 'have')} no turn for now, as {whose}"


def _starts(group: Group) -> str:
    return f"group {group.name} starts with {counted(group.minimum, 'pod')}"


def _incomplete(group: Group, there: int, *, beside: Beside, names: Names) -> str:
    missing = group.minimum - there
    # Whoever makes those that are on the way out makes others in their place.
    comes = f"{agreed(missing, 'another one has', f'{missing} more have')} to come"
    what = comes if beside.going else f"create {missing} more"
    left_out = f" (not counted: {', '.join(beside.parts())})" if any(beside.parts()) else ""
    here = f"{there} {agreed(there, 'is', 'are')} there{left_out}"
    return f"{_starts(group)}, and {here}: {what}, or lower {names.group_min}"


def _split_by_queue(group: Group, spots: Counter[Spot], *, names: Names) -> str:
    queues = Counter[str]()
    for spot, count in spots.items():
        queues[spot.queue] += count
    parts = [f"{count} in {name}" for name, count in sorted(queues.items())]
    return f"{_starts(group)} of one queue, and they wait {', '.join(parts)}: give all of them one {names.queue}"


def _split_by_user(group: Group, spots: Counter[Spot]) -> str:
    users = Counter[str]()
    for spot, count in spots.items():
        users[spot.user] += count
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
